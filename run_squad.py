"""Fine-tunes ALBERT on extractive question answering: see albert_tf/finetuning/squad/."""

from albert_tf.cli.programs import main

if __name__ == "__main__":
    main("run-squad")

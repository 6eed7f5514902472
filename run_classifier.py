"""Fine-tunes ALBERT on GLUE, CLUE or a custom task: see albert_tf/finetuning/classification/."""

from albert_tf.cli.programs import main

if __name__ == "__main__":
    main("run-classifier")

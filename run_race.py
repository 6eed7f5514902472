"""Fine-tunes ALBERT on multiple-choice questions: see albert_tf/finetuning/race/."""

from albert_tf.cli.programs import main

if __name__ == "__main__":
    main("run-race")

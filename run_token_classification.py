"""Fine-tunes ALBERT on token classification: see albert_tf/finetuning/token_classification/."""

from albert_tf.cli.programs import main

if __name__ == "__main__":
    main("run-token-classification")

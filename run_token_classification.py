"""Fine-tunes ALBERT on token classification: see albert_tf/commands/run_token_classification.py."""

from albert_tf.commands.run_token_classification import main

if __name__ == "__main__":
    main()

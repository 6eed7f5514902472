"""Fine-tunes ALBERT to label tokens: see albert_tf/commands/run_token_classification.py."""

from albert_tf.commands.run_token_classification import main

if __name__ == "__main__":
    main()

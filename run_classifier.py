"""Fine-tunes ALBERT on GLUE, CLUE or a custom task: see albert_tf/commands/run_classifier.py."""

from albert_tf.commands.run_classifier import main

if __name__ == "__main__":
    main()

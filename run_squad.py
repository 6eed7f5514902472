"""Fine-tunes ALBERT on extractive question answering: see albert_tf/commands/run_squad.py."""

from albert_tf.commands.run_squad import main

if __name__ == "__main__":
    main()

"""Creates pre-training records from text: see albert_tf/commands/create_pretraining_data.py."""

from albert_tf.commands.create_pretraining_data import main

if __name__ == "__main__":
    main()

"""Creates pre-training records from text: see albert_tf/data/."""

from albert_tf.cli.programs import main

if __name__ == "__main__":
    main("create-pretraining-data")

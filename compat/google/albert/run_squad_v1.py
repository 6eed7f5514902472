"""Runs `albert run-squad` for SQuAD 1, under Google's name."""

from albert_tf.cli.programs import main

if __name__ == "__main__":
    main("run-squad", "--noversion_2_with_negative")

"""Runs `albert run-classifier` on Google's checkpoints, under albert_zh's name."""

import os
import sys

sys.path.insert(0, os.path.abspath(f"{__file__}/../../.."))

from albert_tf.cli.programs import main

if __name__ == "__main__":
    main("run-classifier", "--max_seq_length=512", "--num_train_epochs=3")

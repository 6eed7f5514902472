"""Runs `albert run-pretraining` with one-hot segments, under albert_zh's name."""

import os
import sys

sys.path.insert(0, os.path.abspath(f"{__file__}/../../.."))

from albert_tf.cli.programs import main

if __name__ == "__main__":
    main("run-pretraining", "--one_hot_segments")

"""Describes a model without building it; see albert_tf/cli/describe.py."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from albert_tf.cli.programs import main

if __name__ == "__main__":
    main("describe")

"""Runs a program: `python -m albert_tf run-classifier --help`."""

import sys

from albert_tf.cli.programs import main

if __name__ == "__main__":
    sys.argv[0] = "albert"
    main()

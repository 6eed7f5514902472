"""Plots the results of a run; see albert_tf/cli/plot_results.py."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from albert_tf.cli.programs import main

if __name__ == "__main__":
    main("plot-results")

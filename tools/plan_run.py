"""Estimates the costs of pre-training; see albert_tf/commands/plan_run.py."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from albert_tf.commands.plan_run import main

if __name__ == "__main__":
    main()

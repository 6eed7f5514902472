"""Trains a vocabulary; see albert_tf/commands/train_vocabulary.py."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from albert_tf.commands.train_vocabulary import main

if __name__ == "__main__":
    main()

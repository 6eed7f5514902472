"""Prunes or extends the vocabulary of a model; see albert_tf/commands/edit_vocabulary.py."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from albert_tf.commands.edit_vocabulary import main

if __name__ == "__main__":
    main()

"""Checks the GPU, TPU or CPU of this machine; see albert_tf/commands/check_device.py."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from albert_tf.commands.check_device import main

if __name__ == "__main__":
    main()

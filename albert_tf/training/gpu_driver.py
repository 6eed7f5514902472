"""Whether this machine can have a GPU at all, which is known before TensorFlow is imported."""

from __future__ import annotations

import glob
import sys

# What a driver adds on Linux: NVIDIA's, also in Windows Subsystem for Linux, and others.
NVIDIA_FILES = ("/dev/nvidia[0-9]*", "/dev/dxg")
_OTHER_FILES = ("/dev/nvidia*", "/dev/nvhost*", "/dev/nvmap", "/dev/kfd", "/dev/dri/renderD*")


def has_nvidia_gpu() -> bool:
    """Returns whether NVIDIA's driver has found a GPU."""
    return any(map(glob.glob, NVIDIA_FILES))


def cannot_have_gpu() -> bool:
    """Returns whether no driver of a GPU runs on this machine; False where this is unknown."""
    return sys.platform == "linux" and not any(map(glob.glob, NVIDIA_FILES + _OTHER_FILES))

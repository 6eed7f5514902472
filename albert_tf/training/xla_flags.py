"""Options of XLA that TensorFlow leaves off, and with which compiled steps access fewer bytes.

XLA reads the environment variable XLA_FLAGS when it first compiles, and ends the process at an
option that it does not know: they are set for the releases whose `XLA_FLAGS=--help` names them.
"""

from __future__ import annotations

import os

import tensorflow as tf

XLA_FLAGS = "XLA_FLAGS"
_RELEASES = ("2.18.", "2.19.", "2.20.")  # 2.21 does not list the option
# By cuBLASLt, matmuls add their bias and compute GELU, which are operations of their own by cuBLAS.
_OPTIONS = {"--xla_gpu_enable_cublaslt": "true"}


def set_defaults() -> None:
    """Sets the options, if this machine has a GPU, each unless the user has set it."""
    if not tf.__version__.startswith(_RELEASES) or not tf.config.list_physical_devices("GPU"):
        return
    given = os.environ.get(XLA_FLAGS, "").split()
    names = {text.partition("=")[0] for text in given}
    added = [f"{name}={value}" for name, value in _OPTIONS.items() if name not in names]
    os.environ[XLA_FLAGS] = " ".join((*given, *added))

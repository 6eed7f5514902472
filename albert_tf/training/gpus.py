"""Diagnosis of GPUs that TensorFlow does not find.

TensorFlow logs the reason when it is imported. The programs hide that log because most of it does
not help users, so the reason is found by importing TensorFlow again in a subprocess.
"""

from __future__ import annotations

import glob
import os
import re
import subprocess
import sys

import tensorflow as tf

_DEVICE_FILES = ("/dev/nvidia[0-9]*", "/dev/dxg")  # Linux, and Windows Subsystem for Linux
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_INSTALL = 'pip install "tensorflow[and-cuda]"'
_PROBE = "import tensorflow as tf; tf.config.list_physical_devices('GPU')"
_PROBE_SECONDS = 120
_LOG_LINE = re.compile(r"\.cc:\d+\] (.+)")
_ABOUT_GPUS = re.compile(r"GPU|CUDA|cuda|cuInit|dlopen")
_NOISE = re.compile(r"factory|oneDNN")
_MOST_LINES = 3


def is_in_machine() -> bool:
    """Returns whether this machine has an NVIDIA GPU, even if TensorFlow does not find it."""
    return any(glob.glob(pattern) for pattern in _DEVICE_FILES)


def why_none() -> str:
    """Returns sentences that say why TensorFlow finds no GPU, and what to do about it.

    This takes seconds if neither the build of TensorFlow nor the environment is the reason.
    """
    hidden = os.environ.get(_VISIBLE)
    if not tf.test.is_built_with_gpu_support():
        return f"It is built without CUDA: {_INSTALL}."
    if hidden is not None and hidden.strip() in ("", "-1"):
        return f"{_VISIBLE}={hidden!r} hides them: unset it."
    words = "; ".join(_ask_tensorflow()) or "nothing"
    return f"It logs: {words}. Check the driver with nvidia-smi, and the libraries: {_INSTALL}."


def _ask_tensorflow() -> list[str]:
    """Returns the messages about GPUs that TensorFlow logs when it looks for them."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE],
            env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "0"},
            capture_output=True,
            text=True,
            check=False,
            timeout=_PROBE_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return find_reasons(done.stderr)


def find_reasons(log: str) -> list[str]:
    """Returns the messages about GPUs in a log of TensorFlow, in order, without duplicates."""
    texts = [match[1].strip() for match in map(_LOG_LINE.search, log.splitlines()) if match]
    about = [text for text in texts if _ABOUT_GPUS.search(text) and not _NOISE.search(text)]
    return list(dict.fromkeys(text.rstrip(".") for text in about))[:_MOST_LINES]

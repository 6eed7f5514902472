"""Checks that the installed TensorFlow can use a TPU, and has the commands that install one.

TensorFlow is not imported here. It loads libtpu when it is imported, and then a libtpu of another
release ends the process, and one that finds no TPU waits for minutes.
"""

from __future__ import annotations

import ctypes.util
import importlib.util
import os
import re
import subprocess
import sys
from importlib import metadata

from absl import logging

from albert_tf.training.settings import DeviceSettings

# The newest libtpu before this release of tensorflow-tpu. From 0.0.32 on, importing TensorFlow 2.20
# ends the process, because libtpu no longer has all the functions that it looks up.
_LIBTPU = "libtpu==0.0.20"
INSTALL_LIBTPU = f"pip install --force-reinstall --no-deps {_LIBTPU}"
INSTALL_TPU = (
    "pip uninstall -y tensorflow; "
    f"pip install --force-reinstall --no-deps tensorflow-tpu==2.20.0 {_LIBTPU}"
)
INSTALL_CUDA = "pip install 'tensorflow[and-cuda]~=2.20.0'"

_LIBRARY = "libtensorflow_cc.so.2"  # TensorFlow's own code, which differs between its packages
_LOCAL = "local"  # TensorFlow's name of the TPU of this machine
_PROBE_SECONDS = 180
_PROBE = """
import sys
import tensorflow as tf
try:
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="local")
    tf.tpu.experimental.initialize_tpu_system(resolver)
except Exception as error:
    sys.exit("initialization failed with " + " ".join(str(error).split()))
"""
# In the order of preference: a fatal error, libtpu cannot be opened, and the message of the probe.
_REASONS = (
    re.compile(r"^\S+ \S+ F .*?\] (.+)|^F\d{4} .*?\] (.+)", re.MULTILINE),
    re.compile(r"FindAndLoadTpuLibrary failed with (.+?)\.? This is expected", re.MULTILINE),
    re.compile(r"^initialization failed with (.+)", re.MULTILINE),
)


def check(settings: DeviceSettings) -> None:
    """Checks that the TPU of this machine can be used, if the settings ask for it.

    If TensorFlow is not imported yet, and `tpu_name` is not "local" but omitted, the TPU is
    initialized in a subprocess. This takes as long as importing TensorFlow and initializing the TPU
    in this process, which follows. One process at a time can open a TPU: the subprocess has ended
    before this process opens it.

    Args:
        settings: settings of a run. A TPU with another `tpu_name` than "local" is not checked,
            because its host has its own TensorFlow.

    Raises:
        ValueError: the TPU cannot be used. The message has the command that repairs it.
    """
    uses_tpu = settings.use_tpu or settings.distribution == "tpu"
    if not uses_tpu or settings.tpu_name not in (None, "", _LOCAL):
        return
    if not _has_tpu_build():
        raise ValueError(
            "--use_tpu: the installed TensorFlow has no TPU operations, because it is not "
            f"tensorflow-tpu, or another package overwrote it. Run: {INSTALL_TPU}"
        )
    has_library = importlib.util.find_spec("libtpu") or os.environ.get("TPU_LIBRARY_PATH")
    if not has_library and not ctypes.util.find_library("tpu"):
        raise ValueError(f"--use_tpu: libtpu is not installed. Run: {INSTALL_LIBTPU}")
    if not settings.tpu_name and "tensorflow" not in sys.modules:
        logging.info("Initializing the TPU in a subprocess, for at most %d s", _PROBE_SECONDS)
        _probe_tpu()


def _has_tpu_build() -> bool:
    """Returns whether the files of `tensorflow` are those of the package tensorflow-tpu.

    Packages that are installed later can overwrite them, and pip does not notice it.
    """
    try:
        paths = metadata.files("tensorflow-tpu") or []
    except metadata.PackageNotFoundError:
        return False
    for path in paths:
        if path.name == _LIBRARY:
            location = str(path.locate())
            return os.path.isfile(location) and os.path.getsize(location) == path.size
    return False


def _probe_tpu() -> None:
    """Initializes the TPU in a subprocess.

    Raises:
        ValueError: it failed, aborted or did not end in time.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE],
            env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "0"},
            capture_output=True,
            text=True,
            check=False,
            timeout=_PROBE_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise ValueError(
            f"--use_tpu: the TPU of this machine is not initialized after {_PROBE_SECONDS} s. Is "
            f"this a TPU VM? If so, reinstall libtpu: {INSTALL_LIBTPU}"
        ) from None
    if done.returncode:
        raise ValueError(
            f"--use_tpu: the TPU of this machine cannot be initialized: {_find_reason(done)}. If "
            f"no other process uses the TPU, reinstall libtpu: {INSTALL_LIBTPU}"
        )


def _find_reason(done: subprocess.CompletedProcess[str]) -> str:
    """Returns why a probe failed, from its log."""
    for pattern in _REASONS:
        if match := pattern.search(done.stderr):
            return next(filter(None, match.groups())).rstrip(".")
    return f"exit status {done.returncode}"

"""The devices of a run: opened before TensorFlow is initialized, with threads and precision.

*Precision.* With bfloat16 and float16, only matmuls and the activations between them use the
smaller type. Variables, optimizer moments, the statistics of LayerNorm, softmax and losses stay in
float32.

*Options of XLA.* TensorFlow leaves some off with which compiled steps access fewer bytes. XLA reads
the environment variable XLA_FLAGS when it first compiles, and ends the process at an option that it
does not know: they are set for the releases whose `XLA_FLAGS=--help` names them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import platform
import re
from collections.abc import Iterator, Sequence

import tensorflow as tf
import tf_keras
from absl import logging

from albert_tf import files
from albert_tf.training import replicas
from albert_tf.training.settings import DeviceSettings
from albert_tf.training.strategies import make_strategy

_POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}
_CPU_INFO = "/proc/cpuinfo"
_CPU_FLAGS = {"amx_bf16": "AMX", "avx512_bf16": "AVX-512"}  # instruction sets with bfloat16 matmuls
# Compute capabilities.
_FIRST_BFLOAT16_GPU = (8, 0)
_FIRST_FLOAT16_GPU = (7, 0)

XLA_FLAGS = "XLA_FLAGS"
_XLA_RELEASES = ("2.18.", "2.19.", "2.20.")  # 2.21 does not list the option
# By cuBLASLt, matmuls add their bias and compute GELU, which are operations of their own by cuBLAS.
_XLA_OPTIONS = {"--xla_gpu_enable_cublaslt": "true"}


@dataclasses.dataclass(frozen=True)
class Devices:
    """The devices of a run, and the precision they compute in.

    Attributes:
        strategy: the distribution strategy.
        precision: "float32", "bfloat16" or "float16".
    """

    strategy: tf.distribute.Strategy
    precision: str

    @property
    def is_chief(self) -> bool:
        """Whether this process writes files; of several workers, only the first one does."""
        return replicas.is_chief(self.strategy)


@contextlib.contextmanager
def open_devices(settings: DeviceSettings, reason: str | None = None) -> Iterator[Devices]:
    """Context manager that sets up devices, threads and precision.

    Keras' precision policy is restored at the end of the block. The block must be entered before
    TensorFlow is initialized.

    Args:
        settings: the devices, threads and precision.
        reason: why the precision was chosen, for the log, if it was not by a flag or the hardware.

    Raises:
        ValueError: the settings require devices that do not exist.
    """
    _set_threads(settings.threads)
    set_xla_flags()
    strategy = make_strategy(settings)
    name, why = resolve_precision(settings.precision)
    policy = tf_keras.mixed_precision.global_policy()
    apply_precision(name)
    why = f"{reason or why}{precision_difference(name)}"
    logging.info("%-9s %s, %s: %s", "device", replicas.describe(strategy), name, why)
    try:
        yield Devices(strategy, name)
    finally:
        tf_keras.mixed_precision.set_global_policy(policy)


def _set_threads(threads: int | None) -> None:
    if not threads or threads == tf.config.threading.get_intra_op_parallelism_threads():
        return
    try:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
    except RuntimeError:
        raise ValueError(
            f"--threads={threads}: TensorFlow is already initialized, so its number of threads "
            "can no longer be changed. Set it in a new process."
        ) from None


def describe(strategy: tf.distribute.Strategy, precision: str) -> files.JsonObject:
    """Returns what a run records of its devices: all that may change the rounding of numbers.

    Args:
        strategy: the distribution strategy.
        precision: "float32", "bfloat16" or "float16".
    """
    found: files.JsonObject = {"devices": replicas.describe(strategy), "precision": precision}
    if not replicas.is_tpu(strategy) and not tf.config.list_physical_devices("GPU"):
        found["threads"] = tf.config.threading.get_intra_op_parallelism_threads() or _count_cores()
        found["processor"] = processor()
    return found


def _count_cores() -> int:
    """Returns the number of cores that this process may use, which TensorFlow has a thread for."""
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def set_xla_flags() -> None:
    """Sets options of XLA, if this machine has a GPU, each unless the user has set it."""
    if not tf.__version__.startswith(_XLA_RELEASES) or not tf.config.list_physical_devices("GPU"):
        return
    given = os.environ.get(XLA_FLAGS, "").split()
    names = {text.partition("=")[0] for text in given}
    added = [f"{name}={value}" for name, value in _XLA_OPTIONS.items() if name not in names]
    os.environ[XLA_FLAGS] = " ".join((*given, *added))


def resolve_precision(precision: str) -> tuple[str, str]:
    """Returns the precision to use, resolving "auto" by the hardware of this machine.

    Args:
        precision: as in `DeviceSettings`.

    Returns:
        "float32", "bfloat16" or "float16", and the reason for it, which is logged.
    """
    if precision != "auto":
        return precision, f"--precision={precision}"
    if tf.config.list_logical_devices("TPU"):
        return "bfloat16", "TPUs support bfloat16"
    gpus = tf.config.list_physical_devices("GPU")
    return _of_gpus(gpus) if gpus else _of_cpu(_read_cpu_info())


def precision_difference(precision: str) -> str:
    """Returns how numbers in a precision differ from Google's, as text to append to a message.

    Args:
        precision: "float32", "bfloat16" or "float16".

    Returns:
        Text that ends the current sentence and adds another; "" for float32, which Google's
        programs use.
    """
    if precision == "float32":
        return ""
    return (
        ". Numbers differ by about 1e-3 from those of Google's programs, which compute in float32; "
        "--precision=float32 gives Google's numbers."
    )


def _of_gpus(gpus: Sequence[tf.config.PhysicalDevice]) -> tuple[str, str]:
    """Returns the precision and reason for the least capable of the GPUs."""
    details = [tf.config.experimental.get_device_details(gpu) for gpu in gpus]
    # A GPU that does not report its compute capability is assumed to be old.
    capability = min(tuple(gpu.get("compute_capability") or (0, 0)) for gpu in details)
    name = f"a GPU of compute capability {'.'.join(map(str, capability))}"
    if capability >= _FIRST_BFLOAT16_GPU:
        return "bfloat16", f"{name} supports bfloat16"
    if capability >= _FIRST_FLOAT16_GPU:
        return "float16", f"{name} supports float16, but not bfloat16"
    return "float32", f"{name} has no fast half precision"


def _of_cpu(info: str) -> tuple[str, str]:
    """Returns the precision and reason for a CPU described by the text of /proc/cpuinfo."""
    cpu_flags = set(info.split())
    for flag, unit in _CPU_FLAGS.items():
        if flag in cpu_flags:
            return "bfloat16", f"this CPU supports bfloat16 ({unit})"
    return "float32", "this CPU does not support bfloat16"


def _read_cpu_info() -> str:
    try:
        with open(_CPU_INFO, encoding="utf-8") as stream:
            return stream.read()
    except OSError:  # not Linux
        return ""


def processor() -> str:
    """Returns the name of the CPU; "" if the system does not tell."""
    named = re.search(r"^model name\s*: (.+)$", _read_cpu_info(), re.MULTILINE)
    return named[1].strip() if named else platform.processor()


def apply_precision(precision: str) -> None:
    """Sets the compute dtype of models that are built from now on; variables stay float32.

    Args:
        precision: "float32", "bfloat16" or "float16", as returned by `resolve_precision`.
    """
    tf_keras.mixed_precision.set_global_policy(_POLICIES[precision])


def current_precision() -> str:
    """Returns the current compute dtype for new models: "float32", "bfloat16" or "float16"."""
    return str(tf_keras.mixed_precision.global_policy().compute_dtype)

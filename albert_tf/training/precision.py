"""Mixed precision: selection by device, and the policy of Keras.

With bfloat16 and float16, only matmuls and the activations between them use the smaller type.
Variables, optimizer moments, the statistics of LayerNorm, softmax and losses stay in float32.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Sequence

import tensorflow as tf
import tf_keras

_POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}
_CPU_INFO = "/proc/cpuinfo"
_CPU_FLAGS = {"amx_bf16": "AMX", "avx512_bf16": "AVX-512"}  # instruction sets with bfloat16 matmuls
# Compute capabilities.
_FIRST_BFLOAT16_GPU = (8, 0)
_FIRST_FLOAT16_GPU = (7, 0)


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

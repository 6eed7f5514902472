"""Mixed precision: which one a device is good at, and the loss scaling that float16 needs.

Variables, moments, the statistics of LayerNorm, softmax and losses are in float32 in every
precision: only matmuls and the activations between them are in the smaller type.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import tensorflow as tf
import tf_keras

_POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}
_CPU_INFO = "/proc/cpuinfo"
_CPU_FLAGS = {"amx_bf16": "AMX", "avx512_bf16": "AVX-512"}  # units with bfloat16 matmuls
_FIRST_BFLOAT16_GPU, _FIRST_FLOAT16_GPU = (8, 0), (7, 0)  # compute capabilities

Gradient: TypeAlias = tf.Tensor | tf.IndexedSlices


def resolve(precision: str) -> tuple[str, str]:
    """Returns the precision that "auto" stands for on this machine, or the one that is named.

    Args:
        precision: as in `DeviceSettings`.

    Returns:
        "float32", "bfloat16" or "float16", and the reason, for the log.
    """
    if precision != "auto":
        return precision, f"--precision={precision}"
    if tf.config.list_logical_devices("TPU"):
        return "bfloat16", "a TPU multiplies bfloat16"
    gpus = tf.config.list_physical_devices("GPU")
    return _of_gpus(gpus) if gpus else _of_cpu(_read_cpu_info())


def difference(precision: str) -> str:
    """Returns what distinguishes the numbers of a precision from Google's, for messages.

    Args:
        precision: "float32", "bfloat16" or "float16".

    Returns:
        a sentence with a space before it; "" for float32, in which Google's programs compute.
    """
    if precision == "float32":
        return ""
    return (
        ". Losses differ from those of Google's programs, which compute in float32, by about 1e-3; "
        "--precision=float32 gives Google's numbers."
    )


def _of_gpus(gpus: Sequence[Any]) -> tuple[str, str]:
    """Returns as `resolve`, for the least capable of several GPUs."""
    details = [tf.config.experimental.get_device_details(gpu) for gpu in gpus]
    # A GPU that does not say is taken for an old one.
    capability = min(tuple(found.get("compute_capability") or (0, 0)) for found in details)
    name = f"a GPU of compute capability {'.'.join(map(str, capability))}"
    if capability >= _FIRST_BFLOAT16_GPU:
        return "bfloat16", f"{name} multiplies bfloat16"
    if capability >= _FIRST_FLOAT16_GPU:
        return "float16", f"{name} multiplies float16, but not bfloat16"
    return "float32", f"{name} multiplies no smaller type fast"


def _of_cpu(info: str) -> tuple[str, str]:
    """Returns as `resolve`, for a CPU, from the text of /proc/cpuinfo."""
    found = set(info.split())
    for flag, unit in _CPU_FLAGS.items():
        if flag in found:
            return "bfloat16", f"this processor multiplies bfloat16 ({unit})"
    return "float32", "this processor does not multiply bfloat16"


def _read_cpu_info() -> str:
    try:
        with open(_CPU_INFO, encoding="utf-8") as stream:
            return stream.read()
    except OSError:  # not Linux
        return ""


def apply(precision: str) -> None:
    """Makes models that are built from now on compute in a precision; variables stay float32.

    Args:
        precision: "float32", "bfloat16" or "float16", as `resolve` returns it.
    """
    tf_keras.mixed_precision.set_global_policy(_POLICIES[precision])


def current() -> str:
    """Returns the precision of models that are built now: "float32", "bfloat16" or "float16"."""
    return tf_keras.mixed_precision.global_policy().compute_dtype


class LossScale:
    """Dynamic loss scaling: keeps gradients within the range of float16.

    The loss is multiplied by the scale, and gradients are divided by it. A step whose gradients
    overflow is left out and the scale halved; after `growth_steps` good steps in a row it is
    doubled. Source: arXiv 1710.03740, section 3.2.

    In place of `tf_keras.mixed_precision.LossScaleOptimizer`, which offers no variable of its scale
    for checkpoints to hold under a name, which leaves a step out by `tf.cond`, and which looks at
    all gradients to find what the norm that clips them tells here.

    Args:
        initial: the scale at the beginning.
        growth_steps: number of good steps in a row after which the scale is doubled.
        minimum: the scale never falls below it. A step that overflows even so is truly not finite.

    Attributes:
        value: the scale, float32 scalar.
        good_steps: number of good steps since it last changed, int64 scalar.
    """

    def __init__(
        self, initial: float = 2.0**15, growth_steps: int = 2000, minimum: float = 1.0
    ) -> None:
        self.growth_steps, self.minimum = growth_steps, minimum
        self.value = tf.Variable(initial, trainable=False, dtype=tf.float32, name="loss_scale")
        self.good_steps = tf.Variable(0, trainable=False, dtype=tf.int64, name="good_steps")

    def scale(self, loss: tf.Tensor) -> tf.Tensor:
        """Returns the loss to differentiate, of the type of `loss`."""
        return loss * tf.cast(self.value, loss.dtype)

    def unscale(self, gradients: Sequence[Gradient | None]) -> list[Gradient | None]:
        """Returns the gradients of the loss itself, in float32.

        Args:
            gradients: of the scaled loss, one a variable; None where the loss does not depend on
                it. Those of embedding tables may be `tf.IndexedSlices`.
        """
        factor = 1.0 / self.value
        return [
            None if gradient is None else tf.math.scalar_mul(factor, gradient)
            for gradient in gradients
        ]

    def update(self, is_finite: tf.Tensor) -> None:
        """Ends a step: halves the scale, or counts a good step and at times doubles it.

        Args:
            is_finite: whether the gradients of all replicas are, bool scalar.
        """
        count = tf.where(is_finite, self.good_steps + 1, 0)
        grows = count >= self.growth_steps
        grown = tf.where(grows, 2.0 * self.value, self.value)
        # Doubling for ever would end at infinity, where no halving leads back.
        grown = tf.where(tf.math.is_finite(grown), grown, self.value)
        halved = tf.maximum(0.5 * self.value, self.minimum)
        self.value.assign(tf.where(is_finite, grown, halved))
        self.good_steps.assign(tf.where(grows, tf.zeros_like(count), count))

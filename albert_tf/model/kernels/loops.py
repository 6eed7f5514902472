"""Functions of tensors that XLA compiles into one loop, for kernels on CPUs, and their parts.

They compute in float32 for every dtype. Matmuls stay outside XLA because they are faster without
it on CPUs.

Dimensions: as in `ops.py`; N rows (tokens).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar

import tensorflow as tf

from albert_tf.model import ops

P = ParamSpec("P")
R = TypeVar("R")

# XLA takes 0.1 s to compile each function and shape, which does not pay off for narrow tensors.
MIN_WIDTH = 256
_MIN_FOLDED_WIDTH = 64  # a narrower axis is reduced as it is


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Returns a function of tensors, compiled with XLA, once for each shape."""
    return tf.function(function, jit_compile=True, autograph=False)


class Loop(Generic[P, R]):
    """Decorator for a function of tensors that XLA compiles into one loop where this pays off."""

    def __init__(self, function: Callable[P, R]) -> None:
        self.function = function
        self.compiled = compiled(function)

    def at(self, width: int) -> Callable[P, R]:
        """Returns the function for tensors of a width, compiled from MIN_WIDTH on."""
        return self.compiled if width >= MIN_WIDTH else self.function


def as_float32(x: tf.Tensor) -> tf.Tensor:
    """Returns `x` in float32."""
    return tf.cast(x, tf.float32)


def narrow(x: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Casts float32 to a dtype; rounds to bfloat16 by operations on the bits.

    With XLA's own cast, a loop with a tanh or an exponential takes up to twice as long on CPUs.
    """
    if dtype != tf.bfloat16:
        return tf.cast(x, dtype)
    bits = tf.bitcast(x, tf.uint32)
    is_odd = tf.bitwise.right_shift(bits, 16) & 1
    rounded = tf.bitwise.right_shift(bits + 0x7FFF + is_odd, 16)  # ties to even
    return tf.bitcast(tf.cast(rounded, tf.uint16), tf.bfloat16)


def _folded(x: tf.Tensor, operation: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]) -> tf.Tensor:
    """Combines the halves of the last axis, repeatedly, to prepare a reduction over it.

    XLA does not vectorize reductions of floats over the last axis on CPUs, but does so here.
    """
    while x.shape[-1] and x.shape[-1] % (2 * _MIN_FOLDED_WIDTH) == 0:
        x = operation(*tf.split(x, 2, axis=-1))
    return x


def row_sums(x: tf.Tensor) -> tf.Tensor:
    """Returns the sums over the last axis, which is kept with size 1."""
    return tf.reduce_sum(_folded(x, tf.add), axis=-1, keepdims=True)


def row_max(x: tf.Tensor) -> tf.Tensor:
    """Returns the maximum over the last axis of float32 `x`, which is kept with size 1.

    XLA vectorizes the maximum of integers on CPUs but not that of floats, so the bits are compared
    as integers.
    """

    def flip(bits: tf.Tensor) -> tf.Tensor:
        # Flips all bits but the sign of negative floats: integers then sort as floats do.
        return tf.where(bits < 0, bits ^ 0x7FFFFFFF, bits)

    bits = tf.bitcast(_folded(x, tf.maximum), tf.int32)
    return tf.bitcast(flip(tf.reduce_max(flip(bits), axis=-1, keepdims=True)), tf.float32)


def column_sums(x: tf.Tensor) -> tf.Tensor:
    """Returns the sums over all axes but the last, float32 [H], as a matmul with ones.

    TensorFlow takes up to four times as long for these sums on CPUs.
    """
    rows = ops.as_rows(x)  # [N, H]
    if rows.dtype == tf.float16:  # a sum may be too large for float16
        return tf.reduce_sum(as_float32(rows), axis=0)
    sums = tf.matmul(tf.ones((1, tf.shape(rows)[0]), rows.dtype), rows)  # [1, H]
    return as_float32(tf.squeeze(sums, 0))

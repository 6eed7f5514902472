"""Dropout, sum and LayerNorm by kernels of Triton, in programs that XLA compiles for NVIDIA GPUs.

Each pass, forward and backward, reads and writes every tensor once. XLA by itself writes the sum,
and reads it for the mean, for the variance, and for the result.

Dimensions: as in `ops.py`; N rows (tokens).
"""

from __future__ import annotations

import tensorflow as tf

from albert_tf.model.dispatch import Gradient
from albert_tf.model.kernels.custom_calls import CallResult
from albert_tf.model.kernels.triton.kernel import TritonKernel, dropout_numbers

SIZES = (512, 1024, 2048, 4096)  # the longest rows that there are kernels for
MULTIPLE = 8  # the length of a row is a multiple of it
_MAX_ELEMENTS = 2**31  # the kernels count them in int32
_BLOCK_ELEMENTS = 4096  # of the rows that are computed at a time
_GRADIENT_ROWS = 32  # of a program
_FORWARD = TritonKernel("norm_forward", "forward", warps=4)
_GRADIENT = TritonKernel("norm_gradient", "gradient", warps=8)


def takes(shape: tf.TensorShape) -> bool:
    """Returns whether there are kernels for activations of a shape, [..., H]."""
    if not shape.is_fully_defined() or shape.num_elements() >= _MAX_ELEMENTS:
        return False
    size: int = shape[-1]
    return size <= SIZES[-1] and size % MULTIPLE == 0


def add_and_norm(
    x: tf.Tensor,
    residual: tf.Tensor,
    gamma: tf.Tensor,
    beta: tf.Tensor,
    rate: float,
    seed: tf.Tensor | None,
) -> tf.Tensor:
    """Returns LayerNorm(residual + dropout(x)), float [N, H].

    Args:
        x: bfloat16 or float16 [N, H], whose shape `takes` accepts.
        residual: the same.
        gamma: float32 [H].
        beta: float32 [H].
        rate: dropout rate.
        seed: as in `ops.dropout`.
    """
    N, H = x.shape
    size = next(size for size in SIZES if size >= H)
    drops = seed is not None and rate > 0.0
    numbers = tf.concat([(N, H), dropout_numbers(rate, seed)], axis=0)  # [5]
    like_x = CallResult((N, H), x.dtype)

    @tf.custom_gradient
    def run(
        x: tf.Tensor, residual: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor
    ) -> tuple[tf.Tensor, Gradient]:
        rows = _BLOCK_ELEMENTS // size
        operands = [x, residual, gamma, beta, numbers]
        (y,) = _FORWARD(size, (_programs(N, rows), 1), operands, [like_x])

        def gradient(dy: tf.Tensor) -> tuple[tf.Tensor, ...]:
            programs = _programs(N, _GRADIENT_ROWS)
            of_x = like_x if drops else CallResult((1,), x.dtype)  # is not written without dropout
            sums = CallResult((programs, H), tf.float32)
            dx, dresidual, dgamma, dbeta = _GRADIENT(
                size,
                (programs, 1),
                [x, residual, gamma, numbers, dy],
                [of_x, like_x, sums, sums],
            )  # [N, H] twice, [programs, H] twice
            dgamma, dbeta = tf.reduce_sum(dgamma, 0), tf.reduce_sum(dbeta, 0)  # [H] each
            return dx if drops else dresidual, dresidual, dgamma, dbeta

        return y, gradient

    return run(x, residual, gamma, beta)  # [N, H]


def _programs(rows: int, each: int) -> int:
    return -(-rows // each)

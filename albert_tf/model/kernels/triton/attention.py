"""Attention with dropout by kernels of Triton, in programs that XLA compiles whole for NVIDIA GPUs.

They compute it as FlashAttention does (arXiv 2205.14135), with the masks of `ops.keep_mask`:
neither scores nor masks are written to memory.

Dimensions: as in `ops.py`.
"""

from __future__ import annotations

import tensorflow as tf

from albert_tf.model.dispatch import Gradient
from albert_tf.model.kernels.custom_calls import CallResult
from albert_tf.model.kernels.triton.kernel import TritonKernel, dropout_numbers

HEAD_SIZES = (32, 64, 128)  # that there are kernels for
LENGTHS = 128  # the length is a multiple of it: the largest block of the kernels
_MAX_ELEMENTS = 2**31  # the kernels count them in int32
_BLOCK = 128  # queries or keys of a program
_FORWARD = TritonKernel("attention_forward", "forward", warps=4, stages=3)
_GRADIENT_OF_KEYS = TritonKernel(
    "attention_gradient_of_keys", "gradient_of_keys", warps=8, stages=2
)
_GRADIENT_OF_QUERIES = TritonKernel(
    "attention_gradient_of_queries", "gradient_of_queries", warps=8, stages=2
)


def takes(shape: tf.TensorShape) -> bool:
    """Returns whether there are kernels for a query of static shape [B, A, S, D]."""
    is_small = shape.num_elements() < _MAX_ELEMENTS
    return is_small and shape[3] in HEAD_SIZES and shape[2] % LENGTHS == 0


def attention(
    query: tf.Tensor,
    key: tf.Tensor,
    value: tf.Tensor,
    input_mask: tf.Tensor | None,
    rate: float,
    seed: tf.Tensor,
) -> tf.Tensor:
    """Returns dropout(softmax(query · keyᵀ / √D)) · value, float [B, S, A, D].

    Args:
        query: bfloat16 or float16 [B, S, A, D], with static sizes that `takes` accepts.
        key: the same.
        value: the same.
        input_mask: as in `ops.attention`.
        rate: dropout rate.
        seed: as in `ops.dropout`.
    """
    B, S, A, D = query.shape
    programs = S // _BLOCK, B * A
    mask = tf.ones((B, S), tf.int32) if input_mask is None else tf.cast(input_mask, tf.int32)
    numbers = tf.concat([(S, A), dropout_numbers(rate, seed)], axis=0)  # [5]
    like_query = CallResult(tuple(query.shape), query.dtype)
    row_sums = CallResult((B, A, S), tf.float32)

    @tf.custom_gradient
    def run(query: tf.Tensor, key: tf.Tensor, value: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
        operands = [query, key, value, mask, numbers]
        context, log_total = _FORWARD(D, programs, operands, [like_query, row_sums])

        def gradient(dcontext: tf.Tensor) -> tuple[tf.Tensor, ...]:
            product = tf.cast(context, tf.float32) * tf.cast(dcontext, tf.float32)
            along = tf.transpose(tf.reduce_sum(product, -1), (0, 2, 1))  # [B, A, S]
            others = [*operands, log_total, along, dcontext]
            dkey, dvalue = _GRADIENT_OF_KEYS(D, programs, others, [like_query, like_query])
            (dquery,) = _GRADIENT_OF_QUERIES(D, programs, others, [like_query])
            return dquery, dkey, dvalue  # [B, S, A, D] each

        return context, gradient

    return run(query, key, value)

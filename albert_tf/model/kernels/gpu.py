"""Kernels of the operations in `ops.py` for NVIDIA GPUs, in programs that XLA compiles whole.

They are used within `dispatch.for_gpu`, and leave to the kernels in `xla.py` what they do not take.

Dimensions: as in `ops.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from albert_tf.model import ops
from albert_tf.model.dispatch import GPU, Gradient, register_kernel
from albert_tf.model.kernels import cudnn_attention
from albert_tf.model.kernels.triton import attention as triton_attention
from albert_tf.model.kernels.triton import gelu as triton_gelu
from albert_tf.model.kernels.triton import norm as triton_norm
from albert_tf.model.kernels.xla import column_sums
from albert_tf.model.tensorflow_internals import optimization_barrier

HALF = (tf.bfloat16, tf.float16)
MAX_HEAD_SIZE = 128
HEAD_SIZES = 8  # the head size is a multiple of it
LENGTHS = 64  # so is the length: what is left over would need blocks of another size


def takes(dtype: tf.DType, length: int | None, head_size: int | None) -> bool:
    """Returns whether fused attention takes sequences of a length, None if it is not static."""
    if dtype not in HALF or not length or not head_size:
        return False
    fits = head_size <= MAX_HEAD_SIZE and head_size % HEAD_SIZES == 0
    return fits and length % LENGTHS == 0


def fuses(dtype: tf.DType, shape: tf.TensorShape, drops: bool) -> bool:
    """Returns whether attention is fused for queries and keys of static shape [B, A, S, D].

    Args:
        dtype: their dtype.
        shape: their shape.
        drops: whether there is dropout, which cuDNN does not compute as `ops.dropout` does.
    """
    return takes(dtype, shape[2], shape[3]) and (not drops or triton_attention.takes(shape))


def _projects_for_fused(
    queries: tf.Tensor,
    x: tf.Tensor,
    kernels: Sequence[tf.Tensor],
    biases: Sequence[tf.Tensor],
    heads: int,
) -> bool:
    is_whole = queries is x and len(kernels) == 3  # not the last block, which has other queries
    return is_whole and takes(x.dtype, x.shape[1], kernels[0].shape[-1] // heads)


@register_kernel(ops.project_heads, GPU, when=_projects_for_fused)
def _project_heads(
    queries: tf.Tensor,
    x: tf.Tensor,
    kernels: Sequence[tf.Tensor],
    biases: Sequence[tf.Tensor],
    heads: int,
) -> list[tf.Tensor]:
    """Each has a matmul of its own, whose result fused attention reads as it lies in memory.

    Separating the results of a common one takes copies, and so does joining their gradients. XLA
    would join matmuls of one operand, but does not see through the barriers that it is one.
    """

    @tf.custom_gradient
    def run(x: tf.Tensor, *weights: tf.Tensor) -> tuple[list[tf.Tensor], Gradient]:
        def gradient(*gradients: tf.Tensor) -> list[tf.Tensor]:
            dx, dkernels, dbiases = [], [], []
            for kernel, dy in zip(weights[:3], gradients, strict=True):
                own_x, own_dy = optimization_barrier(x, dy)  # [N, H], [N, A·D]
                dx.append(tf.matmul(own_dy, kernel, transpose_b=True))  # [N, H]
                dkernels.append(tf.matmul(own_x, own_dy, transpose_a=True))  # [H, A·D]
                dbiases.append(column_sums(own_dy))  # [A·D]
            total = dx[0]
            for other in dx[1:]:
                total = other + total  # in this order, XLA has the matmuls add it
            return [total, *dkernels, *dbiases]

        projected = []
        for kernel, bias in zip(weights[:3], weights[3:], strict=True):
            own_x, own_kernel = optimization_barrier(x, kernel)  # [N, H], [H, A·D]
            projected.append(ops.dense(own_x, own_kernel, bias))  # [N, A·D]
        return projected, gradient

    projected = run(ops.as_rows(x), *kernels, *biases)  # 3 of [N, A·D]
    return [ops.split_heads(ops.with_axes_of(x, y), heads) for y in projected]


def _is_fused(
    query: tf.Tensor,
    key: tf.Tensor,
    value: tf.Tensor,
    input_mask: tf.Tensor | None = None,
    rate: float = 0.0,
    seed: tf.Tensor | None = None,
) -> bool:
    if not query.shape.is_fully_defined() or query.shape != key.shape:
        return False
    return fuses(query.dtype, query.shape, _drops(rate, seed))


def _drops(rate: float, seed: tf.Tensor | None) -> bool:
    return seed is not None and rate > 0.0


@register_kernel(ops.attention, GPU, when=_is_fused)
def _attention(
    query: tf.Tensor,
    key: tf.Tensor,
    value: tf.Tensor,
    input_mask: tf.Tensor | None = None,
    rate: float = 0.0,
    seed: tf.Tensor | None = None,
) -> tf.Tensor:
    query, key, value = map(ops.swap_heads, (query, key, value))  # [B, S, A, D] each
    if _drops(rate, seed):
        context = triton_attention.attention(query, key, value, input_mask, rate, seed)
    else:
        context = cudnn_attention.attention(query, key, value, input_mask)  # [B, S, A, D]
    return ops.join_heads(context)  # [B, S, A·D]


def _is_gelu_of_half(
    x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor, activation: str, *_: object, **__: object
) -> bool:
    if x.dtype not in HALF or activation != "gelu" or not x.shape.is_fully_defined():
        return False
    rows = x.shape.num_elements() // x.shape[-1]
    return triton_gelu.takes(tf.TensorShape((rows, bias.shape[0])))


@register_kernel(ops.feed_forward, GPU, when=_is_gelu_of_half)
def _feed_forward(
    x: tf.Tensor,
    kernel: tf.Tensor,
    bias: tf.Tensor,
    activation: str,
    output_kernel: tf.Tensor,
    output_bias: tf.Tensor,
) -> tf.Tensor:
    """The first matmul adds its bias and computes GELU: XLA has cuBLASLt do both.

    The backward pass computes the gradients of GELU's operand and of the bias in one pass.
    """

    @tf.custom_gradient
    def run(rows: tf.Tensor, bias: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
        z = tf.nn.bias_add(rows, tf.cast(bias, rows.dtype))  # [N, I]
        return _gelu_of_matmul(z), lambda dy: triton_gelu.gradients(z, dy)

    rows = run(tf.matmul(ops.as_rows(x), kernel), bias)  # [N, I]
    return ops.with_axes_of(x, ops.dense(rows, output_kernel, output_bias))  # [..., H]


def _gelu_of_matmul(z: tf.Tensor) -> tf.Tensor:
    """Returns `ops.gelu`, float [N, I], in the order of operations in which XLA recognizes it."""
    scale, cube, half, one = (
        tf.constant(x, z.dtype) for x in (ops.GELU_SCALE, ops.GELU_CUBE, 0.5, 1.0)
    )
    tanh = tf.tanh(scale * (z + cube * (z * (z * z))))  # [N, I]
    return z * (half * (one + tanh))


def _is_one_pass(x: tf.Tensor, *_: object, **__: object) -> bool:
    return x.dtype in HALF and triton_norm.takes(x.shape)


@register_kernel(ops.add_and_norm, GPU, when=_is_one_pass)
def _add_and_norm(
    x: tf.Tensor,
    residual: tf.Tensor,
    gamma: tf.Tensor,
    beta: tf.Tensor,
    rate: float = 0.0,
    seed: tf.Tensor | None = None,
) -> tf.Tensor:
    rows = ops.as_rows(x), ops.as_rows(residual)  # [N, H] each
    return ops.with_axes_of(x, triton_norm.add_and_norm(*rows, gamma, beta, rate, seed))

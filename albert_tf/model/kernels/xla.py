"""Kernels of the operations in `ops.py` for programs that XLA compiles whole.

GPUs and TPUs run such programs. There, matmuls are so fast that reads and writes of memory take
much of a step, so these kernels compute something again rather than store it, and avoid copies in
another layout: TPUs keep positions in the last axis, GPUs in the last but one.
`make test-tpu` bounds the bytes that the compiled training step accesses.

Dimensions: as in `ops.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import tensorflow as tf

from albert_tf.model import ops
from albert_tf.model.dispatch import TPU, XLA, Gradient, register_kernel, target
from albert_tf.model.tensorflow_internals import optimization_barrier


@register_kernel(ops.project_heads, TPU)
def _project_heads(
    queries: tf.Tensor,
    x: tf.Tensor,
    kernels: Sequence[tf.Tensor],
    biases: Sequence[tf.Tensor],
    heads: int,
) -> list[tf.Tensor]:
    """The positions are the last axis of the results, as TPUs store queries, keys and values.

    Each has a matmul of its own, because separating the results of a common one takes copies, as
    does changing the layout.
    """
    projected = []
    for rows, kernel, bias in zip((queries, x, x), kernels, biases, strict=True):
        y = tf.einsum("hn,bsh->bns", kernel, rows)  # [B, A·D, S]
        y += tf.cast(bias, y.dtype)[:, None]
        batch, size, length = ops.sizes_of(y)
        y = tf.reshape(y, (batch, heads, size // heads, length))  # [B, A, D, S]
        projected.append(tf.transpose(y, (0, 1, 3, 2)))  # [B, A, S, D]
    return projected


def column_sums(x: tf.Tensor) -> tf.Tensor:
    """Returns the sums over all axes but the last, float32 [H]."""
    return tf.reduce_sum(tf.cast(ops.as_rows(x), tf.float32), axis=0)


def _is_for_no_tpu(*_: object, **__: object) -> bool:
    return target() != TPU


@register_kernel(ops.add_bias, XLA, when=_is_for_no_tpu)
def _add_bias(x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """The gradient of the bias is summed from what is stored for the matmuls, in their precision.

    Without the barrier, XLA sums the float32 values from which that was rounded, and so writes them
    too: for the gradient of GELU, twice the bytes of what is needed. The compiler for TPUs does not
    gain by it: it accesses a tenth more bytes, and needs more memory.
    """

    @tf.custom_gradient
    def run(x: tf.Tensor, bias: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
        def gradient(dy: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            (dy,) = optimization_barrier(dy)  # [..., H]
            return dy, column_sums(dy)  # [..., H], [H]

        return ops.add_bias.function(x, bias), gradient

    return run(x, bias)


@register_kernel(ops.gelu, XLA)
@tf.custom_gradient
def _gelu_xla(x: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
    """Computes in float32, and stores nothing but its input."""

    def gradient(dy: tf.Tensor) -> tf.Tensor:
        z = tf.cast(x, tf.float32)  # [..., I]
        square = z * z
        tanh = tf.tanh(ops.GELU_SCALE * z * (1.0 + ops.GELU_CUBE * square))
        slope = ops.GELU_SCALE * (1.0 + 3.0 * ops.GELU_CUBE * square)
        dgelu = 0.5 * (1.0 + tanh + z * (1.0 - tanh * tanh) * slope)  # [..., I]
        return tf.cast(tf.cast(dy, tf.float32) * dgelu, x.dtype)

    return tf.cast(ops.gelu.function(tf.cast(x, tf.float32)), x.dtype), gradient


def _attention_whole(
    positions_last: bool,
    query: tf.Tensor,
    key: tf.Tensor,
    value: tf.Tensor,
    input_mask: tf.Tensor | None = None,
    rate: float = 0.0,
    seed: tf.Tensor | None = None,
) -> tf.Tensor:
    """Stores nothing of the size [B, A, Q, S]; the backward pass computes the scores again.

    As in FlashAttention (arXiv 2205.14135), the logarithm of the softmax's denominators is stored
    instead of the probabilities, and the denominators divide the weighted sums of the values.

    With `positions_last`, the context and its gradient are [B, A, D, Q] instead of [B, A, Q, D].
    """

    @tf.custom_gradient
    def run(query: tf.Tensor, key: tf.Tensor, value: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
        scores = ops.attention_scores(query, key, input_mask)  # [B, A, Q, S]
        largest = tf.reduce_max(scores, axis=-1, keepdims=True)  # [B, A, Q, 1]
        numerators = tf.exp(scores - largest)  # [B, A, Q, S]
        total = tf.reduce_sum(numerators, axis=-1, keepdims=True)  # [B, A, Q, 1]
        log_total = largest + tf.math.log(total)  # [B, A, Q, 1]
        kept = ops.dropout(tf.cast(numerators, value.dtype), rate, seed)  # [B, A, Q, S]
        if positions_last:
            context = tf.matmul(value, kept, transpose_a=True, transpose_b=True)  # [B, A, D, Q]
            total = tf.linalg.matrix_transpose(total)  # [B, A, 1, Q]
        else:
            context = tf.matmul(kept, value)  # [B, A, Q, D]
        context = tf.cast(tf.cast(context, tf.float32) / total, value.dtype)

        def gradient(dcontext: tf.Tensor) -> tuple[tf.Tensor, ...]:
            again = ops.depend_on(query, dcontext)  # [B, A, Q, D]
            scores = ops.attention_scores(again, key, input_mask)  # [B, A, Q, S]
            probs = tf.exp(scores - log_total)  # [B, A, Q, S]
            seed_again = None if seed is None else ops.depend_on(seed, dcontext)
            return _attention_gradients(
                positions_last, query, key, value, probs, context, dcontext, rate, seed_again
            )

        return context, gradient

    context = run(query, key, value)  # [B, A, Q, D] or [B, A, D, Q]
    if not positions_last:
        return ops.join_heads(ops.swap_heads(context))  # [B, Q, A·D]
    batch, heads, size, length = ops.sizes_of(context)
    context = tf.reshape(context, (batch, heads * size, length))  # [B, A·D, Q]
    return tf.linalg.matrix_transpose(context)  # [B, Q, A·D]


def _attention_gradients(
    positions_last: bool,
    query: tf.Tensor,
    key: tf.Tensor,
    value: tf.Tensor,
    probs: tf.Tensor,
    context: tf.Tensor,
    dcontext: tf.Tensor,
    rate: float,
    seed: tf.Tensor | None,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns the gradients of `_attention_whole`: [B, A, Q, D] and twice [B, A, S, D].

    As in FlashAttention, the gradient of the softmax sums over D instead of S, because
    Σⱼ probsⱼ · dprobsⱼ = Σ context · dcontext.
    """
    dkept = tf.matmul(dcontext, value, transpose_a=positions_last, transpose_b=True)  # [B, A, Q, S]
    kept, dprobs = probs, tf.cast(dkept, tf.float32)  # [B, A, Q, S] each
    if seed is not None and rate > 0.0:
        keep = ops.keep_mask(probs, rate, seed)  # [B, A, Q, S]
        kept, dprobs = (tf.where(keep, x * (1.0 / (1.0 - rate)), 0.0) for x in (kept, dprobs))
    along = tf.cast(context, tf.float32) * tf.cast(dcontext, tf.float32)
    along = tf.reduce_sum(along, axis=2 if positions_last else 3)[..., None]  # [B, A, Q, 1]
    dscores = probs * (dprobs - along)
    dscores = tf.cast(dscores * query.shape[-1] ** -0.5, query.dtype)  # [B, A, Q, S]
    dquery = tf.matmul(dscores, key)  # [B, A, Q, D]
    dkey = tf.matmul(dscores, query, transpose_a=True)  # [B, A, S, D]
    kept = tf.cast(kept, value.dtype)
    dvalue = tf.matmul(kept, dcontext, transpose_a=True, transpose_b=positions_last)
    return dquery, dkey, dvalue  # dvalue [B, A, S, D]


register_kernel(ops.attention, XLA)(functools.partial(_attention_whole, False))
register_kernel(ops.attention, TPU)(functools.partial(_attention_whole, True))

"""Accelerated forms of the formulas in `ops.py`, for programs that XLA compiles whole.

GPUs and TPUs run such programs. There, matmuls are so fast that a step takes the time of its reads
and writes of memory, so these forms compute something again rather than store it, and avoid copies
in another layout. They are registered, and tested against their formulas, like those of `fused.py`.
`make test-tpu` bounds the bytes that the compiled training step accesses, and
`benchmarks/bench_accelerators.py` compares them with those of other implementations.

Dimensions: as in `ops.py`; C number of projections.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from albert_tf import ops
from albert_tf.acceleration import XLA
from albert_tf.fused import accelerates, always, attention_arguments, draw_normal, draw_sizes


def _project_heads_arguments(random):
    B, S, A, D = draw_sizes(random)
    x = draw_normal(random, B, S, 12)
    kernels = [draw_normal(random, 12, A * D) / 12 for _ in range(3)]
    queries = x if random.random() < 0.5 else draw_normal(random, B, 2, 12)
    return queries, x, kernels, [draw_normal(random, A * D) for _ in range(3)], A


@accelerates(ops.project_heads, always, _project_heads_arguments, XLA)
def _project_heads(
    queries: tf.Tensor,
    x: tf.Tensor,
    kernels: Sequence[tf.Tensor],
    biases: Sequence[tf.Tensor],
    heads: int,
) -> list[tf.Tensor]:
    """The positions are the last axis of the matmul's result, as TPUs store queries and keys.

    With the formula, a training step of base (8 x 512 tokens, bfloat16) accesses 4.2 GB more on a
    TPU v4, by copies from one layout to the other.
    """
    if queries is not x:
        query = _project_heads(queries, queries, kernels[:1], biases[:1], heads)
        return [*query, *_project_heads(x, x, kernels[1:], biases[1:], heads)]
    y = tf.einsum("hn,bsh->bns", tf.concat(kernels, -1), x)  # [B, C·A·D, S]
    y += tf.cast(tf.concat(biases, -1), y.dtype)[:, None]
    shape = tf.shape(x)
    count = len(kernels)
    y = tf.reshape(y, (shape[0], count, heads, y.shape[1] // (count * heads), shape[1]))
    return [tf.transpose(z, (0, 1, 3, 2)) for z in tf.unstack(y, axis=1)]  # C of [B, A, S, D]


@accelerates(ops.attention, always, attention_arguments, XLA)
def _attention(
    query: tf.Tensor,
    key: tf.Tensor,
    value: tf.Tensor,
    input_mask: tf.Tensor | None = None,
    rate: float = 0.0,
    seed: tf.Tensor | None = None,
) -> tf.Tensor:
    """Stores nothing of the size [B, A, Q, S]; the backward pass computes the scores again.

    As in FlashAttention (arXiv 2205.14135), the logarithm of the softmax's denominators is stored
    instead of the probabilities, and the gradient sums over D, not over S, because
    Σⱼ probsⱼ · dprobsⱼ = Σ context · dcontext.
    """
    is_dropping = seed is not None and rate > 0.0
    keep_scale = 1.0 / (1.0 - rate) if is_dropping else 1.0

    @tf.custom_gradient
    def run(query, key, value):
        scores = ops.attention_scores(query, key, input_mask)  # [B, A, Q, S]
        log_total = tf.reduce_logsumexp(scores, axis=-1, keepdims=True)  # [B, A, Q, 1]
        probs = tf.cast(tf.nn.softmax(scores), value.dtype)  # [B, A, Q, S]
        context = tf.matmul(ops.dropout(probs, rate, seed), value)  # [B, A, Q, D]

        def gradient(dcontext):
            scores = ops.attention_scores(ops.after(query, dcontext), key, input_mask)
            probs = tf.exp(scores - log_total)  # [B, A, Q, S]
            dkept = tf.matmul(dcontext, value, transpose_b=True)  # [B, A, Q, S]
            kept = probs * keep_scale
            dprobs = tf.cast(dkept, tf.float32) * keep_scale
            if is_dropping:
                keep = ops.keep_mask(probs, rate, seed)
                kept, dprobs = (tf.where(keep, x, 0.0) for x in (kept, dprobs))
            along = tf.cast(context, tf.float32) * tf.cast(dcontext, tf.float32)  # [B, A, Q, D]
            dscores = probs * (dprobs - tf.reduce_sum(along, axis=-1, keepdims=True))
            dscores = tf.cast(dscores * query.shape[-1] ** -0.5, query.dtype)  # [B, A, Q, S]
            dquery = tf.matmul(dscores, key)  # [B, A, Q, D]
            dkey = tf.matmul(dscores, query, transpose_a=True)  # [B, A, S, D]
            return dquery, dkey, tf.matmul(tf.cast(kept, value.dtype), dcontext, transpose_a=True)

        return context, gradient

    return ops.join_heads(ops.swap_heads(run(query, key, value)))  # [B, Q, A·D]

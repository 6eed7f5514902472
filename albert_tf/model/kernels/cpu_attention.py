"""The kernel of attention for CPUs: divides after the second matmul.

As in FlashAttention (arXiv 2205.14135), the denominators of the softmax divide the weighted sums of
the values, which are smaller than the probabilities; and the gradient sums over D, not over S,
because Σⱼ probsⱼ · dprobsⱼ = Σ context · dcontext.

Dimensions: as in `ops.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from albert_tf.model import ops
from albert_tf.model.dispatch import CPU, Gradient, register_kernel
from albert_tf.model.kernels.loops import Loop, as_float32, narrow, row_max, row_sums

MIN_SCORES_BY_ROWS = 512 * 512  # of a head: fewer scores are stored for the gradient


@Loop
def _exponentials(scores: tf.Tensor, scale: float, mask_adder: tf.Tensor) -> tf.Tensor:
    z = as_float32(scores) * scale + mask_adder  # [B, A, Q, S]
    exps = tf.exp(z - row_max(z))  # [B, A, Q, S]
    if scores.dtype == tf.float16:  # the sum of S values may exceed its range, unlike their mean
        exps /= row_sums(exps)
    return narrow(exps, scores.dtype)


@Loop
def _sums(x: tf.Tensor) -> tf.Tensor:
    return row_sums(as_float32(x))


@Loop
def _divided(x: tf.Tensor, divisor: tf.Tensor) -> tf.Tensor:
    return narrow(as_float32(x) / divisor, x.dtype)


@Loop
def _context_gradient(
    context: tf.Tensor, total: tf.Tensor, keep_scale: float, dcontext: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the gradients of the sum of the values, [B, Q, A, D], and of -total, [B, Q, A, 1]."""
    dsum = as_float32(dcontext) / total  # [B, Q, A, D]
    return narrow(dsum * keep_scale, dcontext.dtype), row_sums(dsum * as_float32(context))


@Loop
def _score_gradient(
    exps: tf.Tensor, scale: float, keep: tf.Tensor | None, dexps: tf.Tensor, dtotal: tf.Tensor
) -> tf.Tensor:
    dexps = as_float32(dexps)  # [B, A, Q, S]
    if keep is not None:
        dexps = tf.where(keep, dexps, 0.0)
    return narrow(scale * as_float32(exps) * (dexps - dtotal), exps.dtype)


def _kept(exps: tf.Tensor, keep: tf.Tensor | None) -> tf.Tensor:
    return exps if keep is None else tf.where(keep, exps, tf.zeros_like(exps))


def _map_rows(
    function: Callable[..., tuple[tf.Tensor, ...]],
    inputs: Sequence[tf.Tensor],
    dtypes: Sequence[tf.DType],
) -> tuple[tf.Tensor, ...]:
    """Returns the results of a function of batches with one row of each input, concatenated."""

    def of_row(row: tuple[tf.Tensor, ...]) -> tuple[tf.Tensor, ...]:
        return tuple(x[0] for x in function(*(x[None] for x in row)))

    results: tuple[tf.Tensor, ...]
    results = tf.map_fn(of_row, inputs, dtypes, parallel_iterations=1)
    return results


class _Attention:
    """Attention with dropout on CPUs: divides after the second matmul.

    As in FlashAttention (arXiv 2205.14135), the denominators of the softmax divide the weighted
    sums of the values, which are smaller than the probabilities; and the gradient sums over D, not
    over S, because Σⱼ probsⱼ · dprobsⱼ = Σ context · dcontext.

    Args:
        query: float [B, A, Q, D], for the sizes of the heads.
        rate: dropout rate.
        seed: as in `ops.dropout`.
    """

    def __init__(self, query: tf.Tensor, rate: float, seed: tf.Tensor | None) -> None:
        self.width = query.shape[1] * query.shape[3]
        self.scale = query.shape[3] ** -0.5
        self.rate, self.seed = rate, seed
        self.is_dropping = seed is not None and rate > 0.0
        self.keep_scale = 1.0 / (1.0 - rate) if self.is_dropping else 1.0

    def numerators(
        self, query: tf.Tensor, key: tf.Tensor, adder: tf.Tensor, row: tf.Tensor | int = 0
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Returns the numerators of the softmax, [B, A, Q, S], and dropout's mask or None.

        `row` is the place in the batch of the first row of the arguments.
        """
        scores = tf.matmul(query, key, transpose_b=True)  # [B, A, Q, S]
        exps = _exponentials.at(self.width)(scores, self.scale, adder)  # [B, A, Q, S]
        if not self.is_dropping:
            return exps, None
        first = row * tf.reduce_prod(tf.shape(scores)[1:3])
        return exps, ops.keep_mask(scores, self.rate, self.seed, first)

    def context(
        self, exps: tf.Tensor, keep: tf.Tensor | None, value: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the context, [B, Q, A, D], and the denominators, float32 [B, Q, A, 1]."""
        total = ops.swap_heads(_sums.at(self.width)(exps))  # [B, Q, A, 1]
        sums = ops.swap_heads(tf.matmul(_kept(exps, keep), value))  # [B, Q, A, D]
        return _divided.at(self.width)(sums, total / self.keep_scale), total

    def gradients(
        self,
        query: tf.Tensor,
        key: tf.Tensor,
        value: tf.Tensor,
        exps: tf.Tensor,
        keep: tf.Tensor | None,
        context: tf.Tensor,
        total: tf.Tensor,
        dcontext: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns the gradients of query, [B, A, Q, D], key and value, [B, A, S, D]."""
        gradients = _context_gradient.at(self.width)(context, total, self.keep_scale, dcontext)
        dsums, dtotal = map(ops.swap_heads, gradients)  # [B, A, Q, D], [B, A, Q, 1]
        dexps = tf.matmul(dsums, value, transpose_b=True)  # [B, A, Q, S]
        dscores = _score_gradient.at(self.width)(exps, self.scale, keep, dexps, dtotal)
        dquery = tf.matmul(dscores, key)  # [B, A, Q, D]
        dkey = tf.matmul(dscores, query, transpose_a=True)  # [B, A, S, D]
        return dquery, dkey, tf.matmul(_kept(exps, keep), dsums, transpose_a=True)

    def whole(
        self, query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, adder: tf.Tensor
    ) -> tf.Tensor:
        """Returns the context, [B, Q, A, D]; the gradient uses the stored numerators."""

        @tf.custom_gradient
        def run(query: tf.Tensor, key: tf.Tensor, value: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
            exps, keep = self.numerators(query, key, adder)  # [B, A, Q, S] each
            context, total = self.context(exps, keep, value)

            def gradient(dcontext: tf.Tensor) -> tuple[tf.Tensor, ...]:
                return self.gradients(query, key, value, exps, keep, context, total, dcontext)

            return context, gradient

        return run(query, key, value)

    def by_rows(
        self, query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, adder: tf.Tensor
    ) -> tf.Tensor:
        """Returns the context, [B, Q, A, D], computed for one row of the batch at a time.

        Tensors of the size of the scores exist for a single row only, and the gradient computes
        them again. For the base model (4 x 512 tokens, float32, two cores), a training step needs
        a quarter less memory than with `whole`, and the same CPU time (6 % more with dropout).
        """
        rows = tf.range(tf.shape(query)[0])  # [B]
        adder += tf.zeros((tf.shape(query)[0], 1, 1, 1))  # [B, 1, 1, 1] or [B, 1, 1, S]

        def forward(
            query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, adder: tf.Tensor, row: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor]:
            exps, keep = self.numerators(query, key, adder, row[0])  # [1, A, Q, S] each
            return self.context(exps, keep, value)

        def backward(
            query: tf.Tensor,
            key: tf.Tensor,
            value: tf.Tensor,
            adder: tf.Tensor,
            row: tf.Tensor,
            *results: tf.Tensor,
        ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            exps, keep = self.numerators(query, key, adder, row[0])  # [1, A, Q, S] each
            return self.gradients(query, key, value, exps, keep, *results)

        @tf.custom_gradient
        def run(query: tf.Tensor, key: tf.Tensor, value: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
            inputs = query, key, value, adder, rows
            context, total = _map_rows(forward, inputs, (value.dtype, tf.float32))

            def gradient(dcontext: tf.Tensor) -> tuple[tf.Tensor, ...]:
                results = context, total, dcontext
                return _map_rows(backward, (*inputs, *results), (value.dtype,) * 3)

            return context, gradient

        return run(query, key, value)


@register_kernel(ops.attention, CPU)
def _attention_cpu(
    query: tf.Tensor,
    key: tf.Tensor,
    value: tf.Tensor,
    input_mask: tf.Tensor | None = None,
    rate: float = 0.0,
    seed: tf.Tensor | None = None,
) -> tf.Tensor:
    adder = tf.zeros((1, 1, 1, 1)) if input_mask is None else ops.mask_adder(input_mask)
    attention = _Attention(query, rate, seed)
    scores_of_head = (query.shape[2] or 0) * (key.shape[2] or 0)  # 0 for unknown lengths
    compute = attention.by_rows if scores_of_head >= MIN_SCORES_BY_ROWS else attention.whole
    return ops.join_heads(compute(query, key, value, adder))  # [B, Q, A·D]

"""Kernels of the operations in `ops.py`, for CPUs and for programs that XLA compiles as a whole.

Each kernel for CPUs has a gradient of its own, which stores a single tensor of the size of its
input. It computes in float32 for every dtype, and XLA compiles it into one loop (`compiled`).
Matmuls stay outside XLA because they are faster without it on CPUs. `benchmarks/bench_kernels.py`
compares the speed of kernels and operations.

Dimensions: as in `ops.py`; N rows (tokens).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from albert_tf.model import ops
from albert_tf.model.config import LAYER_NORM_EPSILON
from albert_tf.model.ops import CPU, TPU, XLA, register_kernel

# XLA takes 0.1 s to compile each function and shape, which does not pay off for narrow tensors.
MIN_WIDTH = 256
_MIN_FOLDED_WIDTH = 64  # a narrower axis is reduced as it is
_MIN_MASK_WIDTH = 32  # narrower masks are not compiled
MIN_SCORES_BY_ROWS = 512 * 512  # of a head: fewer scores are stored for the gradient


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function of tensors, compiled with XLA, once for each shape."""
    return tf.function(function, jit_compile=True, autograph=False)


class Loop:
    """Decorator for a function of tensors that XLA compiles into one loop where this pays off."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.compiled = compiled(function)

    def at(self, width: int) -> Callable[..., Any]:
        """Returns the function for tensors of a width, compiled from MIN_WIDTH on."""
        return self.compiled if width >= MIN_WIDTH else self.function


# The building blocks of the loops, and sums outside them.
def _float(x: tf.Tensor) -> tf.Tensor:
    return tf.cast(x, tf.float32)


def _narrow(x: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
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


def _row_sums(x: tf.Tensor) -> tf.Tensor:
    """Returns the sums over the last axis, which is kept with size 1."""
    return tf.reduce_sum(_folded(x, tf.add), axis=-1, keepdims=True)


def _row_max(x: tf.Tensor) -> tf.Tensor:
    """Returns the maximum over the last axis of float32 `x`, which is kept with size 1.

    XLA vectorizes the maximum of integers on CPUs but not that of floats, so the bits are compared
    as integers.
    """

    def flip(bits):  # flips all bits but the sign of negative floats: integers then sort as floats
        return tf.where(bits < 0, bits ^ 0x7FFFFFFF, bits)

    bits = tf.bitcast(_folded(x, tf.maximum), tf.int32)
    return tf.bitcast(flip(tf.reduce_max(flip(bits), axis=-1, keepdims=True)), tf.float32)


def _column_sums(x: tf.Tensor) -> tf.Tensor:
    """Returns the sums over all axes but the last, float32 [H], as a matmul with ones.

    TensorFlow takes up to four times as long for these sums on CPUs.
    """
    rows = ops.as_rows(x)  # [N, H]
    if rows.dtype == tf.float16:  # a sum may be too large for float16
        return tf.reduce_sum(_float(rows), axis=0)
    sums = tf.matmul(tf.ones((1, tf.shape(rows)[0]), rows.dtype), rows)  # [1, H]
    return _float(tf.squeeze(sums, 0))


def _is_wide(x, *_):
    return x.shape[-1] is None or x.shape[-1] >= _MIN_MASK_WIDTH


@register_kernel(ops.keep_mask, CPU, when=_is_wide)
@compiled
def _keep_mask(x: tf.Tensor, rate: float, seed: tf.Tensor, first_row: Any = 0) -> tf.Tensor:
    """The dozen operations of the hash in one pass over memory."""
    return ops.keep_mask.function(x, rate, seed, first_row)


@Loop
def _gelu(x, bias):
    z = _float(x) if bias is None else _float(x) + bias  # [N, I]
    cubic = ops.GELU_SCALE * (z + ops.GELU_CUBE * z * z * z)
    return _narrow(0.5 * z * (1.0 + tf.tanh(cubic)), x.dtype)


@Loop
def _gelu_gradient(x, bias, dy):
    """Returns the gradient of x, [N, I], and gelu(x + bias), [N, I], which costs little here."""
    z = _float(x) if bias is None else _float(x) + bias  # [N, I]
    square = z * z
    tanh = tf.tanh(ops.GELU_SCALE * z * (1.0 + ops.GELU_CUBE * square))
    slope = ops.GELU_SCALE * (1.0 + 3.0 * ops.GELU_CUBE * square)
    dz = _float(dy) * 0.5 * (1.0 + tanh + z * (1.0 - tanh * tanh) * slope)  # [N, I]
    return _narrow(dz, x.dtype), _narrow(0.5 * z * (1.0 + tanh), x.dtype)


# The operation's gradient is an AddN of three terms, whose order depends on the threads.
@register_kernel(ops.gelu, CPU)
@tf.custom_gradient
def _gelu_kernel(x: tf.Tensor) -> tf.Tensor:
    width = x.shape[-1]
    return _gelu.at(width)(x, None), lambda dy: _gelu_gradient.at(width)(x, None, dy)[0]


def _is_gelu(x, kernel, bias, activation, *_):
    return activation == "gelu"


@register_kernel(ops.feed_forward, CPU, when=_is_gelu)
def _feed_forward(
    x: tf.Tensor,
    kernel: tf.Tensor,
    bias: tf.Tensor,
    activation: str,
    output_kernel: tf.Tensor,
    output_bias: tf.Tensor,
) -> tf.Tensor:
    """The output of the activation is not stored for the gradient, but computed again.

    With the operation, a training step of the base model (8 x 128 tokens, bfloat16, two
    cores) takes 1.26 times the CPU time and 228 MB more memory.
    """
    width = bias.shape[0]

    @tf.custom_gradient
    def run(rows, bias, output_kernel, output_bias):
        def gradient(dy):
            dactive = tf.matmul(dy, output_kernel, transpose_b=True)  # [N, I]
            drows, active = _gelu_gradient.at(width)(rows, bias, dactive)  # [N, I] each
            doutput_kernel = tf.matmul(active, dy, transpose_a=True)  # [I, H]
            return drows, _column_sums(drows), doutput_kernel, _column_sums(dy)

        y = tf.matmul(_gelu.at(width)(rows, bias), output_kernel)  # [N, H]
        return tf.nn.bias_add(y, tf.cast(output_bias, y.dtype)), gradient

    rows = tf.matmul(ops.as_rows(x), kernel)  # [N, I]
    return ops.with_axes_of(x, run(rows, bias, output_kernel, output_bias))  # [..., H]


@Loop
def _norm(x, keep, keep_scale, residual, gamma, beta):
    total = _float(x)  # [N, H]
    if keep is not None:
        total = tf.where(keep, total * keep_scale, 0.0)
    if residual is not None:
        total += _float(residual)
    width = x.shape[-1]
    total -= _row_sums(total) / width
    variance = _row_sums(tf.square(total)) / width  # [N, 1]
    rsqrt = tf.math.rsqrt(variance + LAYER_NORM_EPSILON)  # [N, 1]
    normal = total * rsqrt  # [N, H]
    return _narrow(normal * gamma + beta, x.dtype), _narrow(normal, x.dtype), rsqrt


@Loop
def _norm_gradient(normal, rsqrt, gamma, keep, keep_scale, dy):
    dtype = dy.dtype
    width = dy.shape[-1]
    normal = _float(normal)
    dy = _float(dy)
    dn = dy * gamma  # [N, H]
    mean = _row_sums(dn) / width  # [N, 1]
    along = _row_sums(dn * normal) / width  # [N, 1]
    dtotal = rsqrt * (dn - mean - normal * along)  # [N, H]
    dresidual = _narrow(dtotal, dtype)
    dx = dresidual if keep is None else _narrow(tf.where(keep, dtotal * keep_scale, 0.0), dtype)
    return dx, dresidual, _narrow(dy * normal, dtype)


@register_kernel(ops.add_and_norm, CPU)
def _add_and_norm(
    x: tf.Tensor,
    residual: tf.Tensor,
    gamma: tf.Tensor,
    beta: tf.Tensor,
    rate: float = 0.0,
    seed: tf.Tensor | None = None,
) -> tf.Tensor:
    """One pass over memory for dropout, sum and LayerNorm.

    With a kernel of LayerNorm only, a training step of the base model (8 x 128 tokens, bfloat16,
    two cores) takes 4 % more CPU time.
    """
    shape = tf.shape(x)
    scale = 1.0 / (1.0 - rate)
    x = ops.as_rows(x)  # [N, H]
    residual = ops.as_rows(residual)  # [N, H]
    keep = None if seed is None or not rate else ops.keep_mask(x, rate, seed)  # [N, H]

    @tf.custom_gradient
    def run(x, residual, gamma, beta):
        y, normal, rsqrt = _norm.at(x.shape[-1])(x, keep, scale, residual, gamma, beta)

        def gradient(dy):
            dx, dresidual, scaled = _norm_gradient.at(x.shape[-1])(
                normal, rsqrt, gamma, keep, scale, dy
            )
            return dx, dresidual, _column_sums(scaled), _column_sums(dy)

        return y, gradient

    return tf.reshape(run(x, residual, gamma, beta), shape)


@register_kernel(ops.layer_norm, CPU)
def _layer_norm(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> tf.Tensor:
    @tf.custom_gradient
    def run(rows, gamma, beta):
        y, normal, rsqrt = _norm.at(x.shape[-1])(rows, None, 1.0, None, gamma, beta)

        def gradient(dy):
            dx, _, scaled = _norm_gradient.at(x.shape[-1])(normal, rsqrt, gamma, None, 1.0, dy)
            return dx, _column_sums(scaled), _column_sums(dy)

        return y, gradient

    return tf.reshape(run(ops.as_rows(x), gamma, beta), tf.shape(x))


@Loop
def _exponentials(scores, scale, mask_adder):
    z = _float(scores) * scale + mask_adder  # [B, A, Q, S]
    exps = tf.exp(z - _row_max(z))  # [B, A, Q, S]
    if scores.dtype == tf.float16:  # the sum of S values may exceed its range, unlike their mean
        exps /= _row_sums(exps)
    return _narrow(exps, scores.dtype)


@Loop
def _sums(x):
    return _row_sums(_float(x))


@Loop
def _divided(x, divisor):
    return _narrow(_float(x) / divisor, x.dtype)


@Loop
def _context_gradient(context, total, keep_scale, dcontext):
    """Returns the gradients of the sum of the values, [B, Q, A, D], and of -total, [B, Q, A, 1]."""
    dsum = _float(dcontext) / total  # [B, Q, A, D]
    return _narrow(dsum * keep_scale, dcontext.dtype), _row_sums(dsum * _float(context))


@Loop
def _score_gradient(exps, scale, keep, dexps, dtotal):
    dexps = _float(dexps)  # [B, A, Q, S]
    if keep is not None:
        dexps = tf.where(keep, dexps, 0.0)
    return _narrow(scale * _float(exps) * (dexps - dtotal), exps.dtype)


def _kept(exps, keep):
    return exps if keep is None else tf.where(keep, exps, tf.zeros_like(exps))


def _map_rows(function, inputs, dtypes):
    """Returns the results of a function of batches with one row of each input, concatenated."""

    def of_row(row):
        return tuple(x[0] for x in function(*(x[None] for x in row)))

    return tf.map_fn(of_row, inputs, dtypes, parallel_iterations=1)


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

    def numerators(self, query, key, adder, row=0):
        """Returns the numerators of the softmax, [B, A, Q, S], and dropout's mask or None.

        `row` is the place in the batch of the first row of the arguments.
        """
        scores = tf.matmul(query, key, transpose_b=True)  # [B, A, Q, S]
        exps = _exponentials.at(self.width)(scores, self.scale, adder)  # [B, A, Q, S]
        if not self.is_dropping:
            return exps, None
        first = row * tf.reduce_prod(tf.shape(scores)[1:3])
        return exps, ops.keep_mask(scores, self.rate, self.seed, first)

    def context(self, exps, keep, value):
        """Returns the context, [B, Q, A, D], and the denominators, float32 [B, Q, A, 1]."""
        total = ops.swap_heads(_sums.at(self.width)(exps))  # [B, Q, A, 1]
        sums = ops.swap_heads(tf.matmul(_kept(exps, keep), value))  # [B, Q, A, D]
        return _divided.at(self.width)(sums, total / self.keep_scale), total

    def gradients(self, query, key, value, exps, keep, context, total, dcontext):
        """Returns the gradients of query, [B, A, Q, D], key and value, [B, A, S, D]."""
        gradients = _context_gradient.at(self.width)(context, total, self.keep_scale, dcontext)
        dsums, dtotal = map(ops.swap_heads, gradients)  # [B, A, Q, D], [B, A, Q, 1]
        dexps = tf.matmul(dsums, value, transpose_b=True)  # [B, A, Q, S]
        dscores = _score_gradient.at(self.width)(exps, self.scale, keep, dexps, dtotal)
        dquery = tf.matmul(dscores, key)  # [B, A, Q, D]
        dkey = tf.matmul(dscores, query, transpose_a=True)  # [B, A, S, D]
        return dquery, dkey, tf.matmul(_kept(exps, keep), dsums, transpose_a=True)

    def whole(self, query, key, value, adder):
        """Returns the context, [B, Q, A, D]; the gradient uses the stored numerators."""

        @tf.custom_gradient
        def run(query, key, value):
            exps, keep = self.numerators(query, key, adder)  # [B, A, Q, S] each
            context, total = self.context(exps, keep, value)

            def gradient(dcontext):
                return self.gradients(query, key, value, exps, keep, context, total, dcontext)

            return context, gradient

        return run(query, key, value)

    def by_rows(self, query, key, value, adder):
        """Returns the context, [B, Q, A, D], computed for one row of the batch at a time.

        Tensors of the size of the scores exist for a single row only, and the gradient computes
        them again. For the base model (4 x 512 tokens, float32, two cores), a training step needs
        a quarter less memory than with `whole`, and the same CPU time (6 % more with dropout).
        """
        rows = tf.range(tf.shape(query)[0])  # [B]
        adder += tf.zeros((tf.shape(query)[0], 1, 1, 1))  # [B, 1, 1, 1] or [B, 1, 1, S]

        def forward(query, key, value, adder, row):
            exps, keep = self.numerators(query, key, adder, row[0])  # [1, A, Q, S] each
            return self.context(exps, keep, value)

        def backward(query, key, value, adder, row, *results):
            exps, keep = self.numerators(query, key, adder, row[0])  # [1, A, Q, S] each
            return self.gradients(query, key, value, exps, keep, *results)

        @tf.custom_gradient
        def run(query, key, value):
            inputs = query, key, value, adder, rows
            context, total = _map_rows(forward, inputs, (value.dtype, tf.float32))

            def gradient(dcontext):
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


@Loop
def _cross_entropy(logits, labels):
    """Returns losses [N], the logarithms of the softmax's denominators [N], and hits [N]."""
    width = logits.shape[-1]
    classes = tf.range(width)[None, :]  # [1, V]
    top = _row_max(logits)  # [N, 1]
    total = tf.reduce_sum(tf.exp(logits - top), axis=-1)  # [N]
    log_total = tf.squeeze(top, -1) + tf.math.log(total)  # [N]
    is_label = tf.equal(classes, labels[:, None])  # [N, V]
    chosen = tf.reduce_sum(tf.where(is_label, logits, 0.0), axis=-1)  # [N]
    first = tf.reduce_min(tf.where(tf.equal(logits, top), classes, width), axis=-1)  # [N]
    return log_total - chosen, log_total, tf.cast(tf.equal(first, labels), tf.float32)


@Loop
def _cross_entropy_gradient(logits, labels, log_total, dy):
    is_label = tf.equal(tf.range(logits.shape[-1])[None, :], labels[:, None])  # [N, V]
    probs = tf.exp(logits - log_total[:, None])  # [N, V]
    return (probs - tf.cast(is_label, tf.float32)) * dy[:, None]


@register_kernel(ops.cross_entropy, CPU)
def _cross_entropy_kernel(logits: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """One loop each for the losses and for the gradient.

    With the operation, a training step of a model of 6 layers of 256 units (128 x 96 tokens, 8,000
    words, bfloat16, two cores) takes 1.13 times the CPU time.
    """
    logits, width, shape = _float(logits), logits.shape[-1], tf.shape(labels)
    flat_labels = tf.reshape(tf.cast(labels, tf.int32), (-1,))  # [N]

    @tf.custom_gradient
    def run(logits):
        losses, log_total, hits = _cross_entropy.at(width)(logits, flat_labels)

        def gradient(dlosses, _):
            return _cross_entropy_gradient.at(width)(logits, flat_labels, log_total, dlosses)

        return (losses, hits), gradient

    losses, hits = run(tf.reshape(logits, (-1, width)))
    return tf.reshape(losses, shape), tf.reshape(hits, shape)


# Kernels of the operations in `ops.py` for programs that XLA compiles whole.
#
# GPUs and TPUs run such programs. There, matmuls are so fast that reads and writes of memory take
# much of a step, so these kernels compute something again rather than store it, and avoid copies in
# another layout: TPUs keep positions in the last axis, GPUs in the last but one.
# `make test-tpu` bounds the bytes that the compiled training step accesses, and
# `benchmarks/bench_accelerators.py` compares them with those of other implementations.
#
# Dimensions: as in `ops.py`.


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
        shape = tf.shape(y)
        y = tf.reshape(y, (shape[0], heads, y.shape[1] // heads, shape[2]))  # [B, A, D, S]
        projected.append(tf.transpose(y, (0, 1, 3, 2)))  # [B, A, S, D]
    return projected


@register_kernel(ops.gelu, XLA)
@tf.custom_gradient
def _gelu_xla(x: tf.Tensor) -> tf.Tensor:
    """Computes in float32, and stores nothing but its input."""

    def gradient(dy):
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
    def run(query, key, value):
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

        def gradient(dcontext):
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
    shape = tf.shape(context)
    context = tf.reshape(context, (shape[0], context.shape[1] * context.shape[2], shape[3]))
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


@register_kernel(ops.attention, XLA)
def _attention_xla(*arguments: Any) -> tf.Tensor:
    return _attention_whole(False, *arguments)


@register_kernel(ops.attention, TPU)
def _attention_tpu(*arguments: Any) -> tf.Tensor:
    return _attention_whole(True, *arguments)

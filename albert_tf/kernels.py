"""Fused element-wise operations, attention helpers and dropout for the layers of `modeling.py`.

Each fused operation has two implementations, which the tests compare with each other. The plain one
uses standard TensorFlow operations; `plain` selects it. The optimized one has a custom gradient
that stores a single tensor of the size of its input; it computes in float32 whatever the input's
dtype, and XLA compiles it into one loop (`fused`). Matmuls stay outside XLA because they are faster
without it on CPUs. `benchmarks/bench_kernels.py` compares the speed of both.

Dimensions: N tokens (rows), H last axis, B batch size, S sequence length, Q queries, A attention
heads, D head size.
"""

from __future__ import annotations

import collections
import contextlib
import contextvars
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tf_keras.src.utils import control_flow_util

from albert_tf.config import LAYER_NORM_EPSILON

MASKED_SCORE = -10_000.0  # added to the scores of padding: the softmax is 0, even in bfloat16
# XLA takes 0.1 s to compile each function and shape, which does not pay off for small models.
MIN_COMPILED_WIDTH = 256
ACTIVATIONS = {
    "gelu": functools.partial(tf.nn.gelu, approximate=True),
    "relu": tf.nn.relu,
    "tanh": tf.math.tanh,
    "linear": tf.identity,
}
_GELU_SCALE, _GELU_CUBE = math.sqrt(2 / math.pi), 0.044715
_MIN_FOLDED_WIDTH = 64  # a narrower axis is reduced as it is
_is_plain = contextvars.ContextVar("_is_plain", default=False)
_is_fused = contextvars.ContextVar("_is_fused", default=False)


def is_compiled_whole() -> bool:
    """Returns whether XLA compiles all of the function that is being traced, as on GPUs and TPUs.

    Functions inside it are not called but traced into it. XLA needs the values of some inputs when
    it compiles, such as the permutation of a transpose. If the gradient of a function receives one
    from the function itself, XLA takes all inputs of that function for such values, and compiles
    the training step again whenever a weight changes.
    """
    return control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())


@contextlib.contextmanager
def plain() -> Iterator[None]:
    """Context manager that traces standard TensorFlow operations only, for exported models."""
    token = _is_plain.set(True)
    try:
        yield
    finally:
        _is_plain.reset(token)


def matmul(x: tf.Tensor, kernel: tf.Tensor, transpose_b: bool = False) -> tf.Tensor:
    """Returns x · kernel over the last axis: [..., n] times [n, m] → [..., m].

    With `transpose_b`, the kernel is given as [m, n].

    The leading axes are flattened into a single 2-D matmul: with a 3-D input, `tf.matmul` would
    broadcast the kernel over the batch and sum its gradient over the copies.
    """
    if x.shape.rank == 2:
        return tf.matmul(x, kernel, transpose_b=transpose_b)
    rows = tf.matmul(tf.reshape(x, (-1, x.shape[-1])), kernel, transpose_b=transpose_b)  # [N, m]
    return _with_axes_of(x, rows)


def _with_axes_of(x: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Gives rows, [N, m], the leading axes of `x`, [..., n]: returns [..., m]."""
    return tf.reshape(rows, tf.concat((tf.shape(x)[:-1], rows.shape[1:]), axis=0))


def fused(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator that compiles `function(width, *tensors)` with XLA inside graphs if it pays off.

    Args:
        function: takes the width of the tensors and the tensors. It is compiled, once for each
            shape, if the width is at least MIN_COMPILED_WIDTH.
    """

    def trace(width: int, *tensors: Any) -> Any:
        token = _is_fused.set(True)
        try:
            return function(width, *tensors)
        finally:
            _is_fused.reset(token)

    compiled = tf.function(trace, jit_compile=True, autograph=False)

    def call(width: int, *tensors: Any) -> Any:
        is_wide = width >= MIN_COMPILED_WIDTH
        is_compiled = is_wide and tf.inside_function() and not is_compiled_whole()
        return (compiled if is_compiled else function)(width, *tensors)

    return call


def _float(x: tf.Tensor) -> tf.Tensor:
    return tf.cast(x, tf.float32)


def _narrow(x: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Casts float32 to a dtype; in compiled loops, rounds to bfloat16 by operations on the bits.

    With XLA's own cast, a loop with a tanh or an exponential takes up to twice as long on CPUs.
    """
    if dtype != tf.bfloat16 or not _is_fused.get():
        return tf.cast(x, dtype)
    bits = tf.bitcast(x, tf.uint32)
    is_odd = tf.bitwise.right_shift(bits, 16) & 1
    rounded = tf.bitwise.right_shift(bits + 0x7FFF + is_odd, 16)  # ties to even
    return tf.bitcast(tf.cast(rounded, tf.uint16), tf.bfloat16)


def _folded(x: tf.Tensor, operation: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]) -> tf.Tensor:
    """Combines the halves of the last axis, repeatedly, to prepare a reduction over it.

    XLA does not vectorize reductions of floats over the last axis on CPUs, but does so here.
    """
    while _is_fused.get() and x.shape[-1] and x.shape[-1] % (2 * _MIN_FOLDED_WIDTH) == 0:
        x = operation(*tf.split(x, 2, axis=-1))
    return x


def _row_sums(x: tf.Tensor) -> tf.Tensor:
    """Returns the sums over the last axis, which is kept with size 1."""
    return tf.reduce_sum(_folded(x, tf.add), axis=-1, keepdims=True)


def _column_sums(x: tf.Tensor) -> tf.Tensor:
    """Returns the sums over all axes but the last, float32 [H], as a matmul with ones.

    TensorFlow and XLA take up to four times as long for these sums on CPUs.
    """
    rows = tf.reshape(x, (-1, x.shape[-1]))  # [N, H]
    if is_compiled_whole() or rows.dtype == tf.float16:  # a sum may be too large for float16
        return tf.reduce_sum(_float(rows), axis=0)
    sums = tf.matmul(tf.ones((1, tf.shape(rows)[0]), rows.dtype), rows)  # [1, H]
    return _float(tf.squeeze(sums, 0))


def add_bias(x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """Returns x + bias, float [..., H] in the dtype of `x`; bias: float32 [H]."""
    if _is_plain.get():
        return x + tf.cast(bias, x.dtype)

    @tf.custom_gradient
    def run(x, bias):
        return x + tf.cast(bias, x.dtype), lambda dy: (dy, _column_sums(dy))

    return run(x, bias)


@fused
def _gelu(width, x, bias):
    z = _float(x) + bias  # [N, H]
    return _narrow(0.5 * z * (1.0 + tf.tanh(_GELU_SCALE * (z + _GELU_CUBE * z * z * z))), x.dtype)


@fused
def _gelu_gradient(width, x, bias, dy):
    """Returns the gradient of x, [N, H], and gelu(x + bias), [N, H], which costs little here."""
    z = _float(x) + bias  # [N, H]
    square = z * z
    tanh = tf.tanh(_GELU_SCALE * z * (1.0 + _GELU_CUBE * square))
    slope = _GELU_SCALE * (1.0 + 3.0 * _GELU_CUBE * square)
    dz = _float(dy) * 0.5 * (1.0 + tanh + z * (1.0 - tanh * tanh) * slope)  # [N, H]
    return _narrow(dz, x.dtype), _narrow(0.5 * z * (1.0 + tanh), x.dtype)


@fused
def _relu(width, x, bias):
    return _narrow(tf.nn.relu(_float(x) + bias), x.dtype)  # [N, H]


@fused
def _relu_gradient(width, x, bias, dy):
    """Returns the gradient of x, [N, H], and relu(x + bias), [N, H]."""
    z = _float(x) + bias  # [N, H]
    return tf.where(z > 0, dy, tf.zeros_like(dy)), _narrow(tf.nn.relu(z), x.dtype)


_FUSED_ACTIVATIONS = {"gelu": (_gelu, _gelu_gradient), "relu": (_relu, _relu_gradient)}


def activate(x: tf.Tensor, bias: tf.Tensor, name: str) -> tf.Tensor:
    """Returns activation(x + bias), float [..., H] in the dtype of `x`.

    With the plain implementation of "gelu", a training step of the base model (8 x 128 tokens,
    bfloat16, two cores) takes 1.26 times the CPU time and 228 MB more memory.

    Args:
        x: float [..., H].
        bias: float32 [H].
        name: "gelu" (the tanh approximation, as in Google's code), "relu", "tanh" or "linear".
    """
    if name not in _FUSED_ACTIVATIONS or _is_plain.get():
        return ACTIVATIONS[name](x + tf.cast(bias, x.dtype))
    compute, differentiate = _FUSED_ACTIVATIONS[name]
    shape, width = tf.shape(x), x.shape[-1]

    @tf.custom_gradient
    def run(x, bias):
        def gradient(dy):
            dx, _ = differentiate(width, x, bias, dy)  # [N, H]
            return dx, _column_sums(dx)

        return compute(width, x, bias), gradient

    return tf.reshape(run(tf.reshape(x, (-1, width)), bias), shape)


def feed_forward(
    x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor, name: str, output_kernel: tf.Tensor
) -> tf.Tensor:
    """Returns activation(x · kernel + bias) · output_kernel, float [..., K] in the dtype of `x`.

    The output of "gelu" and "relu" is not stored for the gradient of `output_kernel`, but computed
    again. In the plain implementation, TensorFlow fuses bias and activation with the first matmul.

    Args:
        x: float [..., H].
        kernel: [H, I].
        bias: float32 [I].
        name: as in `activate`.
        output_kernel: [I, K].
    """
    rows = tf.matmul(tf.reshape(x, (-1, x.shape[-1])), kernel)  # [N, I]
    if name not in _FUSED_ACTIVATIONS or _is_plain.get():
        rows = ACTIVATIONS[name](tf.nn.bias_add(rows, tf.cast(bias, rows.dtype)))  # [N, I]
        return _with_axes_of(x, tf.matmul(rows, output_kernel))
    compute, differentiate = _FUSED_ACTIVATIONS[name]
    width = rows.shape[-1]

    @tf.custom_gradient
    def run(rows, bias, output_kernel):
        def gradient(dy):
            dactive = tf.matmul(dy, output_kernel, transpose_b=True)  # [N, I]
            drows, active = differentiate(width, rows, bias, dactive)  # [N, I] each
            return drows, _column_sums(drows), tf.matmul(active, dy, transpose_a=True)

        return tf.matmul(compute(width, rows, bias), output_kernel), gradient

    return _with_axes_of(x, run(rows, bias, output_kernel))


@fused
def _norm(width, x, bias, keep, keep_scale, residual, gamma, beta):
    total = _float(x)  # [N, H]
    if bias is not None:
        total += bias
    if keep is not None:
        total = tf.where(keep, total * keep_scale, 0.0)
    if residual is not None:
        total += _float(residual)
    total -= _row_sums(total) / width
    variance = _row_sums(tf.square(total)) / width  # [N, 1]
    rsqrt = tf.math.rsqrt(variance + LAYER_NORM_EPSILON)  # [N, 1]
    normal = total * rsqrt  # [N, H]
    return _narrow(normal * gamma + beta, x.dtype), _narrow(normal, x.dtype), rsqrt


@fused
def _norm_gradient(width, normal, rsqrt, gamma, keep, keep_scale, dy):
    dtype, normal, dy = dy.dtype, _float(normal), _float(dy)
    dn = dy * gamma  # [N, H]
    mean = _row_sums(dn) / width  # [N, 1]
    along = _row_sums(dn * normal) / width  # [N, 1]
    dtotal = rsqrt * (dn - mean - normal * along)  # [N, H]
    dresidual = _narrow(dtotal, dtype)
    dx = dresidual if keep is None else _narrow(tf.where(keep, dtotal * keep_scale, 0.0), dtype)
    return dx, dresidual, _narrow(dy * normal, dtype)


def add_and_norm(
    x: tf.Tensor,
    bias: tf.Tensor,
    residual: tf.Tensor,
    norm: tuple[tf.Tensor, tf.Tensor] | None,
    rate: float = 0.0,
    seed: tf.Tensor | None = None,
) -> tf.Tensor:
    """Returns LayerNorm(dropout(x + bias) + residual), float [..., H] in the dtype of `x`.

    Fusing all of it into one pass over memory saves time: with only LayerNorm fused, a training
    step of the base model (8 x 128 tokens, bfloat16, two cores) takes 4 % more CPU time.

    Args:
        x: float [..., H].
        bias: float32 [H].
        residual: float [..., H].
        norm: beta and gamma, float32 [H] each; None omits LayerNorm.
        rate: dropout rate.
        seed: as in `dropout`.
    """
    if norm is None or _is_plain.get():
        total = residual + dropout(x + tf.cast(bias, x.dtype), rate, seed)
        return total if norm is None else layer_norm(total, *norm)
    shape, width, scale = tf.shape(x), x.shape[-1], 1.0 / (1.0 - rate)
    x, residual = tf.reshape(x, (-1, width)), tf.reshape(residual, (-1, width))  # [N, H] each
    keep = None if seed is None or not rate else keep_mask(tf.shape(x), rate, seed)

    @tf.custom_gradient
    def run(x, bias, residual, beta, gamma):
        y, normal, rsqrt = _norm(width, x, bias, keep, scale, residual, gamma, beta)

        def gradient(dy):
            dx, dresidual, scaled = _norm_gradient(
                width, normal, rsqrt, gamma, keep, scale, dy
            )  # [N, H] each
            return dx, _column_sums(dx), dresidual, _column_sums(dy), _column_sums(scaled)

        return y, gradient

    return tf.reshape(run(x, bias, residual, *norm), shape)


def layer_norm(x: tf.Tensor, beta: tf.Tensor, gamma: tf.Tensor) -> tf.Tensor:
    """Returns `x`, float [..., H], normalized over the last axis; beta, gamma: float32 [H]."""
    width, shape = x.shape[-1], tf.shape(x)
    if _is_plain.get():
        mean, variance = tf.nn.moments(_float(x), axes=[-1], keepdims=True)  # [..., 1] each
        scale = tf.math.rsqrt(variance + LAYER_NORM_EPSILON) * gamma  # [..., H]
        return tf.cast(_float(x) * scale + (beta - mean * scale), x.dtype)

    @tf.custom_gradient
    def run(rows, beta, gamma):
        y, normal, rsqrt = _norm(width, rows, None, None, 1.0, None, gamma, beta)

        def gradient(dy):
            dx, _, scaled = _norm_gradient(width, normal, rsqrt, gamma, None, 1.0, dy)
            return dx, _column_sums(dy), _column_sums(scaled)

        return y, gradient

    return tf.reshape(run(tf.reshape(x, (-1, width)), beta, gamma), shape)


def _row_max(x: tf.Tensor) -> tf.Tensor:
    """Returns the maximum over the last axis of float32 `x`, which is kept with size 1.

    XLA vectorizes the maximum of integers on CPUs but not that of floats, so the compiled version
    compares the bits as integers.
    """
    if not _is_fused.get():
        return tf.reduce_max(x, axis=-1, keepdims=True)

    def flip(bits):  # flips all bits but the sign of negative floats: integers then sort as floats
        return tf.where(bits < 0, bits ^ 0x7FFFFFFF, bits)

    bits = tf.bitcast(_folded(x, tf.maximum), tf.int32)
    return tf.bitcast(flip(tf.reduce_max(flip(bits), axis=-1, keepdims=True)), tf.float32)


@fused
def _exponentials(width, scores, scale, mask_adder):
    z = _float(scores) * scale + mask_adder  # [B, A, Q, S]
    exps = tf.exp(z - _row_max(z))  # [B, A, Q, S]
    if scores.dtype == tf.float16:  # the sum of S values may exceed its range, unlike their mean
        exps /= _row_sums(exps)
    return _narrow(exps, scores.dtype)


@fused
def _sums(width, x):
    return _row_sums(_float(x))


@fused
def _divided(width, x, divisor):
    return _narrow(_float(x) / divisor, x.dtype)


@fused
def _context_gradient(width, context, total, keep_scale, dcontext):
    """Returns the gradients of the sum of the values, [B, Q, A, D], and of -total, [B, Q, A, 1]."""
    dsum = _float(dcontext) / total  # [B, Q, A, D]
    return _narrow(dsum * keep_scale, dcontext.dtype), _row_sums(dsum * _float(context))


@fused
def _score_gradient(width, exps, scale, keep, dexps, dtotal):
    dexps = _float(dexps)  # [B, A, Q, S]
    if keep is not None:
        dexps = tf.where(keep, dexps, 0.0)
    return _narrow(scale * _float(exps) * (dexps - dtotal), exps.dtype)


def attend(
    query: tf.Tensor,
    key: tf.Tensor,
    value: tf.Tensor,
    input_mask: tf.Tensor | None,
    rate: float = 0.0,
    seed: tf.Tensor | None = None,
) -> tf.Tensor:
    """Returns dropout(softmax(query · keyᵀ / √D)) · value without padding, float [B, Q, A·D].

    As in FlashAttention (arXiv 2205.14135), the denominators of the softmax divide the weighted
    sums of the values, which are smaller than the probabilities; and the gradient sums over D, not
    over S, because Σⱼ probsⱼ · dprobsⱼ = Σ context · dcontext.

    Args:
        query: float [B, A, Q, D].
        key: float [B, A, S, D].
        value: float [B, A, S, D].
        input_mask: attention mask, [B, S], 1 for tokens and 0 for padding; None if there is no
            padding. It gets no gradient.
        rate: dropout rate.
        seed: as in `dropout`.
    """
    heads, head_size = query.shape[1], query.shape[3]
    width, scale = heads * head_size, head_size**-0.5
    is_dropping = seed is not None and rate > 0.0
    keep_scale = 1.0 / (1.0 - rate) if is_dropping else 1.0
    mask_adder = tf.zeros((1, 1, 1, 1))
    if input_mask is not None:
        mask = tf.cast(input_mask[:, None, None, :], tf.float32)  # [B, 1, 1, S]
        mask_adder = (1.0 - mask) * MASKED_SCORE  # [B, 1, 1, S]

    def run(query, key, value):
        scores = tf.matmul(query, key, transpose_b=True)  # [B, A, Q, S]
        if _is_plain.get():
            probs = tf.nn.softmax(_float(scores) * scale + mask_adder)  # [B, A, Q, S]
            probs = dropout(tf.cast(probs, scores.dtype), rate, seed)  # [B, A, Q, S]
            return _swap_heads(tf.matmul(probs, value))
        keep = keep_mask(tf.shape(scores), rate, seed) if is_dropping else None
        exps = _exponentials(width, scores, scale, mask_adder)  # [B, A, Q, S]
        kept = exps if keep is None else tf.where(keep, exps, tf.zeros_like(exps))
        total = _swap_heads(_sums(width, exps))  # [B, Q, A, 1]
        sums = _swap_heads(tf.matmul(kept, value))  # [B, Q, A, D]
        # The TFLite converter of TensorFlow 2.20 drops the transpose from keep_scale / total.
        context = _divided(width, sums, total / keep_scale)  # [B, Q, A, D]

        def gradient(dcontext):
            gradients = _context_gradient(width, context, total, keep_scale, dcontext)
            dsums, dtotal = map(_swap_heads, gradients)  # [B, A, Q, D], [B, A, Q, 1]
            dexps = tf.matmul(dsums, value, transpose_b=True)  # [B, A, Q, S]
            dscores = _score_gradient(width, exps, scale, keep, dexps, dtotal)  # [B, A, Q, S]
            dquery = tf.matmul(dscores, key)  # [B, A, Q, D]
            dkey = tf.matmul(dscores, query, transpose_a=True)  # [B, A, S, D]
            return dquery, dkey, tf.matmul(kept, dsums, transpose_a=True)

        return context, gradient

    context = (run if _is_plain.get() else tf.custom_gradient(run))(query, key, value)
    shape = tf.shape(context)
    return tf.reshape(context, (shape[0], shape[1], width))


def _swap_heads(x: tf.Tensor) -> tf.Tensor:
    """Swaps the attention heads and the queries: [B, A, Q, D] ↔ [B, Q, A, D]."""
    return tf.transpose(x, (0, 2, 1, 3))


@fused
def _cross_entropy(width, logits, labels):
    """Returns losses [N], the logarithms of the softmax's denominators [N], and hits [N]."""
    classes = tf.range(width)[None, :]  # [1, V]
    top = _row_max(logits)  # [N, 1]
    total = tf.reduce_sum(tf.exp(logits - top), axis=-1)  # [N]
    log_total = tf.squeeze(top, -1) + tf.math.log(total)  # [N]
    is_label = tf.equal(classes, labels[:, None])  # [N, V]
    chosen = tf.reduce_sum(tf.where(is_label, logits, 0.0), axis=-1)  # [N]
    first = tf.reduce_min(tf.where(tf.equal(logits, top), classes, width), axis=-1)  # [N]
    return log_total - chosen, log_total, tf.cast(tf.equal(first, labels), tf.float32)


@fused
def _cross_entropy_gradient(width, logits, labels, log_total, dy):
    is_label = tf.equal(tf.range(width)[None, :], labels[:, None])  # [N, V]
    probs = tf.exp(logits - log_total[:, None])  # [N, V]
    return (probs - tf.cast(is_label, tf.float32)) * dy[:, None]


def cross_entropy(logits: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns cross-entropies, and 1.0 where the largest logit is correct, float32 [...] each.

    With TensorFlow's operations, a training step of a model of 6 layers of 256 units (128 x 96
    tokens, 8,000 words, bfloat16, two cores) takes 1.13 times the CPU time.

    Args:
        logits: float [..., V], cast to float32.
        labels: int32 or int64 [...], in [0, V). Of equal logits, the first counts as the largest.
    """
    logits = _float(logits)
    if _is_plain.get():
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        hits = tf.argmax(logits, -1, output_type=labels.dtype) == labels
        return losses, tf.cast(hits, tf.float32)
    width, shape = logits.shape[-1], tf.shape(labels)
    flat_labels = tf.reshape(tf.cast(labels, tf.int32), (-1,))  # [N]

    @tf.custom_gradient
    def run(logits):
        losses, log_total, hits = _cross_entropy(width, logits, flat_labels)

        def gradient(dlosses, _):
            return _cross_entropy_gradient(width, logits, flat_labels, log_total, dlosses)

        return (losses, hits), gradient

    losses, hits = run(tf.reshape(logits, (-1, width)))
    return tf.reshape(losses, shape), tf.reshape(hits, shape)


def _split_heads(x: tf.Tensor, bias: tf.Tensor, heads: int, parts: int) -> list[tf.Tensor]:
    """Adds the bias to `x`, [B, S, parts·A·D], and splits it into `parts` tensors [B, A, S, D]."""
    shape, head_size = tf.shape(x), x.shape[-1] // (parts * heads)
    x = tf.reshape(
        add_bias(x, bias), (shape[0], shape[1], parts, heads, head_size)
    )  # [B, S, parts, A, D]
    return tf.unstack(tf.transpose(x, (2, 0, 3, 1, 4)))  # parts times [B, A, S, D]


def project_heads(
    x: tf.Tensor,
    queries: tf.Tensor | None,
    kernel: tf.Tensor,
    bias: tf.Tensor,
    heads: int,
) -> list[tf.Tensor]:
    """Returns the attention's queries, float [B, A, Q, D], keys and values, float [B, A, S, D].

    Args:
        x: float [B, S, H].
        queries: float [B, Q, H]; None for `x` itself, in which case one matmul computes all three.
        kernel: [H, 3·A·D], the concatenated kernels of queries, keys and values.
        bias: float32 [3·A·D].
        heads: A.
    """
    if queries is None:
        return _split_heads(matmul(x, kernel), bias, heads, 3)
    size = bias.shape[0] // 3
    query = matmul(queries, kernel[:, :size])  # [B, Q, A·D]
    key_value = matmul(x, kernel[:, size:])  # [B, S, 2·A·D]
    query = _split_heads(query, bias[:size], heads, 1)
    return [*query, *_split_heads(key_value, bias[size:], heads, 2)]


def take(x: tf.Tensor, positions: tf.Tensor | None) -> tf.Tensor | None:
    """Returns `x`, float [B, S, H], at `positions`, int32 [B, P]; None without positions."""
    return None if positions is None else tf.gather(x, positions, batch_dims=1)


def split_seed(seed: tf.Tensor, count: int) -> tf.Tensor:
    """Splits a seed, int32 [2], into `count` seeds for `dropout`, int32 [count, 2].

    The seeds are never negative because XLA and TensorFlow generate different numbers from negative
    ones.
    """
    return tf.random.split(seed & 0x7FFFFFFF, count) & 0x7FFFFFFF


def keep_mask(shape: Any, rate: float, seed: tf.Tensor) -> tf.Tensor:
    """Returns the mask of the elements that dropout keeps, bool `shape`, for a seed, int32 [2].

    Generating random numbers dominates the cost of dropout, so each 32-bit number decides about two
    elements, with 16 bits each. The dropped fraction equals `rate` to within 1 / 131072.
    """
    count, limit = tf.reduce_prod(shape), round(rate * 2**16)
    bits = tf.random.stateless_uniform(((count + 1) // 2,), seed, None, None, tf.int32)
    low, high = (bits & 0xFFFF) >= limit, bits >= (limit << 16) - 2**31
    return tf.reshape(tf.concat((low, high), axis=0)[:count], shape)


def dropout(x: tf.Tensor, rate: float, seed: tf.Tensor | None) -> tf.Tensor:
    """Applies dropout to `x`; the same seed, int32 [2], drops the same elements.

    Returns `x` unchanged if the seed is None or the rate is 0.
    """
    if seed is None or rate == 0.0:
        return x
    keep = keep_mask(tf.shape(x), rate, seed)
    return tf.where(keep, x * tf.cast(1.0 / (1.0 - rate), x.dtype), tf.zeros_like(x))


def dropout_seeds(training: bool | None, seed: Any, count: int) -> list[tf.Tensor | None]:
    """Returns `count` seeds for `dropout`, int32 [2] each, or as many None outside training.

    Args:
        training: whether to apply dropout.
        seed: int32 [2], which is split; or a list of `count` seeds, which is returned; or None, to
            draw a seed at random.
        count: number of dropout operations.
    """
    if not training:
        return [None] * count
    if isinstance(seed, (list, tuple)) and len(seed) == count:
        return list(seed)
    if seed is None:
        seed = tf.random.uniform((2,), maxval=2**31 - 1, dtype=tf.int32)  # [2]
    return [seed] if count == 1 else tf.unstack(split_seed(seed, count), count)


_shared: contextvars.ContextVar[Mapping[int, tf.Tensor] | None]
_shared = contextvars.ContextVar("_shared", default=None)


def value(variable: tf.Variable) -> tf.Tensor:
    """Returns a weight in the compute dtype; within `share`, the tensor that all calls share."""
    found = (_shared.get() or {}).get(id(variable))
    return tf.convert_to_tensor(variable) if found is None else found


def share(layers: Sequence[Any], is_recomputed: bool = False) -> Callable[..., tf.Tensor]:
    """Returns a function that applies shared layers repeatedly without repeating the overhead.

    Calling one block twelve times would read and cast its weights twelve times, add up twelve
    float32 gradients for each weight, and trace the block twelve times. With `share`,

    * each weight is read and cast once. Layers look up the result with `value`, and the gradients
      of the calls are added up in the compute dtype, each as soon as it is computed;
    * each layer is traced once for all calls with the same signature.

    Args:
        layers: Keras layers called as `layer(x, *others)`, each as often as it will be called.
            They must have no state besides their weights, and use no randomness besides the seeds
            passed to them.
        is_recomputed: whether to use gradient checkpointing: store only the inputs of each call,
            and recompute the call in the backward pass. The result does not change.

    Returns:
        A function of a layer, `x` and the other arguments, differentiable with respect to `x` and
        the weights.
    """
    num_calls = collections.Counter(map(id, layers))
    calls = {}
    for layer in {id(layer): layer for layer in layers}.values():
        calls[id(layer)] = _shared_call(layer, num_calls[id(layer)], is_recomputed)
    return lambda layer, x, *others: calls[id(layer)](x, *others)


def _shared_call(layer, num_calls, is_recomputed):
    variables = list(layer.weights)
    weights = [tf.convert_to_tensor(variable) for variable in variables]

    def compute(x, weights, *others):
        values = {id(variable): tensor for variable, tensor in zip(variables, weights, strict=True)}
        token = _shared.set(values)
        try:
            return layer(x, *others)
        finally:
            _shared.reset(token)

    if tf.inside_function() and not _is_plain.get() and not is_compiled_whole():
        compute = tf.function(compute, autograph=False)
    if is_recomputed:
        compute = _recomputed(compute)
    rest = iter(_copies(weights, num_calls))
    return lambda x, *others: compute(x, next(rest), *others)


def _copies(weights, count):
    """Yields the weights `count` times or more, with one addition of gradients per time.

    TensorFlow would keep the gradients of all calls until it adds them up at the end. For the
    xxlarge model (2 x 128 tokens, bfloat16), that needs 3 GB more memory.
    """
    for _ in range(count - 1):
        # Vectors take little memory, and each addition takes time to trace.
        pairs = [_fork(x) if x.shape.rank > 1 else (x, x) for x in weights]
        first, weights = zip(*pairs, strict=True)
        yield list(first)
    while True:
        yield list(weights)


@fused
def _sum(width, x, y):
    return _narrow(_float(x) + _float(y), x.dtype)


@tf.custom_gradient
def _fork(x):
    """Returns the tensor twice; the gradient is the sum of both gradients."""
    return (tf.identity(x), tf.identity(x)), lambda dx, dy: _sum(x.shape[-1], dx, dy)


# Used instead of `tf.recompute_grad`, which makes all inputs including the weights depend on `dy`:
# that needs the same memory and 3 % more CPU time.
def _recomputed(function):
    def call(x, weights, *others):
        @tf.custom_gradient
        def run(x, *flat):
            def compute(x):
                return function(x, tf.nest.pack_sequence_as(weights, flat), *others)

            def gradient(dy):
                # The input depends on `dy` so that TensorFlow can neither schedule the
                # recomputation early nor merge it with the forward pass.
                first = tf.reshape(dy, (-1,))[0]
                zero = tf.where(tf.equal(first, first), tf.zeros_like(first), first)
                again = x + tf.cast(zero, x.dtype)
                with tf.GradientTape() as tape:
                    tape.watch((again, *flat))
                    y = compute(again)
                return tape.gradient(y, (again, *flat), dy, unconnected_gradients="zero")

            return compute(x), gradient

        return run(x, *tf.nest.flatten(weights))

    return call

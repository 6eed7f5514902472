"""What lies between the matrix products of a layer, in few passes over memory.

Each function has a gradient of its own, which keeps one tensor of the size of its input, and
computes in float32 whatever comes in. XLA makes one loop of each (`fused`). It is not given the
products: on processors those are faster without it.

Letters: N rows, one a token; H width; B batch, S sequence, Q queries, A heads, D head size.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

LAYER_NORM_EPSILON = 1e-12  # Google's; Keras and PyTorch default to larger ones
MIN_COMPILED_WIDTH = 256  # XLA takes 0.1 s a function and shape: small models don't win that back
ACTIVATIONS = {
    "gelu": functools.partial(tf.nn.gelu, approximate=True),
    "relu": tf.nn.relu,
    "tanh": tf.math.tanh,
    "linear": tf.identity,
}
_GELU_SCALE, _GELU_CUBE = math.sqrt(2 / math.pi), 0.044715
_is_plain = contextvars.ContextVar("_is_plain", default=False)


@contextlib.contextmanager
def plain() -> Iterator[None]:
    """Uses TensorFlow's common operations alone in what is traced inside, for others to load."""
    token = _is_plain.set(True)
    try:
        yield
    finally:
        _is_plain.reset(token)


def fused(function: Callable[..., Any]) -> Callable[..., Any]:
    """Has XLA compile `function(width, *tensors)` inside of graphs, where it pays.

    Args:
        function: of the width H of the model and of tensors; from MIN_COMPILED_WIDTH on, it is
            compiled, once for each shape.
    """
    compiled = tf.function(function, jit_compile=True, autograph=False)

    def call(width: int, *tensors: Any) -> Any:
        is_compiled = width >= MIN_COMPILED_WIDTH and tf.inside_function()
        return (compiled if is_compiled else function)(width, *tensors)

    return call


def _float(x: tf.Tensor) -> tf.Tensor:
    return tf.cast(x, tf.float32)


@fused
def _gelu(width, x, bias):
    z = _float(x) + bias  # [N, H]
    return tf.cast(0.5 * z * (1.0 + tf.tanh(_GELU_SCALE * (z + _GELU_CUBE * z * z * z))), x.dtype)


@fused
def _gelu_gradient(width, x, bias, dy):
    z = _float(x) + bias  # [N, H]
    square = z * z
    tanh = tf.tanh(_GELU_SCALE * z * (1.0 + _GELU_CUBE * square))
    slope = _GELU_SCALE * (1.0 + 3.0 * _GELU_CUBE * square)
    dz = _float(dy) * 0.5 * (1.0 + tanh + z * (1.0 - tanh * tanh) * slope)  # [N, H]
    return tf.cast(dz, x.dtype), tf.reduce_sum(dz, axis=0)


@tf.custom_gradient
def _bias_gelu(x, bias):
    width = x.shape[-1]
    return _gelu(width, x, bias), lambda dy: _gelu_gradient(width, x, bias, dy)


def activate(x: tf.Tensor, bias: tf.Tensor, name: str) -> tf.Tensor:
    """An activation of x + bias.

    Args:
        x: float [..., H].
        bias: float32 [H].
        name: "gelu" (the tanh form, as Google's), "relu", "tanh" or "linear".
    """
    if name != "gelu" or _is_plain.get():
        return ACTIVATIONS[name](x + tf.cast(bias, x.dtype))
    return tf.reshape(_bias_gelu(tf.reshape(x, (-1, x.shape[-1])), bias), tf.shape(x))


@fused
def _norm(width, x, bias, keep, keep_scale, residual, gamma, beta):
    total = _float(x)  # [N, H]
    if bias is not None:
        total += bias
    if keep is not None:
        total = tf.where(keep, total * keep_scale, 0.0)
    if residual is not None:
        total += _float(residual)
    total -= tf.reduce_mean(total, axis=-1, keepdims=True)
    variance = tf.reduce_mean(tf.square(total), axis=-1, keepdims=True)  # [N, 1]
    rsqrt = tf.math.rsqrt(variance + LAYER_NORM_EPSILON)  # [N, 1]
    normal = total * rsqrt  # [N, H]
    return tf.cast(normal * gamma + beta, x.dtype), tf.cast(normal, x.dtype), rsqrt


@fused
def _norm_gradient(width, normal, rsqrt, gamma, keep, keep_scale, dy):
    dtype, normal, dy = dy.dtype, _float(normal), _float(dy)
    dn = dy * gamma  # [N, H]
    mean = tf.reduce_mean(dn, axis=-1, keepdims=True)  # [N, 1]
    along = tf.reduce_mean(dn * normal, axis=-1, keepdims=True)  # [N, 1]
    dtotal = rsqrt * (dn - mean - normal * along)  # [N, H]
    dx = dtotal if keep is None else tf.where(keep, dtotal * keep_scale, 0.0)
    sums = [tf.reduce_sum(d, axis=0) for d in (dx, dy * normal, dy)]  # [H] each
    dresidual = tf.cast(dtotal, dtype)
    return (dresidual if keep is None else tf.cast(dx, dtype)), dresidual, *sums


def add_and_norm(
    x: tf.Tensor,
    bias: tf.Tensor,
    residual: tf.Tensor,
    norm: tuple[tf.Tensor, tf.Tensor] | None,
    rate: float = 0.0,
    seeds: tf.Tensor | None = None,
    index: int = 0,
) -> tf.Tensor:
    """LayerNorm(dropout(x + bias) + residual), float [N, H] of the type of `x`.

    Args:
        x: float [N, H].
        bias: float32 [H].
        residual: float [N, H].
        norm: beta and gamma, float32 [H] each; None for the sum itself.
        rate: of the dropout.
        seeds: as in `dropout`.
        index: as in `dropout`.
    """
    if norm is None or _is_plain.get():
        total = residual + dropout(x + tf.cast(bias, x.dtype), rate, seeds, index)
        return total if norm is None else layer_norm(total, *norm)
    keep = None if seeds is None or not rate else keep_mask(tf.shape(x), rate, seeds[index])
    width, scale = x.shape[-1], 1.0 / (1.0 - rate)

    @tf.custom_gradient
    def run(x, bias, residual, beta, gamma):
        y, normal, rsqrt = _norm(width, x, bias, keep, scale, residual, gamma, beta)

        def gradient(dy):
            dx, dresidual, dbias, dgamma, dbeta = _norm_gradient(
                width, normal, rsqrt, gamma, keep, scale, dy
            )
            return dx, dbias, dresidual, dbeta, dgamma

        return y, gradient

    return run(x, bias, residual, *norm)


def layer_norm(x: tf.Tensor, beta: tf.Tensor, gamma: tf.Tensor) -> tf.Tensor:
    """LayerNorm of `x`, float [..., H], over its last axis; `beta` and `gamma` float32 [H]."""
    width, shape = x.shape[-1], tf.shape(x)
    if _is_plain.get():
        mean, variance = tf.nn.moments(_float(x), axes=[-1], keepdims=True)  # [..., 1] each
        scale = tf.math.rsqrt(variance + LAYER_NORM_EPSILON) * gamma  # [..., H]
        return tf.cast(_float(x) * scale + (beta - mean * scale), x.dtype)

    @tf.custom_gradient
    def run(rows, beta, gamma):
        y, normal, rsqrt = _norm(width, rows, None, None, 1.0, None, gamma, beta)

        def gradient(dy):
            dx, _, _, dgamma, dbeta = _norm_gradient(width, normal, rsqrt, gamma, None, 1.0, dy)
            return dx, dbeta, dgamma

        return y, gradient

    return tf.reshape(run(tf.reshape(x, (-1, width)), beta, gamma), shape)


def _row_max(x):
    """The largest of each row of float32, by way of integers, for which XLA has vectors."""
    flip = 0x7FFFFFFF  # the bits of a negative number but its sign: then integers order as floats
    bits = tf.bitcast(x, tf.int32)
    ordered = bits ^ (tf.bitwise.right_shift(bits, 31) & flip)
    top = tf.reduce_max(ordered, axis=-1, keepdims=True)
    return tf.bitcast(top ^ (tf.bitwise.right_shift(top, 31) & flip), tf.float32)


@fused
def _softmax(width, scores, scale, mask_adder):
    scores_dtype, z = scores.dtype, _float(scores) * scale + mask_adder  # [B, A, Q, S]
    e = tf.exp(z - _row_max(z))
    return tf.cast(e * (1.0 / tf.reduce_sum(e, axis=-1, keepdims=True)), scores_dtype)


@fused
def _softmax_gradient(width, probs, scale, dy):
    product = _float(probs) * _float(dy)  # [B, A, Q, S]
    total = tf.reduce_sum(product, axis=-1, keepdims=True)
    return tf.cast(scale * (product - _float(probs) * total), dy.dtype)


def masked_softmax(scores: tf.Tensor, mask_adder: tf.Tensor, head_size: int) -> tf.Tensor:
    """softmax(scores / √D + mask_adder): [B, A, Q, S] of the type of `scores`.

    Args:
        scores: float [B, A, Q, S], products of queries and keys.
        mask_adder: float32 [B, 1, 1, S]; no gradient.
        head_size: D.
    """
    width, scale = scores.shape[1] * head_size, head_size**-0.5
    if _is_plain.get():
        return tf.cast(tf.nn.softmax(_float(scores) * scale + mask_adder), scores.dtype)

    @tf.custom_gradient
    def run(scores):
        probs = _softmax(width, scores, scale, mask_adder)
        return probs, lambda dy: _softmax_gradient(width, probs, scale, dy)

    return run(scores)


@fused
def _split(width, x, bias, batch, heads, parts):
    x = tf.cast(_float(x) + bias, x.dtype)
    x = tf.reshape(x, (batch, -1, parts, heads, x.shape[-1] // (parts * heads)))
    return tf.unstack(tf.transpose(x, (2, 0, 3, 1, 4)))


def _split_heads(x, bias, batch, heads, parts):
    size = x.shape[-1]
    if _is_plain.get():
        x = tf.reshape(
            x + tf.cast(bias, x.dtype), (batch, -1, parts, heads, size // parts // heads)
        )
        return tf.unstack(tf.transpose(x, (2, 0, 3, 1, 4)))

    @tf.custom_gradient
    def run(x, bias):
        def gradient(*parts_dy):
            # Not XLA: it is slow at this transposition, and at sums over rows.
            dx = tf.transpose(tf.stack(parts_dy), (1, 3, 0, 2, 4))  # [B, S, parts, A, D]
            dx = tf.reshape(dx, (-1, size))  # [B·S, parts·A·D]
            ones = tf.ones((1, tf.shape(dx)[0]), dx.dtype)
            return dx, _float(tf.matmul(ones, dx))[0]

        return _split(size // parts, x, bias, batch, heads, parts), gradient

    return run(x, bias)


def project_heads(
    queries: tf.Tensor,
    x: tf.Tensor,
    kernel: tf.Tensor,
    bias: tf.Tensor,
    batch: int | tf.Tensor,
    heads: int,
) -> list[tf.Tensor]:
    """Queries, float [B, A, Q, D], and keys and values, [B, A, S, D] each, of attention.

    Args:
        queries: float [B·Q, H]; where this is `x`, one product makes all three.
        x: float [B·S, H].
        kernel: [H, 3·A·D], of queries, keys and values side by side.
        bias: float32 [3·A·D].
        batch: B.
        heads: A.
    """
    if queries is x:
        return _split_heads(tf.matmul(x, kernel), bias, batch, heads, 3)
    size = bias.shape[0] // 3
    query = tf.matmul(queries, kernel[:, :size])  # [B·Q, A·D]
    key_value = tf.matmul(x, kernel[:, size:])  # [B·S, 2·A·D]
    query = _split_heads(query, bias[:size], batch, heads, 1)
    return [*query, *_split_heads(key_value, bias[size:], batch, heads, 2)]


def take(x: tf.Tensor, positions: tf.Tensor | None) -> tf.Tensor:
    """Rows of `x`, float [B·S, H], at `positions`, int32 [B, P]: [B·P, H]. None: `x` itself."""
    if positions is None:
        return x
    width = x.shape[-1]
    rows = tf.reshape(x, (tf.shape(positions)[0], -1, width))  # [B, S, H]
    return tf.reshape(tf.gather(rows, positions, batch_dims=1), (-1, width))


def split_seed(seed: tf.Tensor, count: int) -> tf.Tensor:
    """`count` seeds, int32 [count, 2], of one, int32 [2], for `dropout`.

    None is negative: of such seeds XLA makes other numbers than TensorFlow does.
    """
    return tf.random.split(seed & 0x7FFFFFFF, count) & 0x7FFFFFFF


def keep_mask(shape: Any, rate: float, seed: tf.Tensor) -> tf.Tensor:
    """Which elements dropout keeps, bool of `shape`: a function of `seed`, int32 [2].

    Drawing is what dropout costs, so every number that is drawn decides on two elements, with 16
    bits each: the share that is dropped is `rate` to 1 in 131072.
    """
    count, limit = tf.reduce_prod(shape), round(rate * 2**16)
    bits = tf.random.stateless_uniform(((count + 1) // 2,), seed, None, None, tf.int32)
    low, high = (bits & 0xFFFF) >= limit, bits >= (limit << 16) - 2**31
    return tf.reshape(tf.concat((low, high), axis=0)[:count], shape)


def dropout(x: tf.Tensor, rate: float, seeds: tf.Tensor | None, index: int = 0) -> tf.Tensor:
    """Dropout with the seed `seeds[index]`, int32 [2]: the same seed drops the same elements."""
    if seeds is None or rate == 0.0:
        return x
    keep = keep_mask(tf.shape(x), rate, seeds[index])
    return tf.where(keep, x * tf.cast(1.0 / (1.0 - rate), x.dtype), tf.zeros_like(x))


def traced_once(function: Callable[..., Any], is_recomputed: bool = False) -> Callable[..., Any]:
    """`function(x, weights, *others)` for many calls of the same shapes, as in shared layers.

    Args:
        function: has no state, and draws no random numbers but from seeds. Differentiated by `x`
            and `weights`, not by `others`.
        is_recomputed: keep no more than what comes in, and compute it again for the gradient. The
            numbers are the same.
    """
    if tf.inside_function() and not _is_plain.get():
        function = tf.function(function, autograph=False)
    return _recomputed(function) if is_recomputed else function


def _recomputed(function):
    def call(x, weights, *others):
        @tf.custom_gradient
        def run(x, *flat):
            def compute(x):
                return function(x, tf.nest.pack_sequence_as(weights, flat), *others)

            def gradient(dy):
                # The input is made to depend on `dy`: else nothing would keep the second
                # computation from running at once, or from being taken for the first.
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

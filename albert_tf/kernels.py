"""What lies between the matmuls of a layer, in few passes over memory.

Each function has a plain form, TensorFlow's common operations, which `plain` switches to; the tests
hold the two against each other. The other form has a gradient of its own, which keeps one tensor of
the size of its input, and computes in float32 whatever comes in. XLA makes one loop of each
(`fused`). It is not given the matmuls: on processors those are faster without it.
`benchmarks/bench_kernels.py` measures both forms.

Letters: N rows, one a token; H width; B batch, S sequence, Q queries, A heads, D head size.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from albert_tf.config import LAYER_NORM_EPSILON

MASKED_SCORE = -10_000.0  # added to the scores of padding: its softmax is 0, even in bfloat16
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


def matmul(x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    """Matmul x · kernel over the last axis, [..., n] with [n, m] to [..., m].

    As one product of matrices: `tf.matmul` would copy the kernel for each row of a batch, and sum
    its gradient over these.
    """
    if x.shape.rank == 2:
        return tf.matmul(x, kernel)
    rows = tf.matmul(tf.reshape(x, (-1, x.shape[-1])), kernel)  # [N, m]
    return tf.reshape(rows, tf.concat((tf.shape(x)[:-1], (kernel.shape[-1],)), axis=0))


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

    With its plain form for "gelu", a training step of base (8 x 128 tokens, bfloat16, two cores)
    takes 1.26 times the processor time, and 228 MB more.

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
    seed: tf.Tensor | None = None,
) -> tf.Tensor:
    """LayerNorm(dropout(x + bias) + residual), float [..., H] of the type of `x`.

    In one pass. A step of base (8 x 128 tokens, bfloat16, two cores) takes 4 % more processor time
    with a LayerNorm alone in one pass, and bias and residual added before it.

    Args:
        x: float [..., H].
        bias: float32 [H].
        residual: float [..., H].
        norm: beta and gamma, float32 [H] each; None for the sum itself.
        rate: of the dropout.
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
            dx, dresidual, dbias, dgamma, dbeta = _norm_gradient(
                width, normal, rsqrt, gamma, keep, scale, dy
            )
            return dx, dbias, dresidual, dbeta, dgamma

        return y, gradient

    return tf.reshape(run(x, bias, residual, *norm), shape)


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


def _row_max(width, x):
    """The largest of each row of float32; in XLA by way of integers, for which it has vectors."""
    if width < MIN_COMPILED_WIDTH:
        return tf.reduce_max(x, axis=-1, keepdims=True)

    def flip(bits):  # those of negative numbers, but their sign: then integers order as floats
        return tf.where(bits < 0, bits ^ 0x7FFFFFFF, bits)

    top = tf.reduce_max(flip(tf.bitcast(x, tf.int32)), axis=-1, keepdims=True)
    return tf.bitcast(flip(top), tf.float32)


@fused
def _softmax(width, scores, scale, mask_adder):
    scores_dtype, z = scores.dtype, _float(scores) * scale + mask_adder  # [B, A, Q, S]
    e = tf.exp(z - _row_max(width, z))
    return tf.cast(e * (1.0 / tf.reduce_sum(e, axis=-1, keepdims=True)), scores_dtype)


@fused
def _softmax_gradient(width, probs, scale, dy):
    product = _float(probs) * _float(dy)  # [B, A, Q, S]
    total = tf.reduce_sum(product, axis=-1, keepdims=True)
    return tf.cast(scale * (product - _float(probs) * total), dy.dtype)


def masked_softmax(scores: tf.Tensor, input_mask: tf.Tensor | None, head_size: int) -> tf.Tensor:
    """softmax(scores / √D) over the tokens that are not padding: [B, A, Q, S], type of `scores`.

    With its plain form, a training step of base takes as long, and 1.0 GB more for 4 x 512 tokens:
    TensorFlow keeps the scores in float32 for the gradient.

    Args:
        scores: float [B, A, Q, S], matmul of queries and keys.
        input_mask: [B, S], 1 = token, 0 = padding; None for tokens only. No gradient.
        head_size: D.
    """
    width, scale = scores.shape[1] * head_size, head_size**-0.5
    mask_adder = tf.zeros((1, 1, 1, 1))
    if input_mask is not None:
        mask = tf.cast(input_mask[:, None, None, :], tf.float32)  # [B, 1, 1, S]
        mask_adder = (1.0 - mask) * MASKED_SCORE  # [B, 1, 1, S]
    if _is_plain.get():
        return tf.cast(tf.nn.softmax(_float(scores) * scale + mask_adder), scores.dtype)

    @tf.custom_gradient
    def run(scores):
        probs = _softmax(width, scores, scale, mask_adder)
        return probs, lambda dy: _softmax_gradient(width, probs, scale, dy)

    return run(scores)


def _split_heads(x: tf.Tensor, bias: tf.Tensor, heads: int, parts: int) -> list[tf.Tensor]:
    """Adds the bias to [B, S, parts·A·D] and takes it apart into [B, A, S, D] each."""
    shape, head_size = tf.shape(x), x.shape[-1] // (parts * heads)
    x = tf.reshape(
        x + tf.cast(bias, x.dtype), (shape[0], shape[1], parts, heads, head_size)
    )  # [B, S, parts, A, D]
    return tf.unstack(tf.transpose(x, (2, 0, 3, 1, 4)))  # parts times [B, A, S, D]


def project_heads(
    x: tf.Tensor,
    queries: tf.Tensor | None,
    kernel: tf.Tensor,
    bias: tf.Tensor,
    heads: int,
) -> list[tf.Tensor]:
    """Queries, float [B, A, Q, D], and keys and values, [B, A, S, D] each, of attention.

    Args:
        x: float [B, S, H].
        queries: float [B, Q, H]; None for `x`: then one matmul makes all three.
        kernel: [H, 3·A·D], of queries, keys and values side by side.
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


def merge_heads(x: tf.Tensor) -> tf.Tensor:
    """Heads side by side: [B, A, Q, D] → [B, Q, A·D]."""
    x, shape = tf.transpose(x, (0, 2, 1, 3)), tf.shape(x)  # [B, Q, A, D]
    return tf.reshape(x, (shape[0], shape[2], x.shape[2] * x.shape[3]))


def take(x: tf.Tensor, positions: tf.Tensor | None) -> tf.Tensor | None:
    """`x`, float [B, S, H], at `positions`, int32 [B, P]: [B, P, H]. None without positions."""
    return None if positions is None else tf.gather(x, positions, batch_dims=1)


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


def dropout(x: tf.Tensor, rate: float, seed: tf.Tensor | None) -> tf.Tensor:
    """Dropout by a seed, int32 [2]: the same seed drops the same elements. None: `x` itself."""
    if seed is None or rate == 0.0:
        return x
    keep = keep_mask(tf.shape(x), rate, seed)
    return tf.where(keep, x * tf.cast(1.0 / (1.0 - rate), x.dtype), tf.zeros_like(x))


def dropout_seeds(training: bool | None, seed: Any, count: int) -> list[tf.Tensor | None]:
    """`count` seeds for `dropout`, int32 [2] each; None each where dropout is off.

    Args:
        training: whether dropout is on.
        seed: int32 [2], to be split; or the `count` seeds themselves; drawn when None.
        count: how many dropouts there are.
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
    """A weight in the type of the computation; in `share`, the one value for all calls."""
    found = (_shared.get() or {}).get(id(variable))
    return tf.convert_to_tensor(variable) if found is None else found


def share(layers: Sequence[Any], is_recomputed: bool = False) -> Callable[..., tf.Tensor]:
    """Applies layers again and again at the cost of one: for the blocks that ALBERT shares.

    Applied as they are, twelve layers with the same weights would read and cast them twelve times,
    add up twelve float32 gradients of each, and be traced twelve times. Here

    * each weight is read and cast once: layers find the result by `value`, and gradients are added
      up in the smaller type;
    * each layer is traced once for all calls of the same form.

    Args:
        layers: Keras layers that are called as `layer(x, *others)`, have no state but weights, and
            draw no random numbers but from seeds. A layer may occur more than once.
        is_recomputed: keep nothing of a call but what goes in, and compute it again for the
            gradient. The numbers are the same.

    Returns:
        a function of a layer, `x` and the other arguments, differentiable by `x` and the weights.
    """
    calls = {}
    for layer in {id(layer): layer for layer in layers}.values():
        calls[id(layer)] = _shared_call(layer, is_recomputed)
    return lambda layer, x, *others: calls[id(layer)](x, *others)


def _shared_call(layer, is_recomputed):
    variables = list(layer.weights)
    weights = [tf.convert_to_tensor(variable) for variable in variables]

    def compute(x, weights, *others):
        values = {id(variable): tensor for variable, tensor in zip(variables, weights, strict=True)}
        token = _shared.set(values)
        try:
            return layer(x, *others)
        finally:
            _shared.reset(token)

    if tf.inside_function() and not _is_plain.get():
        compute = tf.function(compute, autograph=False)
    if is_recomputed:
        compute = _recomputed(compute)
    return lambda x, *others: compute(x, weights, *others)


# Not `tf.recompute_grad`, which makes all that comes in depend on `dy`, the weights too: that takes
# the same memory and 3 % more processor time.
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

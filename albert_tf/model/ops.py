"""The operations of ALBERT in plain TensorFlow.

`modeling.py` composes the model from these functions. In eager execution and in exported models
they run as they stand here. Inside a `tf.function`, kernels (`kernels/`) may run in the place of
those decorated with `op` (`dispatch.py`).

Dimensions: B batch size, S sequence length, Q queries, H hidden size, A attention heads, D = H/A
head size, I intermediate size, V classes; `...` any leading axes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import tensorflow as tf
import tf_keras

from albert_tf.model import config
from albert_tf.model.dispatch import op

MASKED_SCORE = -10_000.0  # added to the scores of padding: the softmax is 0, even in bfloat16
GELU_SCALE = 0.7978845608028654  # √(2/π)
GELU_CUBE = 0.044715  # the factor of x³
SEED_ALGORITHM = "philox"  # the default of CPUs and GPUs; that of TPUs makes other numbers
HASH_STEP = 0x9E3779B9  # 2³² divided by the golden ratio
HASH_FACTORS = (0x7FEB352D, 0x846CA68B)
HASH_SHIFTS = (16, 15)

Seed: TypeAlias = tf.Tensor | None  # of a dropout operation, int32 [2]; None: nothing is dropped
Seeds: TypeAlias = Seed | Sequence[Seed]  # of several operations; one seed is split


def matmul(x: tf.Tensor, kernel: tf.Tensor, transpose_b: bool = False) -> tf.Tensor:
    """Returns x · kernel over the last axis: [..., n] times [n, m] → [..., m].

    With `transpose_b`, the kernel is given as [m, n].

    The leading axes are flattened into a single 2-D matmul: with a 3-D input, `tf.matmul` would
    broadcast the kernel over the batch and sum its gradient over the copies.
    """
    return with_axes_of(x, tf.matmul(as_rows(x), kernel, transpose_b=transpose_b))  # [..., m]


def as_rows(x: tf.Tensor) -> tf.Tensor:
    """Returns `x`, [..., n], as a matrix [N, n]."""
    return x if x.shape.rank == 2 else tf.reshape(x, (-1, x.shape[-1]))  # [N, n]


def with_axes_of(x: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Gives rows, [N, m], the leading axes of `x`, [..., n]: returns [..., m]."""
    if x.shape.rank == 2:
        return rows
    return tf.reshape(rows, (*sizes_of(x)[:-1], rows.shape[1]))  # [..., m]


def sizes_of(x: tf.Tensor) -> list[int | tf.Tensor]:
    """Returns the size of each axis of a tensor or an array, an int if tracing knows it."""
    known: list[int | tf.Tensor | None] = tf.TensorShape(x.shape).as_list()
    traced = tf.unstack(tf.shape(x)) if None in known else known
    return [there if size is None else size for size, there in zip(known, traced, strict=True)]


@op
def add_bias(x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """Returns x + bias, float [..., H] in the dtype of `x`; bias: float32 [H]."""
    return tf.nn.bias_add(x, tf.cast(bias, x.dtype))  # [..., H]


def dense(x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """Returns x · kernel + bias, [..., m], for x [..., n], kernel [n, m], bias float32 [m]."""
    return with_axes_of(x, add_bias(tf.matmul(as_rows(x), kernel), bias))  # [..., m]


@op
def gelu(x: tf.Tensor) -> tf.Tensor:
    """Returns x · Φ(x) with Φ, the normal distribution function, approximated by tanh.

    Source: Hendrycks and Gimpel, arXiv 1606.08415, section 2; `gelu` in Google's `modeling.py`.
    """
    return 0.5 * x * (1.0 + tf.math.tanh(GELU_SCALE * (x + GELU_CUBE * tf.pow(x, 3))))


# Keras's functions of these names, except for gelu.
ACTIVATIONS: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    name: gelu if name == "gelu" else tf_keras.activations.get(name) for name in config.ACTIVATIONS
}


def register_activation(name: str, function: Callable[[tf.Tensor], tf.Tensor]) -> None:
    """Adds an activation to those that `hidden_act` of a config accepts.

    Args:
        name: what configs call it.
        function: of each entry of a tensor, in the tensor's dtype.

    Raises:
        ValueError: another activation has this name.
    """
    if ACTIVATIONS.setdefault(name, function) is not function:
        raise ValueError(f"hidden_act={name!r}: the name is taken; expected another one")
    config.ACTIVATIONS.setdefault(name, ())


@op
def feed_forward(
    x: tf.Tensor,
    kernel: tf.Tensor,
    bias: tf.Tensor,
    activation: str,
    output_kernel: tf.Tensor,
    output_bias: tf.Tensor,
) -> tf.Tensor:
    """Returns activation(x · kernel + bias) · output_kernel + output_bias, float [..., H].

    Source: Vaswani et al., arXiv 1706.03762, section 3.3; the activation is ALBERT's.

    Args:
        x: float [..., H].
        kernel: float [H, I].
        bias: float32 [I].
        activation: a key of `ACTIVATIONS`.
        output_kernel: float [I, H].
        output_bias: float32 [H].
    """
    rows = ACTIVATIONS[activation](dense(as_rows(x), kernel, bias))  # [N, I]
    return with_axes_of(x, dense(rows, output_kernel, output_bias))  # [..., H]


@op
def layer_norm(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> tf.Tensor:
    """Returns `x`, float [..., H], normalized over the last axis, times gamma plus beta.

    Computed in float32 and returned in the dtype of `x`. Source: Ba et al., arXiv 1607.06450,
    section 3.1.

    Args:
        x: float [..., H].
        gamma: float32 [H].
        beta: float32 [H].
    """
    z = tf.cast(x, tf.float32)  # [..., H]
    mean, variance = tf.nn.moments(z, axes=[-1], keepdims=True)  # [..., 1] each
    normal = (z - mean) * tf.math.rsqrt(variance + config.LAYER_NORM_EPSILON)  # [..., H]
    return tf.cast(normal * gamma + beta, x.dtype)


@op
def add_and_norm(
    x: tf.Tensor,
    residual: tf.Tensor,
    gamma: tf.Tensor,
    beta: tf.Tensor,
    rate: float = 0.0,
    seed: tf.Tensor | None = None,
) -> tf.Tensor:
    """Returns LayerNorm(residual + dropout(x)), float [..., H] in the dtype of `x`.

    Source: arXiv 1706.03762, sections 3.1 and 5.4.

    Args:
        x: float [..., H].
        residual: float [..., H].
        gamma: float32 [H].
        beta: float32 [H].
        rate: dropout rate.
        seed: as in `dropout`.
    """
    return layer_norm(residual + dropout(x, rate, seed), gamma, beta)


@op
def project_heads(
    queries: tf.Tensor,
    x: tf.Tensor,
    kernels: Sequence[tf.Tensor],
    biases: Sequence[tf.Tensor],
    heads: int,
) -> list[tf.Tensor]:
    """Returns the attention's queries, float [B, A, Q, D], keys and values, float [B, A, S, D].

    One matmul computes all three, or keys and values if the queries are others.

    Args:
        queries: float [B, Q, H], the positions to compute the attention for; `x` for all.
        x: float [B, S, H].
        kernels: three of float [H, A·D], for queries, keys and values.
        biases: three of float32 [A·D].
        heads: A.
    """
    if queries is not x:
        query = project_heads(queries, queries, kernels[:1], biases[:1], heads)
        return [*query, *project_heads(x, x, kernels[1:], biases[1:], heads)]
    y = dense(x, tf.concat(kernels, -1), tf.concat(biases, -1))  # [B, S, 3·A·D]
    *axes, _ = sizes_of(x)
    count = len(kernels)
    y = tf.reshape(y, (*axes, count, heads, y.shape[-1] // (count * heads)))
    projected: list[tf.Tensor] = tf.unstack(tf.transpose(y, (2, 0, 3, 1, 4)))
    return projected  # 3 of [B, A, S, D]


def split_heads(x: tf.Tensor, heads: int) -> tf.Tensor:
    """Splits the last axis into attention heads: float [B, S, A·D] → [B, A, S, D]."""
    x = tf.reshape(x, (*sizes_of(x)[:-1], heads, x.shape[-1] // heads))  # [B, S, A, D]
    return swap_heads(x)  # [B, A, S, D]


def swap_heads(x: tf.Tensor) -> tf.Tensor:
    """Swaps attention heads and positions: [B, A, S, D] ↔ [B, S, A, D]."""
    return tf.transpose(x, (0, 2, 1, 3))


def join_heads(x: tf.Tensor) -> tf.Tensor:
    """Joins the attention heads: float [B, S, A, D] → [B, S, A·D]."""
    return tf.reshape(x, (*sizes_of(x)[:-2], x.shape[2] * x.shape[3]))


def attention_scores(
    query: tf.Tensor, key: tf.Tensor, input_mask: tf.Tensor | None = None
) -> tf.Tensor:
    """Returns query · keyᵀ / √D, float32 [B, A, Q, S], less 10,000 for padding.

    Source: arXiv 1706.03762, section 3.2.1.

    Args:
        query: float [B, A, Q, D].
        key: float [B, A, S, D].
        input_mask: attention mask, [B, S], 1 for tokens and 0 for padding; None for no padding.
    """
    scores = tf.cast(tf.matmul(query, key, transpose_b=True), tf.float32)  # [B, A, Q, S]
    scores *= query.shape[-1] ** -0.5
    return scores if input_mask is None else scores + mask_adder(input_mask)


def attention_probs(
    query: tf.Tensor, key: tf.Tensor, input_mask: tf.Tensor | None = None
) -> tf.Tensor:
    """Returns the softmax of `attention_scores`, float32 [B, A, Q, S], which is 0 for padding."""
    return tf.nn.softmax(attention_scores(query, key, input_mask))


def mask_adder(input_mask: tf.Tensor) -> tf.Tensor:
    """Returns 0 for tokens and MASKED_SCORE for padding, float32 [B, 1, 1, S], of a mask [B, S]."""
    return (1.0 - tf.cast(input_mask[:, None, None, :], tf.float32)) * MASKED_SCORE


@op
def attention(
    query: tf.Tensor,
    key: tf.Tensor,
    value: tf.Tensor,
    input_mask: tf.Tensor | None = None,
    rate: float = 0.0,
    seed: tf.Tensor | None = None,
) -> tf.Tensor:
    """Returns dropout(softmax(query · keyᵀ / √D)) · value with joined heads, float [B, Q, A·D].

    Source: arXiv 1706.03762, section 3.2; dropout as in Google's `dot_product_attention`.

    Args:
        query: float [B, A, Q, D].
        key: float [B, A, S, D].
        value: float [B, A, S, D].
        input_mask: as in `attention_scores`. It gets no gradient.
        rate: dropout rate.
        seed: as in `dropout`.
    """
    probs = tf.cast(attention_probs(query, key, input_mask), value.dtype)  # [B, A, Q, S]
    context = tf.matmul(dropout(probs, rate, seed), value)  # [B, A, Q, D]
    return join_heads(swap_heads(context))  # [B, Q, A·D]


@op
def cross_entropy(logits: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns -log softmax(logits) of the labels, and 1.0 where the largest logit is correct.

    The masked-LM loss is the weighted mean of the former over the masked positions (Devlin et
    al., "BERT", section 3.1).

    Args:
        logits: float [..., V], cast to float32.
        labels: int32 or int64 [...], in [0, V). Of equal logits, the first counts as the largest.

    Returns:
        Both float32 [...].
    """
    logits = tf.cast(logits, tf.float32)  # [..., V]
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)  # [...]
    hits = tf.argmax(logits, -1, output_type=labels.dtype) == labels  # [...]
    return losses, tf.cast(hits, tf.float32)


def gather_positions(x: tf.Tensor, positions: tf.Tensor | None) -> tf.Tensor:
    """Returns `x`, float [B, S, H], at `positions`, int32 [B, Q]; all of it without positions."""
    return x if positions is None else tf.gather(x, positions, batch_dims=1)  # [B, Q, H]


def depend_on(x: tf.Tensor, gradient: tf.Tensor) -> tf.Tensor:
    """Returns `x` as a tensor that depends on a gradient.

    What a backward pass recomputes from it can neither be scheduled before the gradient is known,
    nor be merged with the forward pass, where the same is computed from `x`.
    """
    first = tf.reshape(gradient, (-1,))[0]
    zero = tf.where(tf.equal(first, first), tf.zeros_like(first), first)  # unless it is not finite
    return x + tf.cast(zero, x.dtype)


def dropout(x: tf.Tensor, rate: float, seed: tf.Tensor | None) -> tf.Tensor:
    """Sets elements to 0 with probability `rate`, and divides the others by 1 − rate.

    Returns `x` unchanged if the seed is None or the rate is 0; the same seed, int32 [2], drops the
    same elements. Source: Srivastava et al., 2014, with the scaling in training.
    """
    if seed is None or rate == 0.0:
        return x
    keep = keep_mask(x, rate, seed)  # shape of x
    return tf.where(keep, x * tf.cast(1.0 / (1.0 - rate), x.dtype), tf.zeros_like(x))


@op
def keep_mask(
    x: tf.Tensor, rate: float, seed: tf.Tensor, first_row: tf.Tensor | int = 0
) -> tf.Tensor:
    """Returns the mask of the elements that dropout keeps, bool in the shape of `x`.

    Each element has a random number of 32 bits, a hash of its position and the seed. XLA computes
    a hash where the mask is used, in the forward and again in the backward pass, so that neither
    random numbers nor masks are stored; a random number generator of the device would store both.
    The hash is the same on every device.

    Args:
        x: [..., n].
        rate: fraction of the elements to drop, exact to within 2⁻³².
        seed: int32 [2].
        first_row: int32, the number of rows before those of `x` in the tensor that it is a part of.
            A row is what has the same indices but for the last axis.
    """
    shape = tf.shape(x)
    first, second = tf.unstack(tf.cast(seed, tf.uint32))  # scalars
    row = tf.range(tf.reduce_prod(shape[:-1])) + first_row
    row = tf.reshape(row, tf.concat((shape[:-1], (1,)), axis=0))  # [..., 1]
    row = tf.cast(row, tf.uint32) * HASH_STEP
    column = tf.cast(tf.range(shape[-1]), tf.uint32) * HASH_STEP  # [n]
    # Two keys per row: with a single one, rows would share parts of their masks.
    keys = mix_bits(row + first, second), mix_bits(row + second, first)  # [..., 1] each
    return mix_bits(column + keys[0], keys[1]) >= tf.constant(round(rate * 2**32), tf.uint32)


def mix_bits(x: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
    """Returns a hash of `x` and a key, uint32 in their broadcast shape.

    Source: the function "lowbias32" of Chris Wellons' hash prospector, with a key in its middle.
    """
    x = (x ^ tf.bitwise.right_shift(x, HASH_SHIFTS[0])) * HASH_FACTORS[0] ^ key
    x = (x ^ tf.bitwise.right_shift(x, HASH_SHIFTS[1])) * HASH_FACTORS[1]
    return x ^ tf.bitwise.right_shift(x, HASH_SHIFTS[0])


def split_seed(seed: tf.Tensor, count: int) -> tf.Tensor:
    """Splits a seed, int32 [2], into `count` seeds for `dropout`, int32 [count, 2].

    The seeds are never negative because XLA and TensorFlow generate different numbers from negative
    ones.
    """
    return tf.random.split(seed & 0x7FFFFFFF, count, alg=SEED_ALGORITHM) & 0x7FFFFFFF


def dropout_seeds(training: bool | None, seed: Seeds, count: int) -> list[Seed]:
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

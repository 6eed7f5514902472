"""Arguments for kernels and their operations, drawn at random.

Sizes that no loop is made for, masks with and without padding, with and without dropout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.model import ops, optimization
from albert_tf.model.dispatch import Op

HIDDEN = 12


def normal(random: np.random.Generator, *shape: int) -> tf.Tensor:
    """Returns normally distributed numbers, float32 `shape`."""
    return tf.constant(1.5 * random.standard_normal(shape, np.float32))


def sizes(random: np.random.Generator) -> tuple[int, int, int, int]:
    """Returns B, S, A and D."""
    B, S, A = (int(random.integers(1, limit)) for limit in (6, 12, 5))
    return B, S, A, int(random.choice((3, 8, 32)))


def activations(random: np.random.Generator) -> tf.Tensor:
    """Returns float32 [B, S, A·D]."""
    B, S, A, D = sizes(random)
    return normal(random, B, S, A * D)


def seed_of(random: np.random.Generator) -> tf.Tensor:
    """Returns a seed for dropout."""
    return tf.constant(random.integers(0, 2**31, 2), tf.int32)


def dropout(random: np.random.Generator) -> tuple[float, tf.Tensor | None]:
    """Draws a dropout rate, 0 or 0.3, and a seed, None as in evaluation or two integers."""
    seed = seed_of(random) if random.random() < 0.5 else None
    return float(random.choice((0.0, 0.3))), seed


def of_keep_mask(random):
    return activations(random), 0.3, seed_of(random)


def of_add_bias(random):
    x = activations(random)
    return x, normal(random, x.shape[-1])


def of_gelu(random):
    return (activations(random),)


def of_feed_forward(random):
    B, S, A, D = sizes(random)
    kernel = normal(random, HIDDEN, A * D) / HIDDEN
    output_kernel = normal(random, A * D, HIDDEN) / HIDDEN
    x, bias, output_bias = (normal(random, *n) for n in ((B, S, HIDDEN), (A * D,), (HIDDEN,)))
    return x, kernel, bias, "gelu", output_kernel, output_bias


def of_layer_norm(random):
    x = activations(random)
    gamma = normal(random, x.shape[-1])
    return x, gamma, gamma - 1.0


def of_add_and_norm(random):
    x, gamma, beta = of_layer_norm(random)
    return x, normal(random, *x.shape), gamma, beta, *dropout(random)


def of_attention(random):
    B, S, A, D = sizes(random)
    lengths = random.integers(1, S + 1, (B, 1))
    mask = tf.constant(np.arange(S) < lengths, tf.int32) if random.random() < 0.5 else None
    positions = int(random.integers(1, S + 1)), S, S
    return *(normal(random, B, A, count, D) for count in positions), mask, *dropout(random)


def of_cross_entropy(random):
    logits = activations(random)
    labels = random.integers(0, logits.shape[-1], logits.shape[:-1])
    return logits, tf.constant(labels, tf.int32)


def of_project_heads(random):
    B, S, A, D = sizes(random)
    x = normal(random, B, S, HIDDEN)
    kernels = [normal(random, HIDDEN, A * D) / HIDDEN for _ in range(3)]
    queries = x if random.random() < 0.5 else normal(random, B, 2, HIDDEN)
    return queries, x, kernels, [normal(random, A * D) for _ in range(3)], A


def of_adam_update(random):
    gradient, m, v, weight = tf.unstack(tf.constant(random.standard_normal((4, 5, 7), np.float32)))
    decay_rate, adapts = float(random.choice((0.0, 0.01))), bool(random.random() < 0.5)
    rates = tf.unstack(tf.constant((0.9, 0.1, 0.999, 0.001, 0.01)))
    by = optimization.AdamCoefficients(*rates, 1e-6, decay_rate, adapts)
    return gradient, m, tf.square(v), weight, by


# Operation → a function that draws its arguments, float32 tensors among them.
ARGUMENTS: dict[Op, Callable[[np.random.Generator], tuple[Any, ...]]] = {
    ops.keep_mask: of_keep_mask,
    ops.add_bias: of_add_bias,
    ops.gelu: of_gelu,
    ops.feed_forward: of_feed_forward,
    ops.layer_norm: of_layer_norm,
    ops.add_and_norm: of_add_and_norm,
    ops.attention: of_attention,
    ops.cross_entropy: of_cross_entropy,
    ops.project_heads: of_project_heads,
    optimization.adam_update: of_adam_update,
}

"""Kernels of the operations in `ops.py` for CPUs.

Each has a gradient of its own, which stores a single tensor of the size of its input, and computes
in loops that XLA compiles (`loops.py`).

Dimensions: as in `ops.py`; N rows (tokens).
"""

from __future__ import annotations

import tensorflow as tf

from albert_tf.model import ops
from albert_tf.model.config import LAYER_NORM_EPSILON
from albert_tf.model.dispatch import CPU, Gradient, register_kernel
from albert_tf.model.kernels.loops import (
    Loop,
    as_float32,
    column_sums,
    compiled,
    narrow,
    row_max,
    row_sums,
)

_MIN_MASK_WIDTH = 32  # narrower masks are not compiled


def _is_wide(x: tf.Tensor, *_: object, **__: object) -> bool:
    return x.shape[-1] is None or x.shape[-1] >= _MIN_MASK_WIDTH


@register_kernel(ops.keep_mask, CPU, when=_is_wide)
@compiled
def _keep_mask(
    x: tf.Tensor, rate: float, seed: tf.Tensor, first_row: tf.Tensor | int = 0
) -> tf.Tensor:
    """The dozen operations of the hash in one pass over memory."""
    return ops.keep_mask.function(x, rate, seed, first_row)


@Loop
def _gelu(x: tf.Tensor, bias: tf.Tensor | None) -> tf.Tensor:
    z = as_float32(x) if bias is None else as_float32(x) + bias  # [N, I]
    cubic = ops.GELU_SCALE * (z + ops.GELU_CUBE * z * z * z)
    return narrow(0.5 * z * (1.0 + tf.tanh(cubic)), x.dtype)


@Loop
def _gelu_gradient(
    x: tf.Tensor, bias: tf.Tensor | None, dy: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the gradient of x, [N, I], and gelu(x + bias), [N, I], which costs little here."""
    z = as_float32(x) if bias is None else as_float32(x) + bias  # [N, I]
    square = z * z
    tanh = tf.tanh(ops.GELU_SCALE * z * (1.0 + ops.GELU_CUBE * square))
    slope = ops.GELU_SCALE * (1.0 + 3.0 * ops.GELU_CUBE * square)
    dz = as_float32(dy) * 0.5 * (1.0 + tanh + z * (1.0 - tanh * tanh) * slope)  # [N, I]
    return narrow(dz, x.dtype), narrow(0.5 * z * (1.0 + tanh), x.dtype)


# The operation's gradient is an AddN of three terms, whose order depends on the threads.
@register_kernel(ops.gelu, CPU)
@tf.custom_gradient
def _gelu_kernel(x: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
    width = x.shape[-1]
    return _gelu.at(width)(x, None), lambda dy: _gelu_gradient.at(width)(x, None, dy)[0]


def _is_gelu(
    x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor, activation: str, *_: object, **__: object
) -> bool:
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
    def run(
        rows: tf.Tensor, bias: tf.Tensor, output_kernel: tf.Tensor, output_bias: tf.Tensor
    ) -> tuple[tf.Tensor, Gradient]:
        def gradient(dy: tf.Tensor) -> tuple[tf.Tensor, ...]:
            dactive = tf.matmul(dy, output_kernel, transpose_b=True)  # [N, I]
            drows, active = _gelu_gradient.at(width)(rows, bias, dactive)  # [N, I] each
            doutput_kernel = tf.matmul(active, dy, transpose_a=True)  # [I, H]
            return drows, column_sums(drows), doutput_kernel, column_sums(dy)

        y = tf.matmul(_gelu.at(width)(rows, bias), output_kernel)  # [N, H]
        return tf.nn.bias_add(y, tf.cast(output_bias, y.dtype)), gradient

    rows = tf.matmul(ops.as_rows(x), kernel)  # [N, I]
    return ops.with_axes_of(x, run(rows, bias, output_kernel, output_bias))  # [..., H]


@Loop
def _norm(
    x: tf.Tensor,
    keep: tf.Tensor | None,
    keep_scale: float,
    residual: tf.Tensor | None,
    gamma: tf.Tensor,
    beta: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    total = as_float32(x)  # [N, H]
    if keep is not None:
        total = tf.where(keep, total * keep_scale, 0.0)
    if residual is not None:
        total += as_float32(residual)
    width = x.shape[-1]
    total -= row_sums(total) / width
    variance = row_sums(tf.square(total)) / width  # [N, 1]
    rsqrt = tf.math.rsqrt(variance + LAYER_NORM_EPSILON)  # [N, 1]
    normal = total * rsqrt  # [N, H]
    return narrow(normal * gamma + beta, x.dtype), narrow(normal, x.dtype), rsqrt


@Loop
def _norm_gradient(
    normal: tf.Tensor,
    rsqrt: tf.Tensor,
    gamma: tf.Tensor,
    keep: tf.Tensor | None,
    keep_scale: float,
    dy: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    dtype = dy.dtype
    width = dy.shape[-1]
    normal = as_float32(normal)
    dy = as_float32(dy)
    dn = dy * gamma  # [N, H]
    mean = row_sums(dn) / width  # [N, 1]
    along = row_sums(dn * normal) / width  # [N, 1]
    dtotal = rsqrt * (dn - mean - normal * along)  # [N, H]
    dresidual = narrow(dtotal, dtype)
    dx = dresidual if keep is None else narrow(tf.where(keep, dtotal * keep_scale, 0.0), dtype)
    return dx, dresidual, narrow(dy * normal, dtype)


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
    def run(
        x: tf.Tensor, residual: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor
    ) -> tuple[tf.Tensor, Gradient]:
        y, normal, rsqrt = _norm.at(x.shape[-1])(x, keep, scale, residual, gamma, beta)

        def gradient(dy: tf.Tensor) -> tuple[tf.Tensor, ...]:
            dx, dresidual, scaled = _norm_gradient.at(x.shape[-1])(
                normal, rsqrt, gamma, keep, scale, dy
            )
            return dx, dresidual, column_sums(scaled), column_sums(dy)

        return y, gradient

    return tf.reshape(run(x, residual, gamma, beta), shape)


@register_kernel(ops.layer_norm, CPU)
def _layer_norm(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> tf.Tensor:
    @tf.custom_gradient
    def run(rows: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
        y, normal, rsqrt = _norm.at(x.shape[-1])(rows, None, 1.0, None, gamma, beta)

        def gradient(dy: tf.Tensor) -> tuple[tf.Tensor, ...]:
            dx, _, scaled = _norm_gradient.at(x.shape[-1])(normal, rsqrt, gamma, None, 1.0, dy)
            return dx, column_sums(scaled), column_sums(dy)

        return y, gradient

    return tf.reshape(run(ops.as_rows(x), gamma, beta), tf.shape(x))


@Loop
def _cross_entropy(logits: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns losses [N], the logarithms of the softmax's denominators [N], and hits [N]."""
    width = logits.shape[-1]
    classes = tf.range(width)[None, :]  # [1, V]
    top = row_max(logits)  # [N, 1]
    total = tf.reduce_sum(tf.exp(logits - top), axis=-1)  # [N]
    log_total = tf.squeeze(top, -1) + tf.math.log(total)  # [N]
    is_label = tf.equal(classes, labels[:, None])  # [N, V]
    chosen = tf.reduce_sum(tf.where(is_label, logits, 0.0), axis=-1)  # [N]
    first = tf.reduce_min(tf.where(tf.equal(logits, top), classes, width), axis=-1)  # [N]
    return log_total - chosen, log_total, tf.cast(tf.equal(first, labels), tf.float32)


@Loop
def _cross_entropy_gradient(
    logits: tf.Tensor, labels: tf.Tensor, log_total: tf.Tensor, dy: tf.Tensor
) -> tf.Tensor:
    is_label = tf.equal(tf.range(logits.shape[-1])[None, :], labels[:, None])  # [N, V]
    probs = tf.exp(logits - log_total[:, None])  # [N, V]
    return (probs - tf.cast(is_label, tf.float32)) * dy[:, None]


@register_kernel(ops.cross_entropy, CPU)
def _cross_entropy_kernel(logits: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """One loop each for the losses and for the gradient.

    With the operation, a training step of a model of 6 layers of 256 units (128 x 96 tokens, 8,000
    words, bfloat16, two cores) takes 1.13 times the CPU time.
    """
    logits, width, shape = as_float32(logits), logits.shape[-1], tf.shape(labels)
    flat_labels = tf.reshape(tf.cast(labels, tf.int32), (-1,))  # [N]

    @tf.custom_gradient
    def run(logits: tf.Tensor) -> tuple[tuple[tf.Tensor, tf.Tensor], Gradient]:
        losses, log_total, hits = _cross_entropy.at(width)(logits, flat_labels)

        def gradient(dlosses: tf.Tensor, _: tf.Tensor) -> tf.Tensor:
            return _cross_entropy_gradient.at(width)(logits, flat_labels, log_total, dlosses)

        return (losses, hits), gradient

    losses, hits = run(tf.reshape(logits, (-1, width)))
    return tf.reshape(losses, shape), tf.reshape(hits, shape)

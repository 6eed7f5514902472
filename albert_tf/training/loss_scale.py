"""Dynamic loss scaling, which keeps gradients within the range of float16."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import tensorflow as tf

Gradient: TypeAlias = tf.Tensor | tf.IndexedSlices


class LossScale:
    """Dynamic loss scaling, which keeps gradients within the range of float16.

    The loss is multiplied by the scale, and the gradients are divided by it. If gradients overflow,
    the step is skipped and the scale is halved. After `growth_steps` consecutive good steps, the
    scale is doubled. Source: arXiv 1710.03740, section 3.2.

    This replaces `tf_keras.mixed_precision.LossScaleOptimizer`, whose scale is not a named variable
    that could be stored in a checkpoint, which skips steps with `tf.cond`, and which checks every
    gradient for overflow, although the norm computed for clipping already shows it.

    Args:
        initial: the initial scale.
        growth_steps: number of consecutive good steps after which the scale is doubled.
        minimum: lower limit of the scale. If a step overflows at this scale, its gradients are not
            finite even without loss scaling.

    Attributes:
        value: the scale, float32 scalar.
        good_steps: number of good steps since the scale last changed, int64 scalar.
    """

    def __init__(
        self, initial: float = 2.0**15, growth_steps: int = 2000, minimum: float = 1.0
    ) -> None:
        self.growth_steps = growth_steps
        self.minimum = minimum
        self.value = tf.Variable(initial, trainable=False, dtype=tf.float32, name="loss_scale")
        self.good_steps = tf.Variable(0, trainable=False, dtype=tf.int64, name="good_steps")

    def scale(self, loss: tf.Tensor) -> tf.Tensor:
        """Returns the scaled loss in the dtype of `loss`."""
        return loss * tf.cast(self.value, loss.dtype)

    def unscale(self, gradients: Sequence[Gradient | None]) -> list[Gradient | None]:
        """Returns the gradients of the unscaled loss in float32.

        Args:
            gradients: the gradient of the scaled loss for each variable, or None if the loss does
                not depend on it. Those of embedding tables may be `tf.IndexedSlices`.
        """
        factor = 1.0 / self.value
        return [
            None if gradient is None else tf.math.scalar_mul(factor, gradient)
            for gradient in gradients
        ]

    def update(self, is_finite: tf.Tensor) -> None:
        """Halves the scale after an overflow, or doubles it after enough good steps.

        Args:
            is_finite: whether the gradients of all replicas are finite, bool scalar.
        """
        count = tf.where(is_finite, self.good_steps + 1, 0)
        grows = count >= self.growth_steps
        grown = tf.where(grows, 2.0 * self.value, self.value)
        # Never double to infinity, from which halving could not recover.
        grown = tf.where(tf.math.is_finite(grown), grown, self.value)
        halved = tf.maximum(0.5 * self.value, self.minimum)
        self.value.assign(tf.where(is_finite, grown, halved))
        self.good_steps.assign(tf.where(grows, tf.zeros_like(count), count))

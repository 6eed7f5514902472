"""Google's learning rate schedule. Source: `optimization.py` of google-research/albert."""

from __future__ import annotations

import tensorflow as tf
import tf_keras

from albert_tf.files import JsonObject


def check_rate(learning_rate: object) -> None:
    """Raises ValueError for a learning rate that is a text or a negative number."""
    is_negative = isinstance(learning_rate, (int, float)) and not learning_rate >= 0
    if is_negative or isinstance(learning_rate, str):
        raise ValueError(f"learning_rate={learning_rate!r}: expected a number, 0 or more")


@tf_keras.saving.register_keras_serializable(package="albert_tf")
class WarmUpPolynomialDecay(tf_keras.optimizers.schedules.LearningRateSchedule):
    """Google's learning rate schedule: linear warm-up, then polynomial decay to 0.

    The learning rate after t completed steps is
    `learning_rate` · (1 − min(t, T)/T)^power with T = `num_train_steps`. As long as
    t − `start_warmup_step` < `num_warmup_steps`, it is
    `learning_rate` · (t − `start_warmup_step`) / `num_warmup_steps` instead: 0 in the first step of
    the warm-up, and negative before `start_warmup_step`. The decay is measured from step 0, not
    from the end of the warm-up.

    >>> schedule = WarmUpPolynomialDecay(1e-3, num_train_steps=10, num_warmup_steps=2)
    >>> [round(float(schedule(step)), 5) for step in (0, 1, 2, 9, 10)]
    [0.0, 0.0005, 0.0008, 0.0001, 0.0]

    Args:
        learning_rate: the base learning rate, from which the rate decays.
        num_train_steps: T, the step at which the learning rate reaches 0.
        num_warmup_steps: length of the warm-up in steps; 0 disables it.
        start_warmup_step: step at which the warm-up starts.
        power: exponent of the decay; 1.0 is linear.
    """

    def __init__(
        self,
        learning_rate: float,
        num_train_steps: int,
        num_warmup_steps: int = 0,
        start_warmup_step: int = 0,
        power: float = 1.0,
    ) -> None:
        check_rate(learning_rate)
        if num_train_steps < 1:
            raise ValueError(f"num_train_steps={num_train_steps}: expected 1 or more")
        self.learning_rate = learning_rate
        self.num_train_steps = num_train_steps
        self.num_warmup_steps = num_warmup_steps
        self.start_warmup_step = start_warmup_step
        self.power = power

    def __call__(self, step: tf.Tensor | int) -> tf.Tensor:
        """Returns the learning rate after `step` completed steps, float32 scalar."""
        t = tf.cast(step, tf.float32)
        done = tf.minimum(t, self.num_train_steps) / self.num_train_steps
        rate = self.learning_rate * (1.0 - done) ** self.power
        if not self.num_warmup_steps:
            return rate
        warm = t - self.start_warmup_step
        warm_rate = self.learning_rate * warm / self.num_warmup_steps
        return tf.where(warm < self.num_warmup_steps, warm_rate, rate)

    def get_config(self) -> JsonObject:
        """Returns the constructor's arguments."""
        return {
            "learning_rate": self.learning_rate,
            "num_train_steps": self.num_train_steps,
            "num_warmup_steps": self.num_warmup_steps,
            "start_warmup_step": self.start_warmup_step,
            "power": self.power,
        }

"""The learning rate schedule that `fit` of a model makes as long as itself."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf
import tf_keras

from albert_tf.files import JsonObject
from albert_tf.model.schedules import check_rate


@tf_keras.saving.register_keras_serializable(package="albert_tf")
class FitSchedule(tf_keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up and decay over all epochs of a `fit`, which may be called again.

    The learning rate is that of `WarmUpPolynomialDecay`, where T is the number of epochs times that
    of batches, and t those of this `fit`. Its numbers are variables, because the function that
    Keras compiles for the first `fit` trains in all of them. Until the first one, the rate is 0.

    Args:
        learning_rate: the base learning rate, from which the rate decays.
        warmup_proportion: fraction of the steps used for the warm-up, in [0, 1].
    """

    def __init__(self, learning_rate: float, warmup_proportion: float) -> None:
        check_rate(learning_rate)
        self.learning_rate = learning_rate
        self.warmup_proportion = warmup_proportion
        self.is_begun = False
        # Float, so that a GPU has them, where a step that XLA compiles reads them.
        self._first_step = tf.Variable(0.0, trainable=False)
        self._num_train_steps = tf.Variable(1.0, trainable=False)
        self._num_warmup_steps = tf.Variable(0.0, trainable=False)
        self._peak = tf.Variable(0.0, trainable=False)

    def begin(self, first_step: int, num_train_steps: int) -> None:
        """Makes the schedule one of `num_train_steps` steps, of which `first_step` is the first."""
        self._first_step.assign(first_step)
        self._num_train_steps.assign(num_train_steps)
        self._num_warmup_steps.assign(int(num_train_steps * self.warmup_proportion))
        self._peak.assign(self.learning_rate)
        self.is_begun = True

    def __call__(self, step: tf.Tensor | int) -> tf.Tensor:
        """Returns the learning rate after `step` completed steps, float32 scalar."""
        t = tf.cast(step, tf.float32) - self._first_step
        rate = self._peak * (1.0 - tf.minimum(t / self._num_train_steps, 1.0))
        warm_rate = self._peak * tf.math.divide_no_nan(t, self._num_warmup_steps)
        return tf.where(t < self._num_warmup_steps, warm_rate, rate)

    def get_config(self) -> JsonObject:
        """Returns the constructor's arguments. A model that is loaded again begins with `fit`."""
        return {
            "learning_rate": self.learning_rate,
            "warmup_proportion": self.warmup_proportion,
        }


class BeginSchedule(tf_keras.callbacks.Callback):
    """Keras callback that makes a schedule as long as the `fit` that it is passed to.

    Args:
        schedule: the schedule.
    """

    def __init__(self, schedule: FitSchedule) -> None:
        super().__init__()
        self.schedule = schedule
        self._is_first = True

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        """Sets the steps of the schedule before the first one.

        Training may begin in a later epoch, as `initial_epoch` or `BackupAndRestore` says; the
        epochs before it count, as they do for the `epochs` of `fit`.

        Raises:
            ValueError: the number of batches is not known.
        """
        if not self._is_first:
            return
        self._is_first = False
        steps = self.params["steps"]
        if steps is None:
            raise ValueError(
                "num_train_steps=None: the number of batches in the dataset is not known. Pass "
                "num_train_steps, or steps_per_epoch to fit"
            )
        optimizer = inner_optimizer(self.model.optimizer)
        done = int(optimizer.iterations.numpy()) - epoch * steps
        self.schedule.begin(done, self.params["epochs"] * steps)


def inner_optimizer(optimizer: tf_keras.optimizers.Optimizer) -> tf_keras.optimizers.Optimizer:
    """Returns the optimizer that Keras's loss scaling wraps, or the argument."""
    if isinstance(optimizer, tf_keras.mixed_precision.LossScaleOptimizer):
        inner: tf_keras.optimizers.Optimizer = optimizer.inner_optimizer
        return inner
    return optimizer


def add_beginning(optimizer: tf_keras.optimizers.Optimizer | None, callbacks: object) -> object:
    """Returns the callbacks of `fit`, with one that begins the schedule of the optimizer.

    Args:
        optimizer: the optimizer of the model, of any kind.
        callbacks: the argument of `fit`.
    """
    schedule = None
    if optimizer is not None:
        schedule = getattr(inner_optimizer(optimizer), "schedule", None)
    if not isinstance(schedule, FitSchedule):
        return callbacks
    begin = BeginSchedule(schedule)
    if isinstance(callbacks, tf_keras.callbacks.CallbackList):
        callbacks.append(begin)
        return callbacks
    return [begin, *tf.nest.flatten(callbacks or [])]

"""The schedule that `fit` makes as long as itself, beside the one that is given its length."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from albert_tf.model.config import AlbertConfig
from albert_tf.model.modeling import AlbertModel
from albert_tf.model.optimization import fine_tuning_optimizer
from albert_tf.model.schedules import WarmUpPolynomialDecay
from tests.conftest import TINY_SHAPE

PEAK, PROPORTION, BATCHES = 0.5, 0.3, 4
ROWS = np.arange(7.0, dtype=np.float32)[:, None]  # in 4 batches of 2


@tf_keras.saving.register_keras_serializable(package="tests")
class Scale(AlbertModel):
    """A model that compiles at once: its encoder is not called."""

    def __init__(self, config=None, **kwargs):
        super().__init__(config or AlbertConfig(**TINY_SHAPE | {"num_hidden_layers": 1}), **kwargs)
        self.encoder.trainable = False
        self.scale = self.add_weight(name="scale", shape=(), initializer="ones")

    def call(self, x):
        return tf.cast(x, tf.float32) * self.scale


class Rates(tf_keras.callbacks.Callback):
    """Notes the learning rate of each step."""

    def on_train_begin(self, logs=None):
        self.rates = []

    def on_train_batch_end(self, batch, logs=None):
        self.rates.append(float(self.model.optimizer.learning_rate))


def compiled(**options):
    model = Scale()
    optimizer = fine_tuning_optimizer(PEAK, warmup_proportion=PROPORTION)
    model.compile(optimizer, "mse", **options)
    return model


def rates_of(model, **options):
    noted = Rates()
    model.fit(ROWS, 2 * ROWS, batch_size=2, verbose=0, callbacks=[noted], **options)
    return noted.rates


def law(epochs):
    steps = epochs * BATCHES
    schedule = WarmUpPolynomialDecay(PEAK, steps, int(steps * PROPORTION))
    return [float(schedule(step)) for step in range(steps)]


@pytest.mark.parametrize("option", ["run_eagerly", "jit_compile", None])
def test_every_fit_warms_up_and_decays_to_its_own_end(option):
    """The function that the first `fit` compiles is that of the others."""
    model = compiled(**({option: True} if option else {}))
    for epochs in (3, 1, 5):
        np.testing.assert_allclose(rates_of(model, epochs=epochs), law(epochs), rtol=1e-5)


class StopAt(tf_keras.callbacks.Callback):
    """Interrupts training before an epoch."""

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2:
            raise KeyboardInterrupt


def test_a_restored_fit_continues_its_schedule(tmp_path):
    def fit(*others):
        noted, backup = Rates(), tf_keras.callbacks.BackupAndRestore(str(tmp_path))
        with contextlib.suppress(KeyboardInterrupt):
            callbacks = [noted, backup, *others]
            compiled().fit(ROWS, ROWS, batch_size=2, epochs=4, verbose=0, callbacks=callbacks)
        return noted.rates

    rates = [*fit(StopAt()), *fit()]
    np.testing.assert_allclose(rates, law(4), rtol=1e-5)


def test_a_loaded_model_begins_again_and_so_does_one_with_scaled_losses(tmp_path):
    model = compiled()
    rates_of(model, epochs=1)
    model.save(tmp_path / "model.keras")
    again = tf_keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(rates_of(again, epochs=2), law(2), rtol=1e-5)
    optimizer = fine_tuning_optimizer(PEAK, warmup_proportion=PROPORTION)
    again.compile(tf_keras.mixed_precision.LossScaleOptimizer(optimizer), "mse")
    np.testing.assert_allclose(rates_of(again, epochs=2), law(2), rtol=1e-5)


def test_without_a_known_number_of_steps_it_is_refused():
    model = compiled(run_eagerly=True)
    unknown = tf.data.Dataset.from_generator(
        lambda: iter([(ROWS, ROWS)]), (tf.float32, tf.float32), (ROWS.shape, ROWS.shape)
    )
    with pytest.raises(ValueError, match="number of batches in the dataset is not known"):
        model.fit(unknown, verbose=0)
    model.fit(unknown.repeat(), steps_per_epoch=2, verbose=0)
    other = tf_keras.Sequential([tf_keras.layers.Dense(1, input_shape=(1,))])
    other.compile(fine_tuning_optimizer(PEAK), "mse", run_eagerly=True)
    with pytest.raises(ValueError, match="only fit of the models of albert_tf"):
        other.fit(ROWS, ROWS, verbose=0)

"""Objects of Keras 3 beside our layers and models: each is refused by a sentence."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from albert_tf.model import optimization
from albert_tf.model.config import AlbertConfig
from albert_tf.model.heads import AlbertForClassification
from albert_tf.model.modeling import AlbertEncoder
from tests.conftest import TINY_SHAPE

keras = None  # imported when a test needs it, because that takes long

SHALLOW = AlbertConfig(**TINY_SHAPE | {"num_hidden_layers": 1, "num_hidden_groups": 1})
ADVICE = "Import tf_keras in place of keras, or set the environment variable TF_USE_LEGACY_KERAS=1"
IDS, LABELS = np.ones((4, 5), np.int32), np.array([0, 1, 0, 1])
LOSS = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@pytest.fixture(autouse=True, scope="module")
def _import_keras_3():
    global keras
    keras = pytest.importorskip("keras", minversion="3.0")


def test_keras_3_models_are_rejected(tiny_batch):
    encoder = AlbertEncoder(SHALLOW)

    class Wrapped(keras.Model):
        def __init__(self):
            super().__init__()
            self.encoder, self.dense = encoder, keras.layers.Dense(2)

        def call(self, ids):
            return self.dense(self.encoder(ids)["pooled_output"])

    model, ids = Wrapped(), tiny_batch["input_ids"]
    model.compile("sgd", "mse")
    sentence = r"A Keras 3 model .* would neither train.*TF_USE_LEGACY_KERAS=1"
    with pytest.raises(ValueError, match=sentence):
        model.fit(ids, np.ones((5, 2)), verbose=0)
    with pytest.raises(ValueError, match=sentence):
        encoder(keras.Input((11,), dtype="int32"))
    with pytest.raises(ValueError, match=sentence):
        AlbertForClassification(SHALLOW, 3)({"input_ids": keras.Input((11,), dtype="int32")})
    encoder(ids)  # by itself, it works in the same process


@pytest.mark.parametrize(
    "layer",
    [lambda: keras.layers.Dense(2), lambda: keras.layers.LayerNormalization()],
    ids=["dense", "norm"],
)
@pytest.mark.parametrize(
    "part",
    [
        lambda outputs: outputs["pooled_output"],
        lambda outputs: outputs["sequence_output"][:, 0],
        lambda outputs: outputs["sequence_output"][:, :3][:, 0] * 2.0,
        lambda outputs: tf.reduce_mean(outputs["sequence_output"], axis=1),
        lambda outputs: tf_keras.layers.Dropout(0.5)(outputs["pooled_output"]),
    ],
)
def test_a_layer_of_keras_3_with_weights_on_our_output_is_refused(layer, part):
    ids = tf_keras.Input((5,), dtype="int32")
    output = part(AlbertEncoder(SHALLOW)(ids))
    with pytest.raises(ValueError, match=rf"a layer of Keras 3 was called .* {ADVICE}"):
        layer()(output)
    with pytest.raises(ValueError, match="a layer of Keras 3 was called"):
        layer()(inputs=output)


def test_layers_of_tf_keras_work_where_keras_3_was_imported():
    ids = tf_keras.Input((5,), dtype="int32")
    x = AlbertEncoder(SHALLOW)(ids)["sequence_output"]
    head = tf_keras.layers.Dense(2)
    model = tf_keras.Model(ids, head(tf_keras.layers.Dropout(0.5)(x[:, 0] * 2.0)))
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    before = head.kernel.numpy()
    model.fit(IDS, LABELS, verbose=0)
    assert np.abs(head.kernel - before).max() > 0


def compiled(**changes):
    model = AlbertForClassification(SHALLOW, 2)
    model.compile(**{"optimizer": "sgd", "loss": LOSS, "metrics": ["accuracy"]} | changes)
    return model


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: compiled(optimizer=keras.optimizers.Adam()), "optimizer: Adam"),
        (
            lambda: compiled(metrics=[keras.metrics.SparseCategoricalAccuracy()]),
            "metrics: SparseCategoricalAccuracy",
        ),
        (lambda: compiled(weighted_metrics=[keras.metrics.Mean()]), "metrics: Mean"),
        (
            lambda: compiled().fit(IDS, LABELS, callbacks=[keras.callbacks.EarlyStopping()]),
            "callbacks: EarlyStopping",
        ),
        (
            lambda: compiled().evaluate(IDS, LABELS, callbacks=[keras.callbacks.Callback()]),
            "callbacks: Callback",
        ),
        (
            lambda: compiled().predict(IDS, callbacks=keras.callbacks.Callback()),
            "callbacks: Callback",
        ),
        (
            lambda: optimization.AdamW(keras.optimizers.schedules.ExponentialDecay(0.1, 9, 0.5)),
            "learning_rate: ExponentialDecay",
        ),
        (
            lambda: AlbertEncoder(SHALLOW, dtype=keras.mixed_precision.Policy("mixed_bfloat16")),
            "dtype: DTypePolicy",
        ),
        (
            lambda: setattr(AlbertEncoder(SHALLOW), "pooler", keras.layers.Dense(12)),
            r"AlbertEncoder\.pooler: Dense",
        ),
    ],
)
def test_an_object_of_keras_3_is_named_with_what_it_was_given_as(make, said):
    with pytest.raises(ValueError, match=f"^{said} is of Keras 3, .*{ADVICE}"):
        make()


def test_keras_3_itself_refuses_our_layers_in_a_sequential_model():
    with pytest.raises(ValueError, match=r"keras\.Layer.* can be added to a Sequential model"):
        keras.Sequential([AlbertEncoder(SHALLOW)])


def test_a_policy_of_keras_3_that_has_no_effect_is_said(caplog):
    caplog.set_level(logging.WARNING)
    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    try:
        encoder = AlbertEncoder(SHALLOW)
    finally:
        keras.mixed_precision.set_global_policy("float32")
    assert encoder.compute_dtype == "float32"
    said = (
        'no effect on this model of tf_keras: call tf_keras.mixed_precision.set_global_policy("mi'
    )
    assert said in caplog.text


def test_a_saved_model_is_compiled_as_it_was(tmp_path):
    model = compiled(optimizer=optimization.AdamW(0.25))
    model.fit(IDS, LABELS, verbose=0)
    model.save(tmp_path / "model.keras")
    found = tf_keras.models.load_model(tmp_path / "model.keras")
    assert found.optimizer.iterations == 1
    assert float(found.optimizer.learning_rate) == 0.25
    expected = model.evaluate(IDS, LABELS, verbose=0)
    np.testing.assert_allclose(found.evaluate(IDS, LABELS, verbose=0), expected, rtol=1e-6)

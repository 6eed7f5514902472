"""Tests writing, calling, training and loading SavedModels in the format of TF-Hub."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from albert_tf.checkpoints.loading import inspect_checkpoint, read_weights
from albert_tf.checkpoints.names import variable_name
from albert_tf.config import AlbertConfig
from albert_tf.modeling import AlbertForPretraining
from albert_tf.serving import tf_hub
from tests.checkpoints.checkpoint_samples import (
    SHARED,
    random_weights,
)

CONFIG = dataclasses.replace(SHARED, num_hidden_layers=2, hidden_dropout_prob=0.1)
ENCODER_OUTPUTS = {"default", "encoder_outputs", "pooled_output", "sequence_output"}


def hub_inputs(batch):
    return {
        "input_word_ids": batch["input_ids"],
        "input_mask": batch["input_mask"],
        "input_type_ids": batch["segment_ids"],
    }


@pytest.fixture(scope="module")
def model():
    """A small model with random weights."""
    model = AlbertForPretraining(CONFIG)
    weights = random_weights(CONFIG)
    for variable in model.variables:
        variable.assign(weights[variable_name(variable)])
    return model


@pytest.fixture(scope="module")
def module(model, toy_spm_model, tmp_path_factory):
    """The folder of the SavedModel of `model`."""
    folder = str(tmp_path_factory.mktemp("hub") / "albert")
    tf_hub.save_hub_module(folder, model, CONFIG, spm_model_file=toy_spm_model)
    return folder


@pytest.fixture(scope="module")
def loaded(module):
    """The loaded SavedModel."""
    return tf.saved_model.load(module)


@pytest.mark.ci
def test_encoder_outputs_match_the_model(model, loaded, tiny_batch):
    outputs = loaded(hub_inputs(tiny_batch))
    expected = model.encoder(tiny_batch)
    assert set(outputs) == ENCODER_OUTPUTS
    assert len(outputs["encoder_outputs"]) == 2
    for name in ("sequence_output", "pooled_output"):
        np.testing.assert_allclose(outputs[name], expected[name], rtol=0, atol=1e-5)
    np.testing.assert_array_equal(outputs["default"], outputs["pooled_output"])


@pytest.mark.ci
def test_head_outputs_match_the_model(model, loaded, tiny_batch):
    inputs = hub_inputs(tiny_batch)
    expected = model(tiny_batch)
    positions = {"masked_lm_positions": tiny_batch["masked_lm_positions"]}
    words = loaded.mlm(inputs | positions)
    assert set(words) == ENCODER_OUTPUTS | {"mlm_logits"}
    np.testing.assert_allclose(words["mlm_logits"], expected["masked_lm_logits"], atol=1e-4)
    order = loaded.sop(inputs)["sop_log_probs"]
    np.testing.assert_allclose(
        order, tf.nn.log_softmax(expected["sentence_order_logits"]), atol=1e-5
    )


@pytest.mark.ci
@pytest.mark.parametrize(("objective", "heads"), [("nsp", {"mlm", "nsp"}), ("none", {"mlm"})])
def test_the_sentence_head_has_the_name_of_its_objective(tmp_path, tiny_batch, objective, heads):
    config = dataclasses.replace(CONFIG, num_hidden_layers=1)
    model = AlbertForPretraining(config, objective)
    tf_hub.save_hub_module(str(tmp_path / "hub"), model, config)
    loaded = tf.saved_model.load(str(tmp_path / "hub"))
    assert {name for name in ("mlm", "sop", "nsp", "none") if hasattr(loaded, name)} == heads
    if "nsp" in heads:
        found = loaded.nsp(hub_inputs(tiny_batch))["nsp_log_probs"]
        expected = tf.nn.log_softmax(model(tiny_batch)["next_sentence_logits"])
        np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.ci
def test_the_serving_signature_matches_the_model(model, loaded, tiny_batch):
    serve = loaded.signatures["serving_default"]
    outputs = serve(**{n: tf.constant(x) for n, x in hub_inputs(tiny_batch).items()})
    expected = model.encoder(tiny_batch)["pooled_output"]
    np.testing.assert_allclose(outputs["pooled_output"], expected, rtol=0, atol=1e-5)
    assert set(outputs) == {"default", "pooled_output", "sequence_output"}


@pytest.mark.ci
def test_training_applies_dropout(loaded, tiny_batch):
    inputs = hub_inputs(tiny_batch)
    first, second = (loaded(inputs, training=True)["sequence_output"] for _ in range(2))
    assert abs(first - second).numpy().max() > 0.01


@pytest.mark.ci
def test_gradients_reach_every_weight_of_the_encoder(loaded, tiny_batch):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(loaded(hub_inputs(tiny_batch))["pooled_output"] ** 2)
    gradients = tape.gradient(loss, loaded.trainable_variables)
    assert len(gradients) == 25
    assert all(gradient is not None for gradient in gradients)


@pytest.mark.ci
def test_config_and_vocabulary_are_included(loaded, toy_spm_model):
    config_file = loaded.albert_config_file.asset_path.numpy().decode()
    assert AlbertConfig.from_json_file(config_file) == CONFIG
    with open(toy_spm_model, "rb") as stream:
        assert tf.io.read_file(loaded.sp_model_file.asset_path).numpy() == stream.read()


@pytest.mark.ci
def test_the_loaded_weights_are_identical(module):
    model = AlbertForPretraining(CONFIG)
    assert inspect_checkpoint(module, model).fits
    read, weights = read_weights(module, model), random_weights(CONFIG)
    assert set(read) == set(weights)
    for name, value in weights.items():
        np.testing.assert_array_equal(read[name], value, name)


@pytest.mark.ci
def test_untrained_heads_are_omitted_and_wordpiece_has_do_lower_case(model, tmp_path):
    vocab_file = tmp_path / "vocab.txt"
    vocab_file.write_text("[PAD]\n[UNK]\n")
    folder = str(tmp_path / "hub")
    tf_hub.save_hub_module(folder, model, CONFIG, False, False, str(vocab_file), None, False)
    loaded = tf.saved_model.load(folder)
    assert not hasattr(loaded, "mlm")
    assert not hasattr(loaded, "sop")
    assert loaded.vocab_file.asset_path.numpy().endswith(b"/vocab.txt")
    assert not loaded.do_lower_case
    report = inspect_checkpoint(folder)
    assert not [name for name in report.found if name.startswith("cls/")]


@pytest.mark.slow
def test_tensorflow_hub_fine_tunes_it_as_a_layer(module, tiny_batch):
    hub = pytest.importorskip("tensorflow_hub")
    encoder = hub.KerasLayer(module, trainable=True)
    batch = hub_inputs(tiny_batch)
    first, second = (encoder(batch, training=True)["sequence_output"] for _ in range(2))
    assert abs(first - second).numpy().max() > 0.01  # dropout
    assert len(encoder.trainable_variables) == 25
    before = [variable.numpy() for variable in encoder.trainable_variables]
    inputs = {
        name: tf_keras.Input([None], dtype=tf.int32, name=name)
        for name in ("input_word_ids", "input_mask", "input_type_ids")
    }
    outputs = encoder(inputs)
    assert set(outputs) == ENCODER_OUTPUTS
    model = tf_keras.Model(inputs, tf_keras.layers.Dense(2)(outputs["pooled_output"]))
    loss = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf_keras.optimizers.Adam(0.003), loss)
    labels = np.array([0, 1, 1, 0, 1])
    loss_before = model.evaluate(batch, labels, verbose=0)
    model.fit(batch, labels, epochs=120, verbose=0)
    assert model.evaluate(batch, labels, verbose=0) < 0.75 * loss_before
    changed = [
        np.any(variable.numpy() != value)
        for variable, value in zip(encoder.trainable_variables, before, strict=True)
    ]
    assert sum(changed) >= 24  # the gradient of the key bias is zero, except for rounding

"""The model compared with Google's numbers, and properties that any ALBERT model has."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints.loading import load_checkpoint
from albert_tf.checkpoints.weight_names import variable_name
from albert_tf.model import ops
from albert_tf.model.config import AlbertConfig
from albert_tf.model.kernels import loops
from albert_tf.model.modeling import AlbertEncoder, AlbertForPretraining
from albert_tf.pretraining.task import PretrainingTask
from tests.conftest import ROOT

GOLDEN = ROOT / "tests" / "golden"
SHARED_GOLDENS = [
    ("encoder/shared", "model.ckpt-best"),
    ("encoder/groups", "model.ckpt-best"),
    ("encoder/no_factorization", "model.ckpt-best"),
    ("albert_zh_layout/postln", "albert_model.ckpt"),
    ("albert_zh_layout/preln", "albert_model.ckpt"),
]


def loss_of(model, batch):
    length, predictions = batch["input_ids"].shape[1], batch["masked_lm_ids"].shape[1]
    task = PretrainingTask(model.config, length, predictions)
    with tf.GradientTape() as tape:
        outputs = model({name: tf.constant(value) for name, value in batch.items()})
        loss, sums = task.loss(outputs, {name: tf.constant(v) for name, v in batch.items()})
    gradients = tape.gradient(loss, model.trainable_variables)
    names = map(variable_name, model.trainable_variables)
    return outputs, loss, sums, dict(zip(names, map(tf.convert_to_tensor, gradients), strict=True))


def encoded(encoder, batch):
    """Returns all outputs of an encoder."""
    embeddings = encoder.embeddings(batch["input_ids"], batch["segment_ids"])
    return encoder(batch, output_hidden_states=True) | {"embedding_output": embeddings}


def assert_same_numbers(model, batch, expected):
    """Compares layers and losses to 1e-5, gradients to 1e-4 of the largest value in the tensor."""
    outputs, loss, sums, gradients = loss_of(model, batch)
    outputs |= encoded(model.encoder, batch)
    for name in ("sequence_output", "pooled_output", "embedding_output"):
        np.testing.assert_allclose(outputs[name], expected[name], rtol=0, atol=1e-5, err_msg=name)
    for i, layer in enumerate(outputs["hidden_states"][1:]):
        if f"encoder_layer_{i:02d}" in expected:
            np.testing.assert_allclose(
                layer, expected[f"encoder_layer_{i:02d}"], rtol=0, atol=1e-5, err_msg=f"layer {i}"
            )
    log_probs = tf.nn.log_softmax(outputs["sentence_order_logits"])
    np.testing.assert_allclose(log_probs, expected["sentence_order_log_probs"], rtol=0, atol=1e-5)
    total, weight = sums["masked_lm_loss"]
    np.testing.assert_allclose(total / (weight + 1e-5), expected["masked_lm_loss"], atol=1e-5)
    total, weight = sums["sentence_order_loss"]
    np.testing.assert_allclose(total / weight, expected["sentence_order_loss"], atol=1e-5)
    np.testing.assert_allclose(
        loss, expected["masked_lm_loss"] + expected["sentence_order_loss"], rtol=1e-5
    )
    for name, gradient in gradients.items():
        if f"gradient/{name}" not in expected:
            continue
        theirs = expected[f"gradient/{name}"]
        # The keys' bias does not change the softmax: its gradient is only rounding error.
        scale = 1.0 if name.endswith("key/bias") else np.abs(theirs).max()
        np.testing.assert_allclose(gradient, theirs, rtol=0, atol=1e-4 * scale, err_msg=name)


def read_golden(prefix):
    with np.load(GOLDEN / "encoder_shared.npz") as golden:
        return {
            name.removeprefix(prefix): golden[name] for name in golden if name.startswith(prefix)
        }


@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_google_numbers_stored_in_the_repository(rate):
    """Dropout in the config changes none of them, gradients included: it acts in training only."""
    config = AlbertConfig.from_json_file(str(GOLDEN / "encoder_shared.json"))
    rates = {"hidden_dropout_prob": rate, "attention_probs_dropout_prob": rate}
    model = AlbertForPretraining(dataclasses.replace(config, **rates))
    weights = read_golden("variable/")
    assert {variable_name(variable) for variable in model.variables} == set(weights)
    for variable in model.variables:
        variable.assign(weights[variable_name(variable)])
    gradients = {f"gradient/{name}": g for name, g in read_golden("gradient/").items()}
    assert gradients
    assert_same_numbers(model, read_golden("input/"), read_golden("output/") | gradients)


@pytest.mark.parametrize(("folder", "prefix"), SHARED_GOLDENS)
def test_reference_numbers_of_every_layout(shared, folder, prefix):
    folder = shared / "golden" / folder
    config = AlbertConfig.from_json_file(str(folder / "albert_config.json"))
    model = AlbertForPretraining(config)
    report = load_checkpoint(model, str(folder / prefix))
    assert not report.unused
    assert not report.missing
    with np.load(folder / "inputs.npz") as inputs, np.load(folder / "outputs.npz") as outputs:
        expected = dict(outputs)
        assert sum(name.startswith("encoder_layer") for name in expected) == len(
            model.encoder.blocks
        )
        assert_same_numbers(model, dict(inputs), expected)


def test_padding_does_not_change_the_tokens_before_it(tiny_model, tiny_batch):
    outputs = encoded(tiny_model.encoder, tiny_batch)
    shorter = {
        name: value[:, :10] if name in ("input_ids", "input_mask", "segment_ids") else value
        for name, value in tiny_batch.items()
    }
    row = 3  # has ten tokens, so only padding is cut off
    for name in ("sequence_output", "embedding_output"):
        np.testing.assert_allclose(
            encoded(tiny_model.encoder, shorter)[name][row], outputs[name][row, :10], atol=1e-6
        )
    other = dict(tiny_batch, input_ids=tiny_batch["input_ids"] + 7 * (1 - tiny_batch["input_mask"]))
    changed = tiny_model.encoder(other)["sequence_output"] - outputs["sequence_output"]
    per_token = np.abs(changed).max(-1)
    assert per_token[tiny_batch["input_mask"] == 1].max() < 1e-6
    assert per_token[tiny_batch["input_mask"] == 0].min() > 1e-3


def test_only_groups_in_use_are_created(tiny_config):
    config = dataclasses.replace(tiny_config, num_hidden_layers=4, num_hidden_groups=12)
    names = {variable_name(variable) for variable in AlbertEncoder(config).variables}
    groups = {name.split("group_")[1].split("/")[0] for name in names if "/group_" in name}
    assert groups == {"0", "3", "6", "9"}


def test_dropout_is_only_applied_in_training_and_depends_on_the_seed(tiny_config, tiny_batch):
    rates = {"hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": 0.2}
    model = AlbertEncoder(dataclasses.replace(tiny_config, **rates))

    def pooled(**kwargs):
        return model(tiny_batch, **kwargs)["pooled_output"].numpy()

    def seeded(seed):
        return pooled(training=True, dropout_seed=tf.constant(seed))

    np.testing.assert_array_equal(pooled(), pooled())
    np.testing.assert_array_equal(seeded([1, 2]), seeded([1, 2]))
    assert not np.array_equal(seeded([1, 2]), seeded([1, 3]))
    assert not np.array_equal(seeded([1, 2]), pooled())
    assert not np.array_equal(pooled(training=True), pooled(training=True))


def test_each_dropout_drops_different_elements(tiny_config, tiny_batch, monkeypatch):
    """With a common seed, layers of the same group would drop the same elements."""
    config = dataclasses.replace(tiny_config, hidden_dropout_prob=0.5)
    model, seeds, original = AlbertEncoder(config), [], ops.keep_mask

    def spy(shape, rate, seed):
        seeds.append(seed.numpy())
        return original(shape, rate, seed)

    monkeypatch.setattr(ops, "keep_mask", spy)
    model(tiny_batch, training=True)
    assert len(seeds) == 1 + 2 * 3  # one for the embeddings and two for each layer
    assert len(np.unique(seeds, axis=0)) == len(seeds)


def test_kernels_are_initialized_with_different_truncated_normals():
    config = AlbertConfig(1009, embedding_size=96, hidden_size=96, num_attention_heads=4)
    encoder = AlbertEncoder(config)
    words = encoder.embeddings.word_table.numpy()
    assert np.abs(words).max() <= 0.04  # truncated at two standard deviations of 0.02
    assert abs(words.std() - 0.8796 * 0.02) < 0.0002
    attention = encoder.blocks[0].attention
    assert not np.array_equal(attention.query.kernel, attention.key.kernel)
    assert not np.any(attention.query.bias)


@pytest.mark.ci
def test_one_graph_serves_batches_of_any_shape(tiny_config, tiny_batch, monkeypatch):
    changes = {"num_hidden_layers": 1, "num_hidden_groups": 1}
    model = AlbertForPretraining(dataclasses.replace(tiny_config, **changes))
    monkeypatch.setattr(loops, "MIN_WIDTH", 1)
    signature = {
        name: tf.TensorSpec([None] * value.ndim, value.dtype) for name, value in tiny_batch.items()
    }

    def everything(batch):
        return model(batch) | model.encoder(batch)

    graph = tf.function(everything, input_signature=[signature])
    for rows, length in ((5, 11), (2, 8)):
        batch = {name: value[:rows] for name, value in tiny_batch.items()}
        for name in ("input_ids", "input_mask", "segment_ids"):
            batch[name] = batch[name][:, :length]
        outputs, expected = graph(batch), everything(batch)
        for name in ("sequence_output", "pooled_output", "masked_lm_logits"):
            np.testing.assert_allclose(outputs[name], expected[name], atol=1e-5)

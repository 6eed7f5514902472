"""The TensorFlow Model Garden's encoder computes our outputs from the same weights."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from official.modeling import tf_utils
from official.nlp.modeling import networks

from albert_tf.checkpoints.loading import load_checkpoint, read_weights
from albert_tf.checkpoints.names import variable_name
from albert_tf.modeling import AlbertForPretraining
from tests.checkpoints.checkpoint_samples import SHARED, SQUARE, as_model_garden, random_weights

FACTORIZED = dataclasses.replace(SHARED, num_hidden_layers=3)
UNFACTORIZED = dataclasses.replace(SQUARE, num_hidden_layers=2, hidden_act="relu")


def make_encoder(config):
    """The Model Garden's encoder for a config, with the weights of `random_weights`."""
    encoder = networks.AlbertEncoder(
        vocab_size=config.vocab_size,
        embedding_width=config.embedding_size,
        hidden_size=config.hidden_size,
        num_layers=config.num_hidden_layers,
        num_attention_heads=config.num_attention_heads,
        max_sequence_length=config.max_position_embeddings,
        type_vocab_size=config.type_vocab_size,
        intermediate_size=config.intermediate_size,
        activation=tf_utils.get_activation(config.hidden_act),
        dict_outputs=True,
    )
    arrays = as_model_garden(random_weights(config), config)
    for variable in encoder.variables:
        variable.assign(arrays[variable_name(variable)])
    return encoder


@pytest.mark.ci
@pytest.mark.parametrize("config", [FACTORIZED, UNFACTORIZED], ids=["E < H", "E = H"])
def test_a_checkpoint_of_their_encoder_has_the_same_outputs_here(config, tiny_batch, tmp_path):
    theirs = make_encoder(config)
    path = tf.train.Checkpoint(encoder=theirs).save(str(tmp_path / "ckpt"))
    assert_same_outputs(theirs, path, config, tiny_batch)
    weights = random_weights(config)
    for name, value in read_weights(path).items():
        np.testing.assert_array_equal(value, weights[name], name)


@pytest.mark.slow
def test_a_saved_model_of_their_encoder_has_the_same_outputs_here(tiny_batch, tmp_path):
    theirs = make_encoder(FACTORIZED)
    tf.saved_model.save(theirs, str(tmp_path / "hub"))
    assert_same_outputs(theirs, str(tmp_path / "hub"), FACTORIZED, tiny_batch)


def assert_same_outputs(theirs, path, config, batch):
    ours = AlbertForPretraining(config)
    report = load_checkpoint(ours, path)
    assert report.fits
    assert report.title.startswith("ALBERT of the TensorFlow Model Garden")
    expected = theirs(
        {
            "input_word_ids": batch["input_ids"],
            "input_mask": batch["input_mask"],
            "input_type_ids": batch["segment_ids"],
        }
    )
    outputs = ours.encoder(batch)
    is_token = batch["input_mask"] > 0
    for name in ("sequence_output", "pooled_output"):
        mask = is_token if name == "sequence_output" else slice(None)
        got, wanted = outputs[name].numpy()[mask], expected[name].numpy()[mask]
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5)

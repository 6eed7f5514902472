"""The TensorFlow Model Garden's encoder computes our outputs from the same weights."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints.loading import load_checkpoint, read_weights
from albert_tf.checkpoints.weight_names import variable_name
from albert_tf.model.modeling import AlbertForPretraining
from tests.checkpoints.checkpoint_samples import SHARED, SQUARE, as_model_garden, random_weights

networks = pytest.importorskip("official.nlp.modeling.networks")
tf_utils = pytest.importorskip("official.modeling.tf_utils")

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
def test_their_encoder_has_the_same_outputs_here(config, tiny_batch, tmp_path):
    theirs, ours = make_encoder(config), AlbertForPretraining(config)
    path = tf.train.Checkpoint(encoder=theirs).save(f"{tmp_path}/ckpt")
    report = load_checkpoint(ours, path)
    assert report.fits
    assert report.title.startswith("ALBERT of the TensorFlow Model Garden")
    weights = random_weights(config)
    for name, value in read_weights(path).items():
        np.testing.assert_array_equal(value, weights[name], name)
    names = ("input_ids", "input_mask", "segment_ids")
    their_names = ("input_word_ids", "input_mask", "input_type_ids")
    inputs = [tiny_batch[name] for name in names]
    expected = theirs(dict(zip(their_names, inputs, strict=True)))
    outputs = ours.encoder(tiny_batch)
    is_token = tiny_batch["input_mask"] > 0
    for name, kept in (("sequence_output", is_token), ("pooled_output", slice(None))):
        got, wanted = outputs[name].numpy()[kept], expected[name].numpy()[kept]
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5)

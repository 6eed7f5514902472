"""The Model Garden's format: its encoder computes our outputs from the converted weights."""

from __future__ import annotations

import dataclasses
import logging as python_logging

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints import model_garden
from albert_tf.checkpoints.loading import load_checkpoint, read_weights
from albert_tf.checkpoints.names import variable_name
from albert_tf.modeling import AlbertEncoder
from tests.checkpoints.checkpoint_samples import (
    ALBERT_ZH,
    GOOGLE,
    SHARED,
    SQUARE,
    as_model_garden,
    random_weights,
)

FACTORIZED = dataclasses.replace(SHARED, num_hidden_layers=3)
UNFACTORIZED = dataclasses.replace(SQUARE, num_hidden_layers=2, hidden_act="relu")


def hub_inputs(batch):
    return {
        "input_word_ids": batch["input_ids"],
        "input_mask": batch["input_mask"],
        "input_type_ids": batch["segment_ids"],
    }


@pytest.fixture(scope="module", params=[FACTORIZED, UNFACTORIZED], ids=["E < H", "E = H"])
def saved(request, tmp_path_factory):
    """Returns a config and a folder with such a model in the Model Garden's format."""
    folder = str(tmp_path_factory.mktemp("garden"))
    model_garden.save_model_garden(folder, random_weights(request.param), request.param)
    return request.param, folder


@pytest.mark.ci
def test_their_encoder_computes_our_outputs(saved, tiny_batch):
    config, folder = saved
    theirs = model_garden.make_encoder(config)
    # As the tasks of the Model Garden do with `init_checkpoint`, a folder.
    status = tf.train.Checkpoint(encoder=theirs).read(tf.train.latest_checkpoint(folder))
    status.expect_partial().assert_existing_objects_matched()
    ours, weights = AlbertEncoder(config), random_weights(config)
    for variable in ours.variables:
        variable.assign(weights[variable_name(variable)])
    expected, outputs = ours(tiny_batch), theirs(hub_inputs(tiny_batch))
    is_token = tiny_batch["input_mask"] > 0
    for name in ("sequence_output", "pooled_output"):
        mask = is_token if name == "sequence_output" else slice(None)
        got, wanted = outputs[name].numpy()[mask], expected[name].numpy()[mask]
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5)


@pytest.mark.ci
def test_weights_round_trip_bit_for_bit(saved):
    config, folder = saved
    weights = random_weights(config)
    expected = {n: x for n, x in weights.items() if not n.startswith("cls/seq_relationship/")}
    back = read_weights(folder)
    assert set(back) == set(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(back[name], value, name)
    assert load_checkpoint(AlbertEncoder(config), folder).fits


def test_their_masked_lm_head_has_its_weights(tiny_batch):
    weights = random_weights(FACTORIZED)
    head = model_garden.to_model_garden(weights, FACTORIZED)["masked_lm"]
    arrays = as_model_garden(weights, FACTORIZED)
    assert len(head.variables) == 6
    for variable in head.variables:
        np.testing.assert_array_equal(variable, arrays[variable_name(variable)])


def test_an_encoder_alone_has_no_masked_lm_head():
    weights = {n: x for n, x in random_weights(FACTORIZED).items() if n.startswith("bert/")}
    assert set(model_garden.to_model_garden(weights, FACTORIZED)) == {"encoder"}


def test_weights_that_are_not_written_are_reported(caplog):
    with caplog.at_level(python_logging.WARNING, logger="absl"):
        model_garden.to_model_garden(random_weights(FACTORIZED), FACTORIZED)
    assert "not written: cls/seq_relationship/output_bias" in caplog.text


def test_a_missing_weight_is_reported():
    weights = random_weights(FACTORIZED)
    del weights["bert/pooler/dense/bias"]
    with pytest.raises(ValueError, match="weights are missing: bert/pooler/dense/bias"):
        model_garden.to_model_garden(weights, FACTORIZED)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (GOOGLE, "num_hidden_groups=2"),
        (dataclasses.replace(SHARED, inner_group_num=3), "inner_group_num=3"),
        (ALBERT_ZH, "only supports Google's layout"),
    ],
)
def test_unsupported_models_are_rejected(config, reason):
    with pytest.raises(ValueError, match=reason):
        model_garden.make_encoder(config)

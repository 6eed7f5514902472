"""Tests that exported pre-trained models match the predictors of their folder."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import from_pretrained
from albert_tf.inference.predictor import load_predictor
from albert_tf.serving import pretrained_model, saved_model
from albert_tf.serving.poolings import POOLINGS
from tests.inference.conftest import write_folder

pytestmark = pytest.mark.ci

PAIRS = [("The river", "A boat at the landing, and the rain"), ("Crème 😀", ""), ("", "")]


@pytest.fixture(scope="module", name="folder")
def make_folder(tmp_path_factory, config_file, toy_spm_model):
    folder = tmp_path_factory.mktemp("pretrained")
    return str(write_folder(folder, config_file, toy_spm_model))


@pytest.fixture(scope="module", name="signatures")
def load_signatures(folder, tmp_path_factory):
    model, tokenizer = from_pretrained(folder, "pretraining")
    target = str(tmp_path_factory.mktemp("saved_model"))
    exported = pretrained_model.make_export(model.encoder, tokenizer, 61)
    saved_model.save(target, saved_model.hold(model.variables), exported.signatures)
    return tf.saved_model.load(target).signatures


def test_embeddings_of_texts_match_the_predictor(folder, signatures):
    first, second = map(tf.constant, zip(*PAIRS, strict=True))
    found = signatures["texts"](text_a=first, text_b=second)
    assert set(found) == set(POOLINGS)
    for pooling, rows in found.items():
        expected = load_predictor(folder, "embeddings", pooling=pooling)(PAIRS)
        np.testing.assert_allclose(rows, expected, atol=1e-5, err_msg=pooling)


def test_embeddings_of_ids_are_the_same(folder, signatures):
    embed = load_predictor(folder, "embeddings")
    batch = {name: tf.constant(x) for name, x in embed.tokenizer(PAIRS).items()}
    found = signatures["serving_default"](**batch)
    assert found["sequence_output"].shape == (*batch["input_ids"].shape, 12)
    np.testing.assert_allclose(found["mean"], embed(PAIRS), atol=1e-5)


def test_without_a_vocabulary_there_are_fewer_signatures(folder):
    model, _ = from_pretrained(folder, "pretraining")
    signatures = pretrained_model.make_export(model.encoder, None, 61).signatures
    assert set(signatures) == {"serving_default", "examples"}

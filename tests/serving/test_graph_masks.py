"""Tests that masked words are predicted in a graph as in Python."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.inference.predictors import load_predictor
from albert_tf.serving.graph_masks import MaskReader
from tests.inference.conftest import write_folder

TEXTS = [
    "The river [MASK] the rain.",
    "[MASK][MASK] boat",
    "In winter the [MASK], freezes and  [MASK]children skate where the boat [MASK]",
    "the river carries the rain of the mountains down to the sea " * 5 + "[MASK] a boat",
    "[MASK] the river carries the rain of the mountains down to the sea " * 1 + "\u0301[MASK]é",
]


@pytest.fixture(scope="module", name="fill_mask")
def make_filler(tmp_path_factory, config_file, toy_spm_model):
    folder = write_folder(tmp_path_factory.mktemp("pretrained"), config_file, toy_spm_model)
    return load_predictor(str(folder), "fill_mask", max_seq_length=37, top_k=3)


def fill(fill_mask, texts):
    reader = MaskReader(fill_mask.tokenizer, 37, 3)
    find = lambda batch: fill_mask.model(batch, training=False)["masked_lm_logits"]  # noqa: E731
    return {name: x.numpy() for name, x in reader.fill(tf.constant(texts), find).items()}


def test_words_match_the_predictor(fill_mask):
    found = fill(fill_mask, TEXTS)
    for row, expected in enumerate(fill_mask(TEXTS)):
        assert found["filled"][row].decode() == expected["text"]
        for place, words in enumerate(expected["masks"]):
            tokens = [token.decode() for token in found["tokens"][row, place]]
            assert tokens == [word["token"] for word in words]
            scores = [word["score"] for word in words]
            np.testing.assert_allclose(found["scores"][row, place], scores, atol=1e-6)
        rest = found["tokens"][row, len(expected["masks"]) :]
        assert set(rest.ravel().tolist()) <= {b""}


def test_texts_without_masks_are_unchanged(fill_mask):
    found = fill(fill_mask, ["", "The river", "a [MASK]"])
    assert found["filled"][:2].tolist() == [b"", b"The river"]
    assert found["tokens"].shape == (3, 1, 3)
    assert not found["scores"][:2].any()


def test_masks_outside_the_window_are_unchanged(fill_mask):
    text = "[MASK] " + "the river carries the rain " * 30 + "[MASK]"
    found = fill(fill_mask, [text])
    assert found["filled"][0].decode() == text
    assert not found["scores"].any()

"""Tests of the model that `from_pretrained` returns for a fine-tuned folder."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from tests.inference.conftest import TEXTS


def test_the_task_of_a_fine_tuned_model_is_its_own(classifier_dir, answers_dir, regression_dir):
    for folder, name in (
        (classifier_dir, "AlbertForClassification"),
        (answers_dir, "AlbertForAnswerableSpans"),
        (regression_dir, "AlbertForClassification"),
    ):
        pair = albert_tf.from_pretrained(str(folder))
        assert type(pair) is tuple
        assert type(pair[0]).__name__ == name
    encoder, _ = albert_tf.from_pretrained(str(classifier_dir), "embeddings")
    assert type(encoder).__name__ == "AlbertEncoder"


def test_the_model_computes_what_the_predictor_does(classifier_dir):
    model, tokenizer = albert_tf.from_pretrained(str(classifier_dir))
    ours = tf.nn.softmax(model(tokenizer(TEXTS, max_length=17))).numpy()
    results = albert_tf.load_predictor(str(classifier_dir))(TEXTS)
    theirs = [list(result["probabilities"].values()) for result in results]
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_a_classifier_of_the_mean_remains_one(classifier_dir, tmp_path):
    folder = shutil.copytree(classifier_dir, tmp_path / "mean")
    path = folder / "run.json"
    known = json.loads(path.read_text())
    known["settings"]["use_pooled_output"] = False
    path.write_text(json.dumps(known))
    model, tokenizer = albert_tf.from_pretrained(str(folder))
    assert not model.use_pooled_output
    expected = albert_tf.load_predictor(str(folder))(TEXTS)
    assert expected != albert_tf.load_predictor(str(classifier_dir))(TEXTS)
    batch = tokenizer(TEXTS, max_length=17)
    padded = {n: np.pad(x, ((0, 0), (0, 17 - x.shape[1]))) for n, x in batch.items()}
    ours = tf.nn.softmax(model(padded)).numpy()
    theirs = [list(result["probabilities"].values()) for result in expected]
    np.testing.assert_allclose(ours, theirs, atol=1e-6)
    pooled, _ = albert_tf.from_pretrained(str(folder), use_pooled_output=True)
    assert pooled.use_pooled_output


def test_labels_without_a_head_for_them_are_refused(pretrained_dir):
    with pytest.raises(ValueError, match=r'num_labels=2: .* task="classification"'):
        albert_tf.from_pretrained(str(pretrained_dir), num_labels=2)

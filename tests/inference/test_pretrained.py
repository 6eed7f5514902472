"""Tests that what `from_pretrained` returns is a pair and predicts as `load_predictor` does."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from tests.inference.conftest import CONTEXTS, QUESTIONS, TEXTS, write_folder

SIZE = 12
MASKED = "The [MASK] carries the rain."


def test_it_is_a_pair_of_model_and_tokenizer(pretrained_dir):
    pretrained = albert_tf.from_pretrained(str(pretrained_dir))
    model, tokenizer = pretrained
    assert isinstance(pretrained, tuple)
    assert len(pretrained) == 2
    assert pretrained[0] is pretrained.model is model
    assert pretrained[1] is pretrained.tokenizer is tokenizer
    assert type(model).__name__ == "AlbertEncoder"


@pytest.mark.parametrize("task", [None, "classification"])
def test_a_classifier_is_called_with_texts(classifier_dir, task):
    classifier = albert_tf.from_pretrained(str(classifier_dir), task)
    expected = albert_tf.load_predictor(str(classifier_dir))(TEXTS)
    assert classifier(TEXTS) == classifier.classify(TEXTS) == expected
    assert classifier(TEXTS[0])["label"] == expected[0]["label"]


def test_a_classifier_of_the_mean_remains_one(classifier_dir, tmp_path):
    folder = shutil.copytree(classifier_dir, tmp_path / "mean")
    path = folder / "run.json"
    known = json.loads(path.read_text())
    known["identity"]["use_pooled_output"] = "False"
    path.write_text(json.dumps(known))
    classifier = albert_tf.from_pretrained(str(folder), "classification")
    assert not classifier.model.use_pooled_output
    expected = albert_tf.load_predictor(str(folder))(TEXTS)
    assert classifier(TEXTS) == expected != albert_tf.load_predictor(str(classifier_dir))(TEXTS)
    batch = classifier.tokenizer(TEXTS, max_length=17)
    padded = {n: np.pad(x, ((0, 0), (0, 17 - x.shape[1]))) for n, x in batch.items()}
    ours = tf.nn.softmax(classifier.model(padded)).numpy()
    theirs = [list(result["probabilities"].values()) for result in expected]
    np.testing.assert_allclose(ours, theirs, atol=1e-6)
    pooled = albert_tf.from_pretrained(str(folder), "classification", use_pooled_output=True)
    assert pooled.model.use_pooled_output


def test_the_current_weights_and_a_new_head_are_used(pretrained_dir):
    classifier = albert_tf.from_pretrained(str(pretrained_dir), "classification", num_labels=3)
    model, tokenizer = classifier
    rng = np.random.default_rng(3)
    for turn in range(2):
        expected = tf.nn.softmax(model(tokenizer(TEXTS))).numpy()
        found = classifier(TEXTS)
        assert list(found[0]["probabilities"]) == ["0", "1", "2"]
        ours = [list(result["probabilities"].values()) for result in found]
        np.testing.assert_allclose(ours, expected, atol=1e-6)
        embedded = tf.reduce_mean(model.encoder(tokenizer(TEXTS[:1]))["sequence_output"], 1)
        np.testing.assert_allclose(classifier.embed(TEXTS[:1]), embedded, atol=1e-5)
        if turn == 0:  # as training would
            for weight in model.weights:
                weight.assign_add(rng.normal(0, 0.1, weight.shape).astype(np.float32))


def test_other_tasks_of_the_folder_have_methods(pretrained_dir):
    folder = str(pretrained_dir)
    encoder = albert_tf.from_pretrained(folder)
    fill_mask = albert_tf.load_predictor(folder, "fill_mask", top_k=2)
    assert encoder.fill_mask(MASKED, top_k=2) == fill_mask(MASKED)
    assert encoder._predictor("fill_mask", top_k=2) is encoder._predictor("fill_mask", top_k=2)
    pretraining = albert_tf.from_pretrained(folder, "pretraining")
    assert pretraining([MASKED])[0]["masks"][0][:2] == fill_mask(MASKED)["masks"][0]
    for pooling in ("mean", "pooled"):
        expected = albert_tf.load_predictor(folder, pooling=pooling)(TEXTS)
        np.testing.assert_allclose(encoder.embed(TEXTS, pooling=pooling), expected, atol=1e-6)
    assert encoder("The river").shape == encoder.embed("A", "B").shape == (SIZE,)


def test_questions_are_answered(answers_dir):
    question, context = QUESTIONS[0][2], CONTEXTS[0]
    expected = albert_tf.load_predictor(str(answers_dir), top_k=2)(question, context)
    found = albert_tf.from_pretrained(str(answers_dir))
    assert found.answer(question, context, top_k=2) == expected
    assert found(question, context)["answer"] == expected["answer"]


def test_tokens_are_tagged_and_options_are_chosen(tmp_path, config_file, toy_spm_model):
    tags, choices = tmp_path / "tags", tmp_path / "choices"
    for folder, outputs in ((tags, 3), (choices, 1)):
        folder.mkdir()
        heads = {"output_weights": (outputs, SIZE), "output_bias": (outputs,)}
        write_folder(folder, config_file, toy_spm_model, heads)
    task = {"token_labels": ["B-LOC", "I-LOC", "O"], "tag_scheme": "iob2"}
    (tags / "task.json").write_text(json.dumps(task))
    expected = albert_tf.load_predictor(str(tags))(TEXTS)
    assert albert_tf.from_pretrained(str(tags)).tag(TEXTS) == expected
    asked = (TEXTS[0], "Where is _?", ["the sea", "a boat"])
    expected = albert_tf.load_predictor(str(choices), "multiple_choice")(*asked)
    assert albert_tf.from_pretrained(str(choices), "multiple_choice").choose(*asked) == expected
    with pytest.raises(ValueError, match="lists 3 labels, and the model has 2 outputs"):
        albert_tf.from_pretrained(str(tags), "token_classification", num_labels=2).tag(TEXTS)


def test_a_task_that_the_model_was_not_trained_for_is_rejected(pretrained_dir, classifier_dir):
    encoder = albert_tf.from_pretrained(str(pretrained_dir))
    with pytest.raises(ValueError, match="for embeddings, not for classification or regression"):
        encoder.classify("The river")
    with pytest.raises(ValueError, match="for embeddings, not for spans or answerable_spans"):
        encoder.answer("Who?", "The river")
    with pytest.raises(ValueError, match="no head for the task fill_mask"):
        albert_tf.from_pretrained(str(classifier_dir)).fill_mask(MASKED)

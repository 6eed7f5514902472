"""Tests which task is determined from the folder of a model."""

from __future__ import annotations

import logging as python_logging

import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from albert_tf import classification
from albert_tf.checkpoints import huggingface
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.run_record import RunRecord
from albert_tf.config import AlbertConfig
from albert_tf.inference.model_folder import ModelFolder
from tests.checkpoints.checkpoint_samples import random_arrays, random_weights
from tests.inference.conftest import write_folder

SIZE = 12


@pytest.mark.parametrize(
    ("heads", "task"),
    [
        ({}, "embeddings"),
        ({"output_weights": (3, SIZE), "output_bias": (3,)}, "classification"),
        ({"cls/squad/output_weights": (2, SIZE), "cls/squad/output_bias": (2,)}, "spans"),
        ({"start_logits/dense/kernel": (SIZE, 1)}, "answerable_spans"),
    ],
)
def test_without_a_record_the_head_determines_the_task(
    tmp_path, config_file, toy_spm_model, heads, task
):
    write_folder(tmp_path, config_file, toy_spm_model, heads)
    assert ModelFolder(str(tmp_path)).find_task() == task


@pytest.mark.parametrize(
    ("recorded", "task"),
    [("regression", "regression"), ("multiple_choice", "multiple_choice"), ("spans", None)],
)
def test_the_recorded_name_decides_if_the_checkpoint_has_its_head(
    tmp_path, config_file, toy_spm_model, recorded, task
):
    heads = {"output_weights": (1, SIZE), "output_bias": (1,)}
    write_folder(tmp_path, config_file, toy_spm_model, heads)
    RunFolder(str(tmp_path)).write_record(RunRecord(task={"name": recorded}))
    found = ModelFolder(str(tmp_path))
    if task is None:
        with pytest.raises(ValueError, match="a head that several tasks have"):
            found.find_task()
    else:
        assert found.find_task() == task


@pytest.mark.ci
def test_the_programs_record_their_tasks(classifier_dir, regression_dir, answers_dir):
    folders = map(str, (classifier_dir, regression_dir, answers_dir))
    names = [RunFolder(folder).record.task_name for folder in folders]
    assert names == ["classification", "regression", "answerable_spans"]


def test_a_head_with_one_output_and_no_task_is_rejected(tmp_path, config_file, toy_spm_model):
    heads = {"output_weights": (1, SIZE), "output_bias": (1,)}
    found = ModelFolder(str(write_folder(tmp_path, config_file, toy_spm_model, heads)))
    with pytest.raises(ValueError, match="pass the task, regression or multiple_choice"):
        found.find_task()
    assert found.find_task("regression") == "regression"


def test_a_task_without_its_head_is_rejected(pretrained_dir):
    found = ModelFolder(str(pretrained_dir))
    assert found.find_task("fill_mask") == "fill_mask"
    with pytest.raises(ValueError, match=r"no head for the task spans: .* for no task"):
        found.find_task("spans")
    with pytest.raises(ValueError, match="task='poetry': expected one of"):
        found.find_task("poetry")


@pytest.mark.ci
def test_the_folder_of_exports_is_that_of_the_newest(regression_dir):
    (export,) = (regression_dir / "export").iterdir()
    found = ModelFolder(str(export.parent))
    assert (found.folder, found.find_task()) == (str(export), "regression")
    ours, run = (albert_tf.from_pretrained(str(p))[0] for p in (export.parent, regression_dir))
    for weight, expected in zip(ours.get_weights(), run.get_weights(), strict=True):
        np.testing.assert_array_equal(weight, expected)


def test_unrecorded_labels_are_numbers_and_recorded_ones_must_fit(
    tmp_path, config_file, toy_spm_model
):
    heads = {"output_weights": (3, SIZE), "output_bias": (3,)}
    write_folder(tmp_path, config_file, toy_spm_model, heads)
    assert albert_tf.load_predictor(str(tmp_path)).labels == ("0", "1", "2")
    task = {"name": "classification", "labels": ["n", "y"]}
    RunFolder(str(tmp_path)).write_record(RunRecord(task=task))
    with pytest.raises(ValueError, match="lists 2 labels, and the model has 3 outputs"):
        albert_tf.load_predictor(str(tmp_path))


def test_settings_of_training_are_read(classifier_dir):
    found = ModelFolder(str(classifier_dir))
    names = ("max_seq_length", "use_pooled_output", "predict_batch_size", "learning_rate", "doc")
    values = found.settings(names, classification.Settings)
    assert values == {
        "max_seq_length": 17,
        "use_pooled_output": True,
        "predict_batch_size": 8,
        "learning_rate": 0.01,
    }


def write_without_pooler(folder, config_file, vocabulary, scope):
    """A folder by Hugging Face's converter, with the heads of a scope and no pooler."""
    config = AlbertConfig.from_json_file(str(config_file))
    weights = random_weights(config) | random_arrays(
        {"output_weights": (3, SIZE), "output_bias": (3,)}
    )
    kept = ("bert/e", scope)
    weights = {name: 0.3 * x for name, x in weights.items() if name.startswith(kept)}
    huggingface.save_hugging_face(str(folder), weights, config, spm_model_file=vocabulary)


@pytest.mark.ci
def test_masked_words_and_means_need_no_pooler(tmp_path, config_file, toy_spm_model, caplog):
    folder, text = str(tmp_path), "the [MASK] is wide."
    write_without_pooler(tmp_path, config_file, toy_spm_model, "cls/predictions/")
    with caplog.at_level(python_logging.WARNING, logger="absl"):
        filled = albert_tf.load_predictor(folder, "fill_mask")(text)
    assert "random" not in caplog.text
    export = albert_tf.export_saved_model(folder, str(tmp_path / "export"))
    assert albert_tf.load_predictor(export, "fill_mask")(text) == filled
    _, tokenizer = albert_tf.from_pretrained(folder, "embeddings")
    served = tf.saved_model.load(export).signatures["serving_default"]
    found = served(**tokenizer(text, return_tensors="tf"))
    for pooling in ("mean", "mean_last_4"):
        expected = albert_tf.load_predictor(folder, "embeddings", pooling=pooling)(text)
        np.testing.assert_allclose(found[pooling][0], expected, atol=1e-5)
    for place in (folder, export):
        with pytest.raises(ValueError, match=r"pooling='pooled' needs a pooler"):
            albert_tf.load_predictor(place, "embeddings", pooling="pooled")
    assert "pooled" not in found


@pytest.mark.ci
def test_a_classifier_without_a_pooler_is_refused(tmp_path, config_file, toy_spm_model):
    write_without_pooler(tmp_path, config_file, toy_spm_model, "output_")
    with pytest.raises(ValueError, match="classification needs a pooler"):
        albert_tf.load_predictor(str(tmp_path), "classification")

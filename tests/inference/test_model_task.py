"""Which task, labels and settings a folder says that its model was trained for."""

from __future__ import annotations

import os

import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from albert_tf.checkpoints import huggingface
from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.inference.model_task import find_predicted_task, find_task, possible_tasks
from albert_tf.model.config import AlbertConfig
from albert_tf.model.tokenization import FullTokenizer
from tests.checkpoints.checkpoint_samples import random_arrays, random_weights
from tests.inference.conftest import SIZE, write_folder

ONE_OUTPUT = {"output_weights": (1, SIZE), "output_bias": (1,)}
THREE_OUTPUTS = {"output_weights": (3, SIZE), "output_bias": (3,)}


@pytest.fixture
def write(tmp_path, config_file, toy_spm_model):
    """A function that writes a folder with heads and a record, and opens it."""

    def write(heads, **record):
        write_folder(tmp_path, config_file, toy_spm_model, heads, record or None)
        return ModelSource.open(str(tmp_path))

    return write


@pytest.mark.parametrize(
    ("heads", "task"),
    [
        ({}, "embeddings"),
        (THREE_OUTPUTS, "classification"),
        ({"cls/squad/output_weights": (2, SIZE), "cls/squad/output_bias": (2,)}, "spans"),
        ({"start_logits/dense/kernel": (SIZE, 1)}, "answerable_spans"),
    ],
)
def test_without_a_record_the_head_determines_the_task(write, heads, task):
    assert find_task(write(heads)) == task


@pytest.mark.parametrize("recorded", ["regression", "multiple_choice"])
def test_the_recorded_task_decides_between_those_with_the_same_head(write, recorded):
    assert find_task(write(ONE_OUTPUT, task={"name": recorded})) == recorded


def test_a_head_with_one_output_needs_a_task(write):
    found = write(ONE_OUTPUT)
    with pytest.raises(ValueError, match="pass the task, regression or multiple_choice"):
        find_task(found)


def test_a_task_without_its_head_is_refused(write, pretrained_dir):
    assert find_task(write(ONE_OUTPUT), "regression") == "regression"
    found = ModelSource.open(str(pretrained_dir))
    assert find_task(found, "fill_mask") == "fill_mask"
    assert possible_tasks(found) == ("embeddings", "fill_mask")
    with pytest.raises(ValueError, match=r"ckpt-best does not .* this task and model: cls/squad"):
        albert_tf.load_predictor(str(pretrained_dir), "spans")
    recorded = write(THREE_OUTPUTS, task={"name": "token_classification"})
    with pytest.raises(ValueError, match=r"task token_class.*, and has no head for classification"):
        find_task(recorded, "classification")


def test_unrecorded_labels_are_numbers_and_recorded_ones_must_fit(write):
    folder = write(THREE_OUTPUTS).folder
    assert albert_tf.load_predictor(folder).labels == ("0", "1", "2")
    write(THREE_OUTPUTS, task={"name": "classification", "labels": ["n", "y"]})
    with pytest.raises(ValueError, match="lists 2 labels, and the model has 3 outputs"):
        albert_tf.load_predictor(folder)


def test_settings_of_the_training_are_those_of_the_predictor(write):
    settings = {"max_seq_length": 17, "predict_batch_size": 3, "do_lower_case": False}
    others = {"report_to": ["wandb"], "learning_rate": [1e-5, 2e-5]}  # need not be installed
    found = write(THREE_OUTPUTS, settings=settings | others | {"use_pooled_output": False})
    assert not albert_tf.from_pretrained(found.folder)[0].use_pooled_output
    assert albert_tf.from_pretrained(found.folder, use_pooled_output=True)[0].use_pooled_output
    classify = albert_tf.load_predictor(found.folder)
    assert (classify.max_seq_length, classify._batch_size) == (17, 3)
    assert not classify.tokenizer.do_lower_case
    options = {"max_seq_length": 9, "batch_size": 2, "do_lower_case": True}
    given = albert_tf.load_predictor(found.folder, **options)
    assert (given.max_seq_length, given._batch_size) == (9, 2)
    assert given.tokenizer.do_lower_case


@pytest.mark.ci
def test_an_export_answers_by_its_weights_and_its_graph_is_not_loaded(saved, tmp_path):
    folder, parent = saved("regression"), tmp_path / "export"
    export = albert_tf.export_saved_model(folder, str(parent))
    with open(f"{export}/saved_model.pb", "wb") as stream:
        stream.write(b"not a graph")
    found = ModelSource.open(str(parent))
    assert (found.folder, find_task(found)) == (export, "regression")
    pairs = [("The river", "A boat"), ("\U0001f600", "")]
    wanted = albert_tf.load_predictor(folder)(pairs)
    for place in (str(parent), export):
        scores = [row["score"] for row in albert_tf.load_predictor(place)(pairs)]
        np.testing.assert_allclose(scores, [row["score"] for row in wanted], atol=1e-6)
    assert albert_tf.load_predictor(export, "embeddings")(pairs).shape == (2, SIZE)


def write_without_pooler(folder, config_file, vocabulary, scope):
    """A folder by Hugging Face's converter, with the heads of a scope and no pooler."""
    config = AlbertConfig.from_json_file(str(config_file))
    weights = random_weights(config) | random_arrays(THREE_OUTPUTS)
    kept = ("bert/e", scope)
    weights = {name: 0.3 * x for name, x in weights.items() if name.startswith(kept)}
    tokenizer = FullTokenizer(spm_model_file=str(vocabulary))
    huggingface.save_hugging_face(str(folder), weights, config, tokenizer)


def test_a_hugging_face_model_for_masked_words_predicts_them(
    tmp_path, config_file, toy_spm_model, caplog
):
    """As `pipeline(model=folder)` of transformers does; `from_pretrained` is as its AutoModel."""
    write_without_pooler(tmp_path, config_file, toy_spm_model, "cls/predictions/")

    def found(wanted=None):
        return find_predicted_task(ModelSource.open(str(tmp_path)), wanted)

    with caplog.at_level("INFO"):
        assert found("embeddings") == "embeddings"
        assert not caplog.text
        assert found() == "fill_mask"
    assert "opened as fill_mask" in caplog.text
    assert "for embeddings, pass task=embeddings" in caplog.text
    source = ModelSource.open(str(tmp_path))
    assert possible_tasks(source) == ("fill_mask", "embeddings")
    assert find_task(source) == "embeddings"  # of `from_pretrained`
    (tmp_path / "modules.json").write_text("[]", encoding="utf-8")
    assert found() == "embeddings"  # a folder of sentence-transformers


def test_a_config_that_promises_masked_words_needs_their_head(tmp_path, config_file, toy_spm_model):
    write_without_pooler(tmp_path, config_file, toy_spm_model, "bert/pooler")
    path = tmp_path / "config.json"
    path.write_text(path.read_text().replace("AlbertModel", "AlbertForMaskedLM"))
    assert find_predicted_task(ModelSource.open(str(tmp_path))) == "embeddings"


@pytest.mark.ci
def test_masked_words_and_means_need_no_pooler(tmp_path, config_file, toy_spm_model, caplog):
    folder, text = str(tmp_path), "the [MASK] is wide."
    write_without_pooler(tmp_path, config_file, toy_spm_model, "cls/predictions/")
    filled = albert_tf.load_predictor(folder)(text)
    assert "random" not in caplog.text
    export = albert_tf.export_saved_model(folder, os.path.join(folder, "export"))
    assert albert_tf.load_predictor(export, "fill_mask")(text) == filled
    _, tokenizer = albert_tf.from_pretrained(folder, "embeddings")
    served = tf.saved_model.load(export).signatures["serving_default"]
    found = served(**tokenizer(text, return_tensors="tf"))
    for pooling in ("mean", "mean_last_4"):
        expected = albert_tf.load_predictor(folder, "embeddings", pooling=pooling)(text)
        np.testing.assert_allclose(found[pooling][0], expected, atol=1e-5)
    assert "pooled" not in found
    for place in (folder, export):
        with pytest.raises(ValueError, match=r"pooling='pooled' needs a pooler"):
            albert_tf.load_predictor(place, "embeddings", pooling="pooled")


def test_a_classifier_without_a_pooler_is_refused(tmp_path, config_file, toy_spm_model):
    write_without_pooler(tmp_path, config_file, toy_spm_model, "output_")
    with pytest.raises(ValueError, match=r"not contain the weights of this task.* bert/pooler"):
        albert_tf.load_predictor(str(tmp_path), "classification")

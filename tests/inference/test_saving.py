"""Models that were trained with Keras are saved, and opened by everything that opens models."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import albert_tf
from albert_tf import tasks
from albert_tf.checkpoints import finding
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.store import save_checkpoint
from albert_tf.config import AlbertConfig
from albert_tf.inference.model_folder import ModelFolder
from tests.conftest import TINY_SHAPE
from tests.file_events import folders_at_each_event

pytestmark = pytest.mark.ci

TEXTS = ["the river is wide.", "a boat waits."]
CASES = {
    "classification": (albert_tf.AlbertForClassification, {"num_labels": 2}, ["water", "land"]),
    "mean of the last layer": (
        *(albert_tf.AlbertForClassification, {"num_labels": 2, "use_pooled_output": False}),
        ["water", "land"],
    ),
    "multi_label_classification": (
        *(albert_tf.AlbertForClassification, {"num_labels": 3, "is_multi_label": True}),
        ["water", "land", "ice"],
    ),
    "regression": (
        albert_tf.AlbertForClassification,
        {"num_labels": 1, "is_regression": True},
        None,
    ),
    "token_classification": (
        albert_tf.AlbertForTokenClassification,
        {"num_labels": 3},
        ["B-LOC", "I-LOC", "O"],
    ),
    "multiple_choice": (albert_tf.AlbertForMultipleChoice, {}, None),
    "spans": (albert_tf.AlbertForSpans, {}, None),
    "answerable_spans": (albert_tf.AlbertForAnswerableSpans, {"start_n_top": 3}, None),
    "fill_mask": (albert_tf.AlbertForPretraining, {"sentence_objective": "nsp"}, None),
    "sentence order": (albert_tf.AlbertForPretraining, {"sentence_objective": "sop"}, None),
    "masked words alone": (albert_tf.AlbertForPretraining, {"sentence_objective": "none"}, None),
    "embeddings": (albert_tf.AlbertEncoder, {}, None),
}
# Arguments of the predictors.
INPUTS = {
    "token_classification": [[["the", "river"]]],
    "multiple_choice": [TEXTS[0], "what?", ["the river", "a boat"]],
    "spans": ["what is wide?", TEXTS[0]],
    "answerable_spans": ["what is wide?", TEXTS[0]],
    "fill_mask": [["the [MASK] is wide."]],
}
SHAPE = TINY_SHAPE | {"max_position_embeddings": 90}


def make(name, tokenizer):
    """A model whose weights are not those of a new one."""
    kind, arguments, labels = CASES[name]
    tf_keras.utils.set_random_seed(7)
    model = kind(AlbertConfig(**SHAPE | {"vocab_size": tokenizer.vocab_size}), **arguments)
    shape = (1, 2, 5) if kind is albert_tf.AlbertForMultipleChoice else (1, 5)
    model(tf.ones(shape, tf.int32))
    rng = np.random.default_rng(3)
    for variable in model.variables:
        variable.assign(rng.standard_normal(variable.shape) * 0.1)
    return model, labels


@pytest.mark.parametrize("name", CASES)
def test_a_saved_model_predicts_as_before(name, tmp_path, toy_tokenizer):
    model, labels = make(name, toy_tokenizer)
    albert_tf.save_pretrained(model, str(tmp_path), toy_tokenizer, labels)
    is_pretraining = isinstance(model, albert_tf.AlbertForPretraining)
    task = "fill_mask" if is_pretraining else "classification"
    task = name if name in tasks.names() else task
    if not is_pretraining:
        assert ModelFolder(str(tmp_path)).find_task() == task
    found, tokenizer = albert_tf.from_pretrained(str(tmp_path), task)
    assert type(found) is type(model)
    assert found.get_config() | {"name": ""} == model.get_config() | {"name": ""}
    expected = {variable.name: variable.numpy() for variable in model.variables}
    assert {variable.name for variable in found.variables} == set(expected)
    for variable in found.variables:
        np.testing.assert_array_equal(variable.numpy(), expected[variable.name])
    assert albert_tf.load_checkpoint(model, str(tmp_path)).missing == []
    assert tokenizer.checksum == toy_tokenizer.checksum
    predicted = albert_tf.load_predictor(str(tmp_path), task)(*INPUTS.get(task, [TEXTS]))
    assert len(predicted)
    if labels and task == "classification":
        assert set(predicted[0]["probabilities"]) == set(labels)


def test_saving_again_replaces_the_model(tmp_path, toy_tokenizer):
    model, labels = make("classification", toy_tokenizer)
    albert_tf.save_pretrained(model, str(tmp_path), toy_tokenizer, labels)
    before = albert_tf.load_predictor(str(tmp_path))(TEXTS[0])
    model.variables[-1].assign_add([1.0, -1.0])
    albert_tf.save_pretrained(model, str(tmp_path), toy_tokenizer, ["sea", "sky"])
    after = albert_tf.load_predictor(str(tmp_path))(TEXTS[0])
    assert set(after["probabilities"]) == {"sea", "sky"}
    assert after["probabilities"]["sea"] > before["probabilities"]["water"]


def test_a_kill_leaves_the_old_model_or_the_new_one(tmp_path, toy_tokenizer):
    """At every event in the folder, whatever opens it first: its model, its config, its labels."""
    folder = tmp_path / "model"
    first, old = make("classification", toy_tokenizer)
    albert_tf.save_pretrained(first, str(folder), toy_tokenizer, old)
    (folder / "notes.txt").write_text("mine")
    config = dataclasses.replace(first.config, num_attention_heads=2)
    second, new = albert_tf.AlbertForClassification(config, 2), ["sea", "sky"]
    places = folders_at_each_event(
        folder,
        tmp_path / "at",
        lambda: albert_tf.save_pretrained(second, str(folder), toy_tokenizer, new),
    )
    batch, found = toy_tokenizer(TEXTS), []
    for place in places:
        prefix = f"{place}/model.ckpt-best"
        is_new = finding.find_config(finding.folder_of(prefix)) and bool(
            AlbertConfig.from_json_file(f"{place}/albert_config.json").num_attention_heads == 2
        )
        model, labels = (second, new) if is_new else (first, old)
        loaded, _ = albert_tf.from_pretrained(str(place))
        np.testing.assert_allclose(loaded(batch), model(batch), atol=1e-6)
        assert list(RunFolder(str(place)).record.labels) == labels
        assert (place / "notes.txt").read_text() == "mine"
        found.append(is_new)
    assert found == sorted(found)
    assert found.count(False) > 10
    assert found.count(True) > 5


def test_without_a_tokenizer_the_weights_are_saved(tmp_path, toy_tokenizer):
    model, _ = make("embeddings", toy_tokenizer)
    albert_tf.save_pretrained(model, str(tmp_path))
    other = albert_tf.AlbertEncoder(model.config)
    assert albert_tf.load_checkpoint(other, str(tmp_path)).fits


@pytest.mark.parametrize(
    ("name", "labels", "named"),
    [
        ("classification", ["a"], ["a", "2"]),
        ("classification", ["a", "a"], ["a", "2"]),
        ("spans", ["a", "b"], ["a", "AlbertForSpans"]),
    ],
)
def test_labels_are_checked(tmp_path, toy_tokenizer, name, labels, named):
    model, _ = make(name, toy_tokenizer)
    with pytest.raises(ValueError, match="labels=") as refused:
        albert_tf.save_pretrained(model, str(tmp_path / "new"), toy_tokenizer, labels)
    assert all(text in str(refused.value) for text in named)
    assert not (tmp_path / "new").exists()


def test_nothing_of_others_is_replaced(tmp_path, toy_tokenizer):
    model, labels = make("classification", toy_tokenizer)
    save_checkpoint(f"{tmp_path}/run/model.ckpt-7", {"x": np.zeros(1)})
    with pytest.raises(ValueError, match=r"model\.ckpt-7"):
        albert_tf.save_pretrained(model, f"{tmp_path}/run", toy_tokenizer, labels)
    (tmp_path / "vocab.txt").write_text("[PAD]\n")
    with pytest.raises(ValueError, match=r"vocab\.txt"):
        albert_tf.save_pretrained(model, str(tmp_path), toy_tokenizer, labels)


def test_other_models_and_models_without_weights_are_refused(tmp_path):
    layer = tf_keras.layers.Dense(2)
    with pytest.raises(ValueError, match="Dense has no weights yet"):
        albert_tf.save_pretrained(layer, str(tmp_path))
    layer(tf.ones((1, 2)))
    with pytest.raises(ValueError, match=r"Dense.*AlbertForClassification"):
        albert_tf.save_pretrained(layer, str(tmp_path))


@pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated:UserWarning")
def test_an_export_of_spans_leaves_room_for_the_question(tmp_path, toy_tokenizer):
    model, _ = make("spans", toy_tokenizer)
    folder, export_dir = str(tmp_path / "saved"), tmp_path / "export"
    albert_tf.save_pretrained(model, folder, toy_tokenizer)
    with pytest.raises(
        ValueError, match=r"max_seq_length=67 .*max_query_length=64 .* expected 68 or more"
    ):
        albert_tf.export_saved_model(folder, str(export_dir), max_seq_length=67)
    assert not export_dir.exists()
    albert_tf.export_saved_model(folder, str(export_dir))
    lite = tf.lite.Interpreter(f"{export_dir}/albert_model.tflite")
    assert {tuple(found["shape"]) for found in lite.get_input_details()} == {(1, 90)}


def test_the_callback_keeps_the_best_epoch(tmp_path, toy_tokenizer):
    model, labels = make("classification", toy_tokenizer)
    keep = albert_tf.PretrainedCheckpoint(str(tmp_path), toy_tokenizer, labels, "loss")
    keep.set_model(model)
    keep.on_epoch_end(0, {"loss": 0.5})
    expected = [variable.numpy() for variable in model.variables]
    model.variables[-1].assign_add([1.0, -1.0])
    keep.on_epoch_end(1, {"loss": 0.75})
    assert keep.best == 0.5
    found, _ = albert_tf.from_pretrained(str(tmp_path))
    for weight, value in zip(found.variables, expected, strict=True):
        np.testing.assert_array_equal(weight, value)
    with pytest.raises(ValueError, match="monitor='loss': expected one of val_loss"):
        keep.on_epoch_end(2, {"val_loss": 0.1})

"""Models that were trained with Keras are saved, and opened by everything that opens models."""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import tf_keras

import albert_tf
from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.store import save_checkpoint
from albert_tf.checkpoints.weight_names import variable_name
from albert_tf.finetuning import registry
from albert_tf.inference.model_task import find_task
from albert_tf.inference.saving import save_tokenizer
from albert_tf.model.tokenization import FullTokenizer
from tests.file_events import folders_at_each_event
from tests.inference.conftest import KINDS, make_model

TEXTS = ["the river is wide.", "a boat waits."]
# Arguments of the predictors.
INPUTS = {
    "token_classification": [[["the", "river"]]],
    "multiple_choice": [TEXTS[0], "what?", ["the river", "a boat"]],
    "spans": ["what is wide?", TEXTS[0]],
    "answerable_spans": ["what is wide?", TEXTS[0]],
    "fill_mask": [["the [MASK] is wide."]],
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_model_is_opened_as_it_was(kind, saved, toy_tokenizer):
    model, labels, folder = make_model(kind, toy_tokenizer), KINDS[kind][2], saved(kind)
    is_pretraining = isinstance(model, albert_tf.AlbertForPretraining)
    task = "fill_mask" if is_pretraining else "classification"
    task = kind if kind in registry.names() else task
    if not is_pretraining:
        assert find_task(ModelSource.open(folder)) == task
    found, tokenizer = albert_tf.from_pretrained(folder, task if is_pretraining else None)
    assert type(found) is type(model)
    named = {"name": ""} | ({"labels": labels} if labels and "labels" in model.get_config() else {})
    assert found.get_config() | {"name": ""} == model.get_config() | named
    assert [weight.name for weight in found.weights] == [weight.name for weight in model.weights]
    for weight, expected in zip(found.weights, model.weights, strict=True):
        np.testing.assert_array_equal(weight, expected)
    assert albert_tf.load_checkpoint(model, folder).missing == []
    assert tokenizer.checksum == toy_tokenizer.checksum
    predicted = albert_tf.load_predictor(folder, task)(*INPUTS.get(task, [TEXTS]))
    assert len(predicted)
    if labels and task == "classification":
        assert set(predicted[0]["probabilities"]) == set(labels)


def test_saving_again_replaces_the_model_and_nothing_else(tmp_path, toy_tokenizer):
    """A kill leaves the old one or the new one: tests/checkpoints/test_replacing.py."""
    (tmp_path / "notes.txt").write_text("mine")
    for kind in ("classification", "multi_label_classification"):
        model = make_model(kind, toy_tokenizer)
        albert_tf.save_pretrained(model, str(tmp_path), toy_tokenizer, KINDS[kind][2])
    assert albert_tf.load_predictor(str(tmp_path)).labels == ("water", "land", "ice")
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_the_old_or_the_new_model_is_opened_whole_and_nothing_is_written(tmp_path, toy_tokenizer):
    """At every moment of a replacement; the new model has no vocabulary, and the old one stays."""
    folder = tmp_path / "model"
    old, new = (make_model(kind, toy_tokenizer) for kind in ("classification", "spans"))
    albert_tf.save_pretrained(old, str(folder), toy_tokenizer, ["no", "yes"])

    def replace():
        albert_tf.save_pretrained(new, str(folder))

    found = []

    def open_it(place):
        source = ModelSource.open(str(place))
        assert source.tokenizer.checksum == toy_tokenizer.checksum
        found.append((source.run.record.task_name, source.recognized.entries.keys()))

    for place in folders_at_each_event(folder, tmp_path / "at", replace):
        events = folders_at_each_event(place, tmp_path / "none", lambda p=place: open_it(p))
        assert len(events) == 1
        shutil.rmtree(tmp_path / "none")
    names = [frozenset(map(variable_name, model.variables)) for model in (old, new)]
    expected = [("classification", names[0]), ("spans", names[1])]
    places = [expected.index(each) for each in found]
    assert places == sorted(places)
    assert places.count(0) >= 4
    assert places.count(1) >= 4


@pytest.mark.parametrize(
    ("kind", "labels", "said"),
    [
        ("classification", ["a", "a"], r"labels=\['a', 'a'\]: expected 2 different ones"),
        ("classification", "ab", r"labels=\['ab'\]: expected 2 different ones"),
        ("classification", {"a": 0, "b": 1}, "labels={'a': 0, 'b': 1}: expected a text"),
        ("spans", ["a", "b"], r"labels=\['a', 'b'\]: a AlbertForSpans has none"),
    ],
)
def test_labels_are_checked_before_anything_is_written(tmp_path, toy_tokenizer, kind, labels, said):
    model = make_model(kind, toy_tokenizer)
    with pytest.raises(ValueError, match=said):
        albert_tf.save_pretrained(model, str(tmp_path / "new"), toy_tokenizer, labels)
    assert not (tmp_path / "new").exists()


def test_paths_of_pathlib_and_arrays_of_labels_are_taken(
    tmp_path, toy_tokenizer, toy_spm_model, config_file
):
    model = make_model("classification", toy_tokenizer)
    folder, again, best = (tmp_path / name for name in ("folder", "again", "best"))
    albert_tf.save_pretrained(model, folder, toy_tokenizer, np.array(["land", "water"]))
    predict = albert_tf.load_predictor(folder)
    assert predict.labels == ("land", "water")
    config = folder / "albert_config.json"
    model, tokenizer = albert_tf.from_pretrained(
        folder, config_file=config, spm_model_file=Path(toy_spm_model)
    )
    model.save_pretrained(again, labels="land,water")
    tokenizer.save_pretrained(again)
    assert albert_tf.load_predictor(again)(TEXTS) == predict(TEXTS)
    assert albert_tf.load_checkpoint(model, again).fits
    assert albert_tf.PretrainedCheckpoint(best).folder == str(best)
    exported = albert_tf.export_saved_model(again, best)
    assert Path(exported).parent == best
    known = albert_tf.AlbertConfig.from_json_file(config)
    known.to_json_file(tmp_path / "config.json")
    assert albert_tf.AlbertConfig.from_json_file(str(tmp_path / "config.json")) == known
    assert albert_tf.FullTokenizer(spm_model_file=Path(toy_spm_model)).vocab == tokenizer.vocab


@pytest.mark.parametrize("wrong", [b"folder", 7, ["a", "b"]])
def test_what_is_no_path_is_refused_by_all(tmp_path, saved, toy_tokenizer, wrong):
    model, _ = albert_tf.from_pretrained(saved("classification"))
    for call in (
        albert_tf.from_pretrained,
        albert_tf.load_predictor,
        functools.partial(albert_tf.load_checkpoint, model),
        functools.partial(albert_tf.save_pretrained, model),
        model.save_pretrained,
        albert_tf.PretrainedCheckpoint,
        albert_tf.AlbertConfig.from_json_file,
        albert_tf.FullTokenizer,
        functools.partial(albert_tf.export_saved_model, saved("classification")),
    ):
        with pytest.raises(ValueError, match=r"=.*: expected a path as str or pathlib.Path, got a"):
            call(wrong)


def test_a_scheme_that_pathlib_has_shortened_is_named():
    with pytest.raises(
        FileNotFoundError, match=r"pathlib has made :/ of ://: pass gs://… as a str"
    ):
        albert_tf.load_predictor(Path("gs://bucket/model"))


def test_paths_in_place_of_model_and_tokenizer_are_refused(tmp_path):
    with pytest.raises(
        ValueError, match=r"^tokenizer='a\.model': expected that of from_pretrained"
    ):
        albert_tf.save_pretrained(None, str(tmp_path), "a.model")
    with pytest.raises(ValueError, match=r"^cannot save a str: expected one of Albert"):
        albert_tf.save_pretrained("folder", str(tmp_path))


def test_labels_stay_with_a_model(tmp_path, toy_tokenizer):
    folder, again, other = (str(tmp_path / name) for name in ("first", "again", "other"))
    model = make_model("classification", toy_tokenizer)
    albert_tf.save_pretrained(model, folder, toy_tokenizer, ["negative", "positive"])
    model, tokenizer = albert_tf.from_pretrained(folder)
    albert_tf.save_pretrained(model, again, tokenizer)
    assert RunFolder(again).record.labels == ("negative", "positive")
    # A head for another task, or with another number of labels, has none.
    albert_tf.save_pretrained(
        albert_tf.from_pretrained(folder, "token_classification", num_labels=2)[0], other
    )
    assert RunFolder(other).record.labels == ("0", "1")
    assert not albert_tf.from_pretrained(folder, num_labels=3)[0].labels
    with pytest.raises(ValueError, match=r"labels=\['a'\]: expected 2 different ones"):
        albert_tf.from_pretrained(folder, labels=["a"])


@pytest.mark.parametrize("order", ["model first", "tokenizer first", "model alone"])
def test_a_model_and_its_tokenizer_have_the_methods_of_transformers(tmp_path, toy_spm_model, order):
    cased = FullTokenizer(spm_model_file=str(toy_spm_model), do_lower_case=False)
    labels = ["negative", "positive"]
    folder, again = str(tmp_path / "first"), str(tmp_path / "again")
    albert_tf.save_pretrained(make_model("classification", cased), folder, cased, labels)
    model, tokenizer = albert_tf.from_pretrained(folder)
    if order == "tokenizer first":
        tokenizer.save_pretrained(again)
    model.save_pretrained(again)
    if order == "model first":
        tokenizer.save_pretrained(again)
    for name in sorted(os.listdir(folder)):
        first, second = (Path(place, name).read_text("latin-1") for place in (folder, again))
        assert first.replace(folder, again) == second
    assert sorted(os.listdir(again)) == sorted(os.listdir(folder))


def test_a_tokenizer_is_saved_beside_a_model_and_stays_when_this_is_saved_again(
    tmp_path, toy_spm_model
):
    cased = FullTokenizer(spm_model_file=str(toy_spm_model), do_lower_case=False)
    folder, bare = str(tmp_path / "whole"), str(tmp_path / "bare")
    model = make_model("classification", cased)
    albert_tf.save_pretrained(model, folder, cased, ["no", "yes"])
    albert_tf.save_pretrained(model, bare, labels=["no", "yes"])
    tokenizer = albert_tf.from_pretrained(folder)[1]
    for _ in range(2):
        tokenizer.save_pretrained(bare)
        found = ModelSource.open(bare)
        assert found.run.record.labels == ("no", "yes")
        assert found.tokenizer.do_lower_case is False
        albert_tf.save_pretrained(model, bare, labels=["no", "yes"])
        assert ModelSource.open(bare).tokenizer.do_lower_case is False
    shutil.copy(toy_spm_model, tmp_path / "other.model")
    with pytest.raises(ValueError, match=r"has another vocabulary, .*other\.model"):
        tokenizer.save_pretrained(str(tmp_path))


@pytest.mark.ci
def test_a_model_with_the_method_is_saved_by_keras_too(tmp_path, saved):
    model, tokenizer = albert_tf.from_pretrained(saved("classification"))
    model.save(tmp_path / "model.keras")
    batch = tokenizer(TEXTS)
    again = tf_keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again(batch), model(batch))
    encoder, _ = albert_tf.from_pretrained(saved("embeddings"))
    ids = tf_keras.Input((None,), dtype="int32")
    whole = tf_keras.Model(ids, encoder(ids)["pooled_output"])
    clone = tf_keras.models.clone_model(whole)
    assert clone.count_params() == whole.count_params()
    assert pickle.loads(pickle.dumps(tokenizer)).checksum == tokenizer.checksum


def test_nothing_of_others_is_replaced(tmp_path, toy_tokenizer):
    model = make_model("classification", toy_tokenizer)
    save_checkpoint(f"{tmp_path}/run/model.ckpt-7", {"x": np.zeros(1)})
    with pytest.raises(ValueError, match=r"model\.ckpt-7"):
        albert_tf.save_pretrained(model, f"{tmp_path}/run", toy_tokenizer)
    (tmp_path / "vocab.txt").write_text("[PAD]\n")
    with pytest.raises(ValueError, match=r"vocab\.txt"):
        albert_tf.save_pretrained(model, str(tmp_path), toy_tokenizer)


def test_a_model_is_opened_whole_while_its_tokenizer_is_saved(tmp_path, toy_tokenizer):
    """At every moment."""
    folder = tmp_path / "model"
    albert_tf.save_pretrained(make_model("spans", toy_tokenizer), str(folder), toy_tokenizer)
    (folder / "notes.txt").write_text("mine")
    before = sorted(os.listdir(folder))
    places = folders_at_each_event(
        folder, tmp_path / "at", lambda: save_tokenizer(toy_tokenizer, str(folder))
    )
    for place in places:
        source = ModelSource.open(str(place))
        assert source.run.record.task_name == "spans"
        assert source.tokenizer.checksum == toy_tokenizer.checksum
        assert len(source.recognized.entries) > 1
    assert sorted(os.listdir(folder)) == before


@pytest.mark.parametrize("by", ["model", "tokenizer"])
@pytest.mark.parametrize("refused_for", ["", "run", "vocabulary", "damage"])
def test_an_interrupted_save_is_finished_where_a_model_may_be_saved(
    tmp_path, toy_tokenizer, by, refused_for
):
    """A folder that is refused stays as it is, and so does what is beside it."""
    folder, bashrc = tmp_path / "model", tmp_path / ".bashrc"
    bashrc.write_text("mine")
    model = make_model("classification", toy_tokenizer)
    albert_tf.save_pretrained(model, str(folder), toy_tokenizer, ["no", "yes"])
    hidden = shutil.copytree(folder, folder / ".replacing-0a1b2c3d")
    (folder / "run.json").unlink()  # in its place last
    (hidden / ".bashrc").write_text("theirs")
    names = [path.name for path in hidden.iterdir() if path.name != ".bashrc"]
    (hidden / "complete").write_text("\n".join(names))
    if refused_for == "run":
        save_checkpoint(f"{folder}/model.ckpt-7", {"x": np.zeros(1)})
    elif refused_for == "vocabulary":
        (hidden / "vocab.txt").write_text("[PAD]\n")
    elif refused_for == "damage":
        (hidden / "complete").write_text("\n".join([*names, "../../.bashrc"]))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    said = {"run": "checkpoints of a run", "vocabulary": "another voc", "damage": "names '../../.b"}
    refused = pytest.raises(ValueError, match=said.get(refused_for))
    with refused if refused_for else contextlib.nullcontext():
        if by == "model":
            albert_tf.save_pretrained(model, str(folder), toy_tokenizer, ["no", "yes"])
        else:
            save_tokenizer(toy_tokenizer, str(folder))
    assert bashrc.read_text() == "mine"
    if refused_for:
        assert before == {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    else:
        assert RunFolder(str(folder)).record.labels == ("no", "yes")
        assert not hidden.exists()


def test_an_export_of_spans_leaves_room_for_the_question(saved, tmp_path):
    said = r"max_seq_length=67 .*max_query_length=64 .* expected 68 or more"
    with pytest.raises(ValueError, match=said):
        albert_tf.export_saved_model(saved("spans"), str(tmp_path / "export"), max_seq_length=67)
    assert not (tmp_path / "export").exists()


@pytest.mark.parametrize(("mode", "kept"), [("min", 1), ("max", 2)])
def test_the_callback_keeps_the_best_epoch(tmp_path, toy_tokenizer, mode, kept):
    model = make_model("classification", toy_tokenizer)
    keep = albert_tf.PretrainedCheckpoint(str(tmp_path), toy_tokenizer, None, "loss", mode)
    keep.set_model(model)
    keep.on_train_begin()
    states = []
    for loss in (0.5, 0.25, 0.75, 0.5):
        model.variables[-1].assign_add([1.0, -1.0])
        states.append(model.variables[-1].numpy())
        keep.on_epoch_end(len(states), {"loss": loss})
    assert keep.best == [0.5, 0.25, 0.75, 0.5][kept]
    found, _ = albert_tf.from_pretrained(str(tmp_path))
    np.testing.assert_array_equal(found.variables[-1], states[kept])
    with pytest.raises(ValueError, match="monitor='loss': expected one of val_loss"):
        keep.on_epoch_end(2, {"val_loss": 0.1})

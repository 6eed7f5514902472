"""The converter: every form and back, and what it refuses."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import shutil

import numpy as np
import pytest

from albert_tf.checkpoints.containers import open_checkpoint
from albert_tf.checkpoints.loading import inspect_checkpoint, read_weights
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.run_record import RunRecord
from albert_tf.checkpoints.store import save_checkpoint
from albert_tf.export.convert import Settings, run
from albert_tf.model.config import AlbertConfig
from tests.checkpoints.checkpoint_samples import (
    ALBERT_ZH,
    GOOGLE,
    PRE_LN,
    SHARED,
    random_arrays,
    random_weights,
)

SMALL = dataclasses.replace(GOOGLE, num_hidden_layers=3, num_hidden_groups=2)
SHORT = dataclasses.replace(SHARED, num_hidden_layers=2)
ZH, PRE_LN_ZH = (dataclasses.replace(config, num_hidden_layers=2) for config in (ALBERT_ZH, PRE_LN))


def convert(settings):
    """The lines that the program prints."""
    return "\n".join(run(settings))


def make_input(folder, weights, config):
    """A folder as released ones are: a checkpoint and its config."""
    folder.mkdir(parents=True)
    save_checkpoint(str(folder / "model.ckpt-best"), weights)
    config.to_json_file(str(folder / "albert_config.json"))
    return str(folder)


@pytest.fixture
def google(tmp_path):
    """A checkpoint of Google's layout with groups, as a folder."""
    return make_input(tmp_path / "google", random_weights(SMALL), SMALL)


def fine_tuned(folder, labels, task=None, settings=None):
    """The folder of a run: a checkpoint with a classifier, and run.json."""
    head = random_arrays({"output_weights": (labels, 12), "output_bias": (labels,)})
    weights = {n: x for n, x in random_weights(SHORT).items() if n.startswith("bert/")} | head
    source = make_input(folder, weights, SHORT)
    RunFolder(str(folder)).write_record(RunRecord(settings=settings or {}, task=task or {}))
    return source, weights


def assert_same(arrays, expected):
    assert set(arrays) == set(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(arrays[name], value, name)


@pytest.mark.parametrize(
    "output_format",
    [
        "tensorflow",
        "huggingface",
        pytest.param("tf_hub", marks=pytest.mark.ci),
        pytest.param("saved_model", marks=pytest.mark.ci),
    ],
)
def test_every_form_and_back_is_the_same_bit_for_bit(google, output_format, tmp_path):
    there, back = str(tmp_path / "new" / "there"), str(tmp_path / "back")
    convert(Settings(google, there, output_format))
    convert(Settings(there, back))
    assert_same(read_weights(back), random_weights(SMALL))
    assert AlbertConfig.from_json_file(f"{back}/albert_config.json") == SMALL
    assert os.listdir(tmp_path / "new") == ["there"]


def test_the_vocabulary_and_the_objective_of_the_training_stay_known(google, tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nsea\n")
    given, again = str(tmp_path / "given"), str(tmp_path / "again")
    RunFolder(google).write_record(RunRecord(settings={"sentence_objective": "nsp"}))
    convert(Settings(google, given, "huggingface", vocab_file=str(path)))
    known = RunFolder(given).record
    assert known.files["vocabulary"].digest.startswith("6 entries, sha256 ")
    assert known.settings == {"sentence_objective": "nsp", "do_lower_case": True}
    convert(Settings(given, again))
    assert RunFolder(again).record == known
    assert_same(read_weights(again), random_weights(SMALL))
    path.write_text(path.read_text().replace("sea", "sky"))
    with pytest.raises(ValueError, match=r"trained with another vocabulary: 6 entries"):
        convert(Settings(again, str(tmp_path / "other"), vocab_file=str(path)))
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("config", [ZH, PRE_LN_ZH])
def test_albert_zh_keeps_its_layout_bit_for_bit(config, tmp_path):
    source, target = make_input(tmp_path / "zh", random_weights(config), config), tmp_path / "a"
    convert(Settings(source, str(target)))
    assert_same(read_weights(str(target)), random_weights(config))
    assert AlbertConfig.from_json_file(str(target / "albert_config.json")) == config
    merged = Settings(source, str(tmp_path / "hf"), "huggingface", merge_embeddings=True)
    if config is PRE_LN_ZH:
        with pytest.raises(ValueError, match="Google's layout does not support pre-LN models"):
            convert(merged)
    else:
        convert(merged)
        values = json.loads((tmp_path / "hf" / "config.json").read_text())
        assert (values["embedding_size"], values["num_hidden_groups"]) == (12, 1)


def test_heads_of_tasks_are_kept_and_moments_left_behind(tmp_path):
    source, weights = fine_tuned(tmp_path / "fine_tuned", 3)
    moments = {f"{name}/adam_v": value for name, value in weights.items()}
    step = {"global_step": np.int64(125000)}
    save_checkpoint(f"{source}/model.ckpt-best", weights | moments | step)
    for number, output_format in enumerate(("huggingface", "tensorflow")):
        target = str(tmp_path / f"out{number}")
        found, written = convert(Settings(source, target, output_format)).splitlines()
        assert found.endswith("Google ALBERT (TensorFlow checkpoint), 27 weights")
        assert written == f"wrote {target} ({output_format})"
        assert_same(read_weights(target), weights)
    assert inspect_checkpoint(target).bookkeeping == 1
    written = open_checkpoint(f"{target}/model.ckpt-best").get_tensor("global_step")
    assert (written, written.dtype) == (0, np.int64)


def test_a_module_of_tf_hub_needs_a_pooler(tmp_path):
    kept = ("bert/e", "cls/predictions/")
    weights = {name: x for name, x in random_weights(SHORT).items() if name.startswith(kept)}
    source = make_input(tmp_path / "there", weights, SHORT)
    with pytest.raises(ValueError, match="no pooler, and --output_format=tf_hub"):
        convert(Settings(source, str(tmp_path / "hub"), "tf_hub"))
    assert not (tmp_path / "hub").exists()


def test_vocabulary_and_labels_come_along_both_ways(tmp_path, toy_spm_model):
    task = {"name": "classification", "labels": ["no", "可"]}
    source, _ = fine_tuned(tmp_path / "run", 2, task)
    shutil.copyfile(toy_spm_model, tmp_path / "run" / "our.model")
    there, back, foreign = tmp_path / "hf", tmp_path / "back", tmp_path / "foreign"
    convert(Settings(source, str(there), "huggingface", do_lower_case=False))
    convert(Settings(str(there), str(back)))
    content = pathlib.Path(toy_spm_model).read_bytes()
    assert (there / "spiece.model").read_bytes() == (back / "spiece.model").read_bytes() == content
    assert (there / "tokenizer.json").exists()
    assert not json.loads((there / "tokenizer_config.json").read_text())["do_lower_case"]
    assert RunFolder(str(back)).record.settings["do_lower_case"] is False
    assert json.loads((there / "config.json").read_text())["id2label"] == {"0": "no", "1": "可"}
    assert RunFolder(str(back)).record.task == task
    # A folder from elsewhere has config.json alone.
    (there / "run.json").unlink()
    convert(Settings(str(there), str(foreign)))
    assert RunFolder(str(foreign)).record.task == task


def test_a_head_that_hugging_face_lacks_is_refused(tmp_path):
    task, settings = {"name": "classification"}, {"use_pooled_output": False}
    source, _ = fine_tuned(tmp_path / "mean", 2, task, settings)
    with pytest.raises(ValueError, match="classifies the pooled output, but this model"):
        convert(Settings(source, str(tmp_path / "refused"), "huggingface"))
    assert not (tmp_path / "refused").exists()


def test_inspecting_a_fine_tuned_model_names_its_task_and_its_head(tmp_path):
    task = {"name": "classification", "labels": ["no", "yes"]}
    source, _ = fine_tuned(tmp_path / "model", 2, task, {})
    printed = convert(Settings(source, inspect=True)).splitlines()
    assert printed[-3:] == [
        "  head       output_bias",
        "  head       output_weights",
        "  fine-tuned for classification, labels 'no', 'yes'; programs that open it load its head",
    ]


def test_inspecting_prints_the_table_and_writes_nothing(google, tmp_path):
    printed = convert(Settings(google, inspect=True))
    assert "model.ckpt-best: Google ALBERT (TensorFlow checkpoint)" in printed
    assert "weights: embeddings 7, encoder 32, pooler 2, masked-LM head 5" in printed
    dataclasses.replace(SMALL, hidden_size=16).to_json_file(f"{google}/albert_config.json")
    lines = run(Settings(google, inspect=True))
    assert "hidden_size is 12 in the checkpoint, 16 in the config" in next(lines)
    with pytest.raises(SystemExit, match="1"):
        next(lines)
    with pytest.raises(ValueError, match=r"hidden_size is 12 .*\n(.*\n)*This checkpoint cannot be"):
        convert(Settings(google, str(tmp_path / "out")))
    os.remove(f"{google}/albert_config.json")
    convert(Settings(google, inspect=True))
    assert os.listdir(tmp_path) == ["google"]

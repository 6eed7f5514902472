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
from albert_tf.cli.convert_checkpoint import Settings, convert
from albert_tf.config import AlbertConfig
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


def make_input(folder, weights, config):
    """A folder as released ones are: a checkpoint and its config."""
    folder.mkdir(parents=True)
    save_checkpoint(str(folder / "model.ckpt-best"), weights)
    if config is not None:
        config.to_json_file(str(folder / "albert_config.json"))
    return str(folder)


@pytest.fixture(name="google")
def make_google(tmp_path):
    """A checkpoint of Google's layout with groups, as a folder."""
    return make_input(tmp_path / "google", random_weights(SMALL), SMALL)


def fine_tuned(folder, labels, task=None, settings=None):
    """The folder of a run: a checkpoint with a classifier, and run.json."""
    head = random_arrays({"output_weights": (labels, 12), "output_bias": (labels,)})
    weights = {n: x for n, x in random_weights(SHORT).items() if n.startswith("bert/")} | head
    source = make_input(folder, weights, SHORT)
    record = RunRecord(settings=settings or {}, task=task or {})
    RunFolder(str(folder)).write_record(record)
    return source


def assert_same(arrays, expected):
    assert set(arrays) == set(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(arrays[name], value, name)


@pytest.mark.parametrize(
    "output_format",
    [
        pytest.param("tensorflow", marks=pytest.mark.ci),
        pytest.param("huggingface", marks=pytest.mark.ci),
        pytest.param("tf_hub", marks=pytest.mark.slow),
        pytest.param("saved_model", marks=pytest.mark.slow),
    ],
)
def test_every_form_and_back_is_the_same_bit_for_bit(google, output_format, tmp_path, capsys):
    there, back = str(tmp_path / "new" / "there"), str(tmp_path / "back")
    assert convert(Settings(google, there, output_format))
    printed = capsys.readouterr().out
    assert printed.endswith(f"wrote {there} ({output_format})\n")
    assert convert(Settings(there, back))
    assert_same(read_weights(back), random_weights(SMALL))
    assert AlbertConfig.from_json_file(f"{back}/albert_config.json") == SMALL
    assert not [name for name in os.listdir(tmp_path / "new") if name.endswith(".tmp")]


def test_the_vocabulary_of_the_training_stays_known(google, tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nsea\n")
    given, again = str(tmp_path / "given"), str(tmp_path / "again")
    assert convert(Settings(google, given, vocab_file=str(path)))
    known = RunFolder(given).record
    assert known.files["vocabulary"].digest.startswith("6 entries, sha256 ")
    assert convert(Settings(given, again))
    assert RunFolder(again).record == known
    path.write_text(path.read_text().replace("sea", "sky"))
    with pytest.raises(ValueError, match=r"trained with another vocabulary: 6 entries"):
        convert(Settings(given, str(tmp_path / "other"), vocab_file=str(path)))
    assert not (tmp_path / "other").exists()


@pytest.mark.ci
@pytest.mark.parametrize("objective", ["nsp", "none", "not registered"])
def test_the_sentence_objective_of_the_training_stays_known(google, tmp_path, caplog, objective):
    settings = {"sentence_objective": objective}
    RunFolder(google).write_record(RunRecord(settings=settings))
    there, back = str(tmp_path / "there"), str(tmp_path / "back")
    assert convert(Settings(google, there, "huggingface"))
    text = "sop_classifier, but this one was trained with sentence_objective=nsp"
    assert (text in caplog.text) == (objective == "nsp")
    assert ("which is not registered here" in caplog.text) == (objective == "not registered")
    assert convert(Settings(there, back))
    assert RunFolder(back).record.settings == settings
    assert_same(read_weights(back), random_weights(SMALL))


@pytest.mark.parametrize("config", [ZH, PRE_LN_ZH])
def test_albert_zh_keeps_its_layout_and_comes_back_bit_for_bit(config, tmp_path):
    source = make_input(tmp_path / "zh", random_weights(config), config)
    for name, target in (("a", source), ("b", str(tmp_path / "a"))):
        assert convert(Settings(target, str(tmp_path / name)))
    assert_same(read_weights(str(tmp_path / "b")), random_weights(config))
    assert AlbertConfig.from_json_file(str(tmp_path / "b" / "albert_config.json")) == config


def test_albert_zh_merged_goes_to_hugging_face(tmp_path):
    source = make_input(tmp_path / "zh", random_weights(ZH), ZH)
    target = tmp_path / "hf"
    assert convert(Settings(source, str(target), "huggingface", merge_embeddings=True))
    values = json.loads((target / "config.json").read_text())
    assert (values["embedding_size"], values["num_hidden_groups"]) == (12, 1)


def test_what_cannot_be_merged_or_held_is_refused_and_leaves_nothing(tmp_path):
    source = make_input(tmp_path / "zh", random_weights(PRE_LN_ZH), PRE_LN_ZH)
    target = str(tmp_path / "hf")
    with pytest.raises(ValueError, match="Google's layout does not support pre-LN models"):
        convert(Settings(source, target, "huggingface", merge_embeddings=True))
    with pytest.raises(ValueError, match="Hugging Face's ALBERT only supports Google's layout"):
        convert(Settings(source, target, "huggingface"))
    assert os.listdir(tmp_path) == ["zh"]


def test_shared_weights_become_an_unshared_model(tmp_path):
    source = make_input(tmp_path / "shared", random_weights(SHORT), SHORT)
    target = str(tmp_path / "unshared")
    assert convert(Settings(source, target, num_hidden_groups=2))
    report = inspect_checkpoint(target)
    assert report.sizes["num_hidden_groups"] == 2
    config = AlbertConfig.from_json_file(f"{target}/albert_config.json")
    assert config == dataclasses.replace(SHORT, num_hidden_groups=2)


def test_only_the_heads_that_are_there_are_written(tmp_path):
    weights = {n: x for n, x in random_weights(SHORT).items() if "seq_relationship" not in n}
    source, target = make_input(tmp_path / "in", weights, SHORT), str(tmp_path / "out")
    assert convert(Settings(source, target))
    assert_same(read_weights(target), weights)


@pytest.mark.ci
def test_a_model_of_masked_words_needs_no_pooler(tmp_path):
    kept = ("bert/e", "cls/predictions/")
    weights = {name: x for name, x in random_weights(SHORT).items() if name.startswith(kept)}
    there, new = make_input(tmp_path / "there", weights, SHORT), str(tmp_path / "new")
    for output_format in ("huggingface", "saved_model"):
        assert convert(Settings(there, f"{new}_{output_format}", output_format))
        assert_same(read_weights(f"{new}_{output_format}"), weights)
    with pytest.raises(ValueError, match="no pooler, and --output_format=tf_hub"):
        convert(Settings(there, new, "tf_hub"))
    assert not os.path.exists(new)


def test_heads_of_tasks_are_kept(tmp_path, capsys):
    head = random_arrays({"output_weights": (3, 12), "output_bias": (3,)})
    weights = {n: x for n, x in random_weights(SHORT).items() if n.startswith("bert/")} | head
    source = make_input(tmp_path / "fine_tuned", weights, SHORT)
    assert convert(Settings(source, str(tmp_path / "hf"), "huggingface"))
    assert_same(read_weights(str(tmp_path / "hf")), weights)
    found, _ = capsys.readouterr().out.splitlines()
    assert found.endswith("27 weights (embeddings 7, encoder 16, pooler 2, other heads 2)")


def test_moments_are_left_behind_and_the_step_is_0(tmp_path):
    weights = random_weights(SHORT)
    moments = {f"{name}/adam_v": value for name, value in weights.items()}
    step = {"global_step": np.int64(125000)}
    source = make_input(tmp_path / "in", weights | moments | step, SHORT)
    assert convert(Settings(source, str(tmp_path / "out")))
    assert inspect_checkpoint(str(tmp_path / "out")).bookkeeping == 1
    written = open_checkpoint(str(tmp_path / "out")).get_tensor("global_step")
    assert (written, written.dtype) == (0, np.int64)
    assert_same(read_weights(str(tmp_path / "out")), weights)


def test_vocabularies_travel_along(google, tmp_path, toy_spm_model):
    target = tmp_path / "out"
    assert convert(Settings(google, str(target), spm_model_file=toy_spm_model))
    with open(toy_spm_model, "rb") as stream:
        assert (target / "toy.model").read_bytes() == stream.read()


def test_vocabulary_and_labels_come_along_both_ways(tmp_path, toy_spm_model):
    task = {"name": "classification", "task_name": "cola", "folder": "CoLA", "labels": ["no", "可"]}
    source = fine_tuned(tmp_path / "run", 2, task)
    shutil.copyfile(toy_spm_model, tmp_path / "run" / "our.model")
    there, back, foreign = tmp_path / "hf", tmp_path / "back", tmp_path / "foreign"
    assert convert(Settings(source, str(there), "huggingface", do_lower_case=False))
    assert convert(Settings(str(there), str(back)))
    content = pathlib.Path(toy_spm_model).read_bytes()
    assert (there / "spiece.model").read_bytes() == (back / "spiece.model").read_bytes() == content
    assert (there / "tokenizer.json").exists()
    assert not json.loads((there / "tokenizer_config.json").read_text())["do_lower_case"]
    assert RunFolder(str(back)).record.settings["do_lower_case"] is False
    assert json.loads((there / "config.json").read_text())["id2label"] == {"0": "no", "1": "可"}
    assert RunFolder(str(back)).record.task == task
    # A folder from elsewhere has config.json alone.
    (there / "run.json").unlink()
    assert convert(Settings(str(there), str(foreign)))
    assert RunFolder(str(foreign)).record.task == task | {"task_name": "tsv", "folder": ""}


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["no", "O"], {"task_name": "tsv", "labels": ["no", "O"]}),
        (["B-LOC", "I-LOC", "O"], {"name": "token_classification", "tag_scheme": "iob2"}),
        (["B-LOC", "E-LOC", "O"], {"name": "token_classification", "tag_scheme": "bioes"}),
    ],
)
def test_labels_of_exported_models_are_known(labels, expected, tmp_path):
    source = fine_tuned(tmp_path / "run", len(labels))
    (tmp_path / "run" / "assets.extra").mkdir()
    (tmp_path / "run" / "assets.extra" / "labels.txt").write_text("\n".join(labels) + "\n")
    assert convert(Settings(source, str(tmp_path / "out")))
    found = RunFolder(str(tmp_path / "out")).record
    assert found.labels == tuple(labels)
    assert found.task.items() >= expected.items()


def test_several_vocabularies_beside_the_input_are_asked_about(google, tmp_path):
    for name in ("vocab.txt", "vocab_other.txt"):
        pathlib.Path(google, name).write_text("[PAD]\n")
    with pytest.raises(ValueError, match="several vocabularies; choose one"):
        convert(Settings(google, str(tmp_path / "out"), "huggingface"))


def test_the_record_of_a_run_says_what_its_head_is(tmp_path):
    source = fine_tuned(tmp_path / "race", 1, {"name": "multiple_choice"})
    assert convert(Settings(source, str(tmp_path / "hf"), "huggingface"))
    values = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert values["architectures"] == ["AlbertForMultipleChoice"]
    source = fine_tuned(
        tmp_path / "mean", 2, {"name": "classification"}, {"use_pooled_output": False}
    )
    with pytest.raises(ValueError, match="classifies the pooled output, but this model"):
        convert(Settings(source, str(tmp_path / "refused"), "huggingface"))
    assert not (tmp_path / "refused").exists()


def test_inspecting_prints_the_table_and_writes_nothing(google, tmp_path, capsys):
    assert convert(Settings(google, inspect=True))
    printed = capsys.readouterr().out
    assert "model.ckpt-best: Google ALBERT (TensorFlow checkpoint)" in printed
    assert "part                    found   loaded  missing  misshapen   unused" in printed
    assert os.listdir(tmp_path) == ["google"]
    os.remove(os.path.join(google, "albert_config.json"))
    assert convert(Settings(google, inspect=True))
    printed = capsys.readouterr().out
    assert "num_hidden_groups 2, inner_group_num 1" in printed
    assert "there is no config" in printed


def test_inspecting_says_what_does_not_fit(google, tmp_path, capsys):
    dataclasses.replace(SMALL, hidden_size=16).to_json_file(str(tmp_path / "other.json"))
    settings = Settings(google, inspect=True, albert_config_file=str(tmp_path / "other.json"))
    assert not convert(settings)
    assert "hidden_size is 12 in the checkpoint, 16 in the config" in capsys.readouterr().out
    with pytest.raises(
        ValueError, match=r"hidden_size is 12 .*\n(.*\n)*This checkpoint cannot be conv"
    ):
        convert(dataclasses.replace(settings, inspect=False, output=str(tmp_path / "out")))


def test_refused_families_are_inspected_too(tmp_path, capsys):
    name = "bert/encoder/transformer/group_0_2/layer_2/layer_normalization_5/gamma"
    source = make_input(tmp_path / "lost", random_arrays({name: (12,)}), SHARED)
    assert not convert(Settings(source, inspect=True))
    assert f"found 1 others, such as {name}" in capsys.readouterr().out


def test_an_output_that_exists_is_left_alone(google, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").write_text("mine")
    with pytest.raises(ValueError, match=r"--output=.*out already exists. Name a new folder"):
        convert(Settings(google, str(tmp_path / "out")))
    assert os.listdir(tmp_path / "out") == ["precious"]
    with pytest.raises(
        ValueError, match="--output is required: name a new folder, or pass --inspect"
    ):
        convert(Settings(google))


def test_a_missing_vocabulary_is_noticed_first(google, tmp_path):
    settings = Settings(google, str(tmp_path / "out"), vocab_file=str(tmp_path / "vocab.txt"))
    with pytest.raises(FileNotFoundError, match=r"--vocab_file=.*vocab.txt: no such file"):
        convert(settings)


def test_the_config_is_asked_for_where_it_is_not_clear(google, tmp_path):
    SHARED.to_json_file(os.path.join(google, "albert_config_large.json"))
    with pytest.raises(
        ValueError, match=r"several configs; .* --albert_config_file\): .*large.json"
    ):
        convert(Settings(google, inspect=True))
    for name in ("albert_config.json", "albert_config_large.json"):
        os.remove(os.path.join(google, name))
    with pytest.raises(FileNotFoundError, match=r"no config found.* --albert_config_file"):
        convert(Settings(google, str(tmp_path / "out")))
    (tmp_path / "list.json").write_text("[1]")
    settings = Settings(google, inspect=True, albert_config_file=str(tmp_path / "list.json"))
    with pytest.raises(ValueError, match=r"list.json: expected a JSON object, got list"):
        convert(settings)


def test_several_checkpoints_are_listed(google):
    os.remove(os.path.join(google, "model.ckpt-best.index"))
    for name in ("a.ckpt", "b.ckpt"):
        save_checkpoint(os.path.join(google, name), random_weights(GOOGLE))
    with pytest.raises(ValueError, match=r"choose one: a.ckpt, b.ckpt"):
        convert(Settings(google, inspect=True))


def test_a_folder_without_a_checkpoint_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=f"^{tmp_path}: this folder contains no"):
        convert(Settings(str(tmp_path), inspect=True))

"""Folders with the modules of sentence-transformers, beside plain formulas."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

import albert_tf
from albert_tf.checkpoints.model_folder import ModelFolder
from albert_tf.checkpoints.sentence_modules import read_modules
from albert_tf.export import convert

TEXTS = ["A boat", "The river carries the rain."]
KINDS = "sentence_transformers.models."
POOLING = {"word_embedding_dimension": 12, "pooling_mode_max_tokens": True}


def write_modules(folder, *modules):
    """Writes modules of (class, config)."""
    rows = []
    for number, (kind, config) in enumerate(modules):
        path = f"{number}_{kind.rpartition('.')[2]}" if number else ""
        kind = kind if "." in kind else KINDS + kind
        rows.append({"idx": number, "name": str(number), "path": path, "type": kind})
        (folder / path).mkdir(exist_ok=True)
        if number:
            (folder / path / "config.json").write_text(json.dumps(config))
    (folder / "modules.json").write_text(json.dumps(rows))


@pytest.fixture
def folder(pretrained_dir, tmp_path):
    return shutil.copytree(pretrained_dir, tmp_path / "model")


def test_the_modules_are_applied_one_after_the_other(folder, caplog):
    pooled = albert_tf.load_predictor(str(folder), pooling="max")(TEXTS)  # [N, H]
    write_modules(folder, ("Transformer", {}), ("Pooling", POOLING), ("Normalize", {}))
    expected = pooled / np.linalg.norm(pooled, axis=1, keepdims=True)
    embed = albert_tf.load_predictor(str(folder))
    np.testing.assert_allclose(embed(TEXTS), expected, atol=1e-5)
    assert embed([]).shape == (0, 12)
    without = albert_tf.load_predictor(str(folder), pooling="max")
    np.testing.assert_array_equal(without(TEXTS), pooled)
    list(convert.run(convert.Settings(str(folder), str(folder.with_name("out")))))
    assert "only the model is written, without the pooling and the other mod" in caplog.text
    converted = albert_tf.load_predictor(str(folder.with_name("out")), pooling="max")
    np.testing.assert_allclose(converted(TEXTS), pooled, atol=1e-6)


@pytest.mark.parametrize(
    ("config", "poolings"),
    [
        ({"pooling_mode": ["mean", "cls"]}, ["mean", "cls"]),
        ({"pooling_mode": ["cls", "max", "mean"]}, ["cls", "max", "mean"]),
        # In files of version 2 the order is that of sentence-transformers, not of the file.
        (
            {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True},
            ["cls", "mean"],
        ),
    ],
)
def test_several_poolings_are_concatenated_in_order(folder, config, poolings):
    parts = [albert_tf.load_predictor(str(folder), pooling=each)(TEXTS) for each in poolings]
    write_modules(folder, ("Transformer", {}), ("Pooling", config))
    found = albert_tf.load_predictor(str(folder))(TEXTS)
    np.testing.assert_allclose(found, np.concatenate(parts, axis=1), atol=1e-6)


@pytest.mark.parametrize(
    ("modules", "said"),
    [
        ([("Transformer", {}), ("WordWeights", {})], "are Transformer, WordWeights; expected a Tr"),
        ([("Transformer", {})], "the modules are Transformer; expected a Transformer, a Pooling"),
        (
            [("Transformer", {}), ("Pooling", {}), ("LSTM", {})],
            r"the module sentence_transformers\.models\.LSTM is not supported; .* Pass a pooling",
        ),
        (
            [("Transformer", {}), ("Pooling", {}), ("mine.Normalize", {})],
            r"the module mine\.Normalize is not supported",
        ),
        (
            [("Transformer", {}), ("Pooling", {"pooling_mode": ["mean", "lasttoken"]})],
            "1_Pooling/config.json: the pooling 'lasttoken' is not supported; expected one of cls,",
        ),
        (
            [("Transformer", {}), ("Pooling", {}), ("Dense", {})],
            r"the module sentence_transformers\.models\.Dense is not supported; expected Normalize",
        ),
        (
            [("Transformer", {}), ("Pooling", {}), ("Normalize", {"module_input_name": "x"})],
            "2_Normalize/config.json: module_input_name='x' is not supported; expected 'sentence_",
        ),
        *(
            (
                [("Transformer", {}), ("Pooling", {"pooling_mode": mode})],
                f"1_Pooling/config.json: {x}",
            )
            for mode, x in [
                (5, "'pooling_mode' is 5, expected str | list | None"),
                ({}, r"'pooling_mode' is \{\}, expected"),
                ([], "the pooling 'none' is not supported"),
                ([["mean"]], r"the pooling \['mean'\] is not supported"),
            ]
        ),
        (
            [("Transformer", {}), ("Pooling", {"pooling_mode_cls_token": "no"})],
            "1_Pooling/config.json: 'pooling_mode_cls_token' is 'no', expected bool | None",
        ),
    ],
)
def test_what_is_not_supported_is_refused_by_its_name(tmp_path, modules, said):
    write_modules(tmp_path, *modules)
    with pytest.raises(ValueError, match=said):
        read_modules(ModelFolder(str(tmp_path)))


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("is_absolute", [False, True])
def test_modules_outside_of_the_folder_are_refused(tmp_path, number, is_absolute):
    folder, other = tmp_path / "model", tmp_path / "other"
    modules = ("Transformer", {}), ("Pooling", POOLING), ("Normalize", {})
    for place in (folder, other):
        place.mkdir()
        write_modules(place, *modules)
    assert read_modules(ModelFolder(str(folder))).are_normalized
    rows = json.loads((folder / "modules.json").read_text())
    path = f"{tmp_path if is_absolute else '..'}/other/{rows[number]['path']}"
    rows[number]["path"] = path
    (folder / "modules.json").write_text(json.dumps(rows))
    with pytest.raises(ValueError, match=rf"model/modules\.json names '{path[:9]}.*: expected a p"):
        read_modules(ModelFolder(str(folder)))


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("sentence_bert_config.json", {"max_seq_length": True}, "'max_seq_length' is True, exp"),
        ("sentence_bert_config.json", {"do_lower_case": 1}, "'do_lower_case' is 1, expected bool"),
        ("config_sentence_transformers.json", {"default_prompt_name": []}, "'default_prompt_name'"),
        ("config_sentence_transformers.json", {"prompts": ["a"]}, "'prompts' is "),
    ],
)
def test_a_damaged_option_is_named(tmp_path, name, options, said):
    write_modules(tmp_path, ("Transformer", {}), ("Pooling", {}))
    (tmp_path / name).write_text(json.dumps(options))
    with pytest.raises(ValueError, match=f"{name}: {said}"):
        read_modules(ModelFolder(str(tmp_path)))


def test_a_prompt_before_each_text_is_refused_and_damaged_lists_too(tmp_path):
    write_modules(tmp_path, ("Transformer", {}), ("Pooling", {}))
    settings = tmp_path / "config_sentence_transformers.json"
    settings.write_text(json.dumps({"default_prompt_name": "q", "prompts": {"q": ""}}))
    assert read_modules(ModelFolder(str(tmp_path))).poolings == ("mean",)
    settings.write_text(json.dumps({"default_prompt_name": "q", "prompts": {"q": "query: "}}))
    with pytest.raises(ValueError, match="default_prompt_name='q' is not supported"):
        read_modules(ModelFolder(str(tmp_path)))
    (tmp_path / "modules.json").write_text("{}")
    with pytest.raises(ValueError, match=r"modules\.json: expected a list of modules"):
        read_modules(ModelFolder(str(tmp_path)))
    (tmp_path / "modules.json").write_text('[{"type": "a.b"}]')
    with pytest.raises(ValueError, match=r"modules\.json: 'path' is missing, expected str"):
        read_modules(ModelFolder(str(tmp_path)))

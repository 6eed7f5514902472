"""Tests the settings of run_predict.py."""

from __future__ import annotations

import sys

import pytest

from albert_tf.inference import Settings, run
from albert_tf.serving.poolings import POOLINGS
from albert_tf.settings import fields_of


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "nothing to predict: pass --text"),
        ({"text": "a", "mask": True, "embeddings": True}, "embeddings and fill_mask: only one"),
        ({"text": "a", "mask": True, "task": "spans"}, "fill_mask and spans: only one"),
        ({"text": "a", "mask": True, "embeddings_file": "x.npy"}, "not for fill_mask"),
        ({"input_file": "a.txt", "text": "a"}, "only be combined with --similarity"),
        ({"input_file": "a.txt", "question": "a"}, "either a file or a single input"),
        ({"question": "a", "text_b": "a"}, "--text is given 0 times and --text_b 1 times: pass"),
        ({"text": ("a", "b"), "text_b": "a"}, "--text is given 2 times and --text_b 1 times"),
        ({"text": ("a", "b"), "similarity": True}, "pass the second one as --text_b"),
        ({"text": ("a", "b"), "similarity": True, "input_file": "a.txt"}, "pass it once"),
        ({"text": "a", "top_k": 0}, "top_k=0: expected 1 or more"),
        ({"web": True, "text": "a"}, "--web reads inputs from the web page: remove --text"),
        ({"web": True, "web_port": 65536}, "web_port=65536: expected"),
    ],
)
def test_inconsistent_settings_are_rejected(given, message):
    with pytest.raises(ValueError, match=message):
        Settings(model_dir="model", **given)


@pytest.mark.parametrize(
    ("given", "task"),
    [
        ({}, None),
        ({"task": "spans"}, "spans"),
        ({"mask": True, "task": "fill_mask"}, "fill_mask"),
        ({"embeddings": True}, "embeddings"),
        ({"similarity": True, "text_b": ""}, "embeddings"),
        ({"embeddings_file": "x.npy"}, "embeddings"),
    ],
)
def test_flags_select_the_task(given, task):
    assert Settings(model_dir="model", text="", **given).wanted_task == task


@pytest.mark.parametrize(
    ("path", "form", "expected"),
    [
        ("a.txt", None, "txt"),
        ("a.TSV", None, "tsv"),
        ("a.csv", None, "csv"),
        ("a.jsonl", None, "jsonl"),
        ("-", None, "txt"),
        ("-", "jsonl", "jsonl"),
    ],
)
def test_the_file_name_determines_the_format(path, form, expected):
    settings = Settings(model_dir="model", input_file=path, input_format=form)
    assert settings.format == expected


def test_missing_files_are_reported_first(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"--input_file.*absent"):
        Settings(model_dir="m", input_file=str(tmp_path / "absent.txt")).check_paths()
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="--embeddings_file: cannot write to"):
        Settings(model_dir="m", text="a", embeddings_file=f"{tmp_path}/file/x.npy").check_paths()


def test_the_missing_package_of_the_page_is_reported_first(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", {}.get)
    with pytest.raises(ValueError, match=r"gradio: pip install 'albert-tf2\[web\]'"):
        Settings(model_dir="model", web=True).check_paths()
    Settings(model_dir="model", text="a").check_paths()


def test_a_missing_model_is_named_before_tensorflow_is_imported(monkeypatch, tmp_path):
    monkeypatch.setenv("ALBERT_CACHE", str(tmp_path))
    monkeypatch.setitem(sys.modules, "albert_tf.inference.program", None)
    with pytest.raises(FileNotFoundError, match="my_model: no such checkpoint"):
        run(Settings(model_dir="my_model", text="a"))
    with pytest.raises(FileNotFoundError, match="albert download albert_base_v2"):
        run(Settings(model_dir="albert_base_v2", text="a"))


def test_the_setting_has_every_pooling():
    (field,) = (field for field in fields_of(Settings) if field.name == "pooling")
    assert tuple(field.choices) == POOLINGS

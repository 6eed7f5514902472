"""The settings of run_predict.py, before TensorFlow is imported."""

from __future__ import annotations

import pytest

from albert_tf.inference import Settings


@pytest.mark.parametrize(
    ("given", "task"),
    [
        ({}, None),
        ({"task": "spans"}, "spans"),
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
        ("a.json", None, "jsonl"),
        ("-", None, "txt"),
        ("-", "jsonl", "jsonl"),
    ],
)
def test_the_file_name_determines_the_format(path, form, expected):
    settings = Settings(model_dir="model", input_file=path, input_format=form)
    assert settings.format == expected

"""The settings of run_predict.py, before TensorFlow is imported."""

from __future__ import annotations

import pytest

from albert_tf.inference import Settings


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "nothing to predict: pass --text"),
        ({"text": "a", "task": "fill_mask", "similarity": True}, "are for embeddings only"),
        ({"text": "a", "embeddings_file": "x.txt"}, r"expected a name in \.npy"),
        ({"text": "a", "task": "poetry"}, "task='poetry': expected one of"),
        ({"input_file": "a.txt", "text": "a"}, "either a file or a single input"),
        ({"input_file": "a.txt", "question": "a"}, "either a file or a single input"),
        ({"question": "a", "text_b": "a"}, "--text is given 0 times and --text_b 1 times: pass"),
        ({"text": ("a", "b"), "similarity": True}, "pass the second one as --text_b"),
        ({"text": ("a", "b"), "similarity": True, "input_file": "a.txt"}, "takes one --text"),
        ({"web": True, "web_port": 65536}, "web_port=65536: expected"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(given, said):
    with pytest.raises(ValueError, match=said):
        Settings(model_dir="model", **given)


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

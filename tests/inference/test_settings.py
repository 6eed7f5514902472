"""The settings of run_predict.py, before TensorFlow is imported."""

from __future__ import annotations

import dataclasses

import pytest

from albert_tf.inference import Settings
from albert_tf.settings import REQUIRED

# Name → default and, if it has limits, minimum, maximum and choices.
DEFAULTS = {
    "model_dir": (REQUIRED,),
    "task": (None,),
    "task_module": (None,),
    "similarity": (False,),
    "albert_config_file": (None,),
    "do_lower_case": (None,),
    "vocab_file": (None,),
    "spm_model_file": (None,),
    "text": (None,),
    "text_b": (None,),
    "question": ("",),
    "context": ("",),
    "options": ((),),
    "input_file": (None,),
    "input_format": (None, None, None, ("txt", "tsv", "csv", "jsonl")),
    "max_seq_length": (None, 5, 65536),
    "top_k": (5, 1, None),
    "pooling": (None, None, None, ("mean", "mean_last_4", "pooled", "cls", "max")),
    "batch_size": (None, 1, None),
    "engine": ("auto", None, None, ("auto", "tensorflow", "openvino")),
    "web": (False,),
    "web_port": (8000, 1, 65535),
    "embeddings_file": (None,),
    "precision": ("auto", None, None, ("auto", "float32", "bfloat16", "float16")),
    "threads": (None, 1, 4096),
}


def test_settings_have_these_defaults_and_limits():
    """Each change is to be made here as well."""
    found = {
        field.name: (
            field.default,
            *(field.metadata[key] for key in ("minimum", "maximum", "choices")),
        )
        for field in dataclasses.fields(Settings)
    }
    assert found == {name: (*row, None, None, None)[:4] for name, row in DEFAULTS.items()}


@pytest.mark.parametrize("name", [name for name, row in DEFAULTS.items() if len(row) == 3])
def test_a_number_at_its_limit_is_accepted_and_one_beyond_is_refused(name):
    _, least, most = DEFAULTS[name]
    for limit, beyond in ((least, least - 1), (most, most and most + 1)):
        if limit is not None:
            assert getattr(Settings(model_dir="a", text="a", **{name: limit}), name) == limit
            with pytest.raises(ValueError, match=f"{name}={beyond}: expected"):
                Settings(model_dir="a", text="a", **{name: beyond})


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

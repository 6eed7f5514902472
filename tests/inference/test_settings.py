"""The settings of run_predict.py, before TensorFlow is imported."""

from __future__ import annotations

import sys

import pytest

from albert_tf.inference import Settings, run


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


def test_what_is_missing_is_named_before_tensorflow_is_imported(monkeypatch, tmp_path):
    monkeypatch.setenv("ALBERT_CACHE", str(tmp_path))
    for module in ("albert_tf.inference.program", "gradio"):  # cannot be imported
        monkeypatch.setitem(sys.modules, module, None)
    (tmp_path / "file").write_text("")
    for given, error, said in (
        ({"input_file": "absent.txt"}, FileNotFoundError, r"--input_file.*absent"),
        ({"embeddings_file": f"{tmp_path}/file/x.npy"}, ValueError, "--embeddings_file: cannot"),
        ({"web": True}, ValueError, r"gradio: pip install 'albert-tf2\[web\]'"),
        ({}, FileNotFoundError, "my_model: no such checkpoint"),
        ({"model_dir": "albert_base_v2"}, FileNotFoundError, "albert download albert_base_v2"),
    ):
        text = {} if given.keys() & {"input_file", "web"} else {"text": "a"}
        with pytest.raises(error, match=said):
            run(Settings(**{"model_dir": "my_model"} | text | given))

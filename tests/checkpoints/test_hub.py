"""Models of the Hugging Face Hub, whose library is replaced here: nothing is downloaded."""

from __future__ import annotations

import fnmatch
import sys
import types

import pytest

from albert_tf.checkpoints import hub
from albert_tf.cli import download
from albert_tf.cli.flags import parse

NAME = "albert/albert-base-v2"
# What the repository of this name contains.
FILES = [
    *("README.md", "config.json", "generation_config.json", "flax_model.msgpack"),
    *("model.safetensors", "pytorch_model.bin", "rust_model.ot", "spiece.model", "tf_model.h5"),
    *("tokenizer.json", "tokenizer_config.json"),
]


@pytest.fixture(name="calls")
def replace_library(monkeypatch):
    """The arguments of each call of `snapshot_download`."""
    calls = []

    def snapshot_download(repo_id, *, allow_patterns, cache_dir):
        calls.append((repo_id, allow_patterns, cache_dir))
        if "/" not in repo_id:
            raise FileNotFoundError(f"Got: no {repo_id}\nPlease check your connection")
        return "/cache/snapshot"

    library = types.SimpleNamespace(snapshot_download=snapshot_download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", library)
    return calls


def test_a_model_comes_from_the_hub_on_request(calls):
    settings = parse(download.Settings, [NAME, "--hub", "--cache_dir=here"])
    assert download.run(settings) == "/cache/snapshot"
    ((name, patterns, cache),) = calls
    assert (name, cache) == (NAME, "here")
    fetched = [file for file in FILES if any(fnmatch.fnmatch(file, glob) for glob in patterns)]
    assert {"config.json", "model.safetensors", "spiece.model", "tokenizer.json"} <= set(fetched)
    assert not [file for file in fetched if file.endswith((".bin", ".h5", ".ot", ".msgpack"))]


def test_errors_of_the_hub_are_one_line(calls, monkeypatch):
    with pytest.raises(OSError, match=r"^x: not downloaded .*: Got: no x Please check your connec"):
        hub.download("x")
    with pytest.raises(ValueError, match="organization/name"):
        download.run(download.Settings(hub=True))
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ValueError, match=r"pip install 'albert-tf2\[hf\]'"):
        hub.download(NAME)

"""The examples (`>>>`) in docstrings of the library run and print what they say.

They run in a folder that holds the files which users have: `30k-clean.model`, `vocab.txt`,
`albert_config.json` and `albert_tiny/`, a model with its vocabulary; all of them toys. The names
in `example_globals` need no import in an example.
"""

from __future__ import annotations

import doctest
import importlib
import io
import shutil

import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from albert_tf.checkpoints.store import save_checkpoint
from albert_tf.checkpoints.weight_names import variable_name
from tests.conftest import ROOT, TINY_SHAPE, TOY_TEXT, train_toy_vocabulary

# These trace and export models.
SLOW = [
    f"albert_tf.{module}"
    for module in (
        "inference.opening",
        "inference.predictor",
        "inference.pretrained",
        "model.tokenizer_layer",
    )
]
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in sorted((ROOT / "albert_tf").rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = sorted({word.strip(".,").lower() for word in TOY_TEXT.split()})


def train_vocabulary(path):
    """A SentencePiece model in which every word of the toy text is a piece."""
    train_toy_vocabulary(path, 100, [f"▁{word}" for word in WORDS])


@pytest.fixture(scope="module")
def example_folder(tmp_path_factory):
    """The folder in which the examples run."""
    folder = tmp_path_factory.mktemp("examples")
    train_vocabulary(folder / "30k-clean.model")
    tokens = [*SPECIAL, *WORDS, *"。，今天气好不坏吗很我你"]
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    changes = {"num_hidden_layers": 2, "num_hidden_groups": 1, "max_position_embeddings": 64}
    config = albert_tf.AlbertConfig(**TINY_SHAPE | changes | {"type_vocab_size": 2})
    config.to_json_file(str(folder / "albert_config.json"))
    write_model(folder / "albert_tiny", config, folder / "30k-clean.model")
    return folder


def write_model(folder, config, vocabulary):
    """A folder with a model, its config and its vocabulary, as released ones are."""
    folder.mkdir()
    model = albert_tf.AlbertForPretraining(config)
    tensors = {variable_name(variable): variable for variable in model.variables}
    save_checkpoint(str(folder / "model.ckpt-best"), tensors)
    config.to_json_file(str(folder / "albert_config.json"))
    shutil.copy(vocabulary, folder)


@pytest.fixture(scope="module")
def example_globals(example_folder):
    """What examples may use without importing it."""
    return {
        "np": np,
        "tf": tf,
        "albert_tf": albert_tf,
        "config": albert_tf.AlbertConfig.from_json_file(str(example_folder / "albert_config.json")),
        "tokenizer": albert_tf.FullTokenizer(
            spm_model_file=str(example_folder / "30k-clean.model")
        ),
    }


@pytest.mark.parametrize(
    "module",
    [pytest.param(m, marks=pytest.mark.slow if m in SLOW else pytest.mark.ci) for m in MODULES],
)
def test_examples_print_what_they_say(module, example_globals, example_folder, monkeypatch):
    monkeypatch.chdir(example_folder)
    runner = doctest.DocTestRunner(
        optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE, verbose=False
    )
    report = io.StringIO()
    for test in doctest.DocTestFinder().find(importlib.import_module(module)):
        test.globs = {**test.globs, **example_globals}
        runner.run(test, out=report.write, clear_globs=False)
    assert not runner.failures, report.getvalue()

"""Folders of sentence-transformers give its own embeddings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import albert_tf
from albert_tf.checkpoints.huggingface import save_hugging_face
from albert_tf.model.config import AlbertConfig
from tests import huggingface_folders as folders
from tests.checkpoints.checkpoint_samples import random_weights
from tests.conftest import OTHER_PYTHON, TINY_SHAPE, python_with

TEXTS = [
    "the river in 1999",
    "New Müller said",
    "river river river the mu the mu the",
    "北京 the café",
    "MUELLER",
    "",
]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with five of its folders, and its embeddings."""
    python = python_with("sentence_transformers", OTHER_PYTHON)
    root = tmp_path_factory.mktemp("sentences")
    model = root / "model"
    model.mkdir()
    changes = {"num_hidden_groups": 1, "type_vocab_size": 2, "vocab_size": len(folders.LINES)}
    config = AlbertConfig(**TINY_SHAPE | changes)
    save_hugging_face(str(model), random_weights(config), config)
    folders.write_vocabulary(model)
    (root / "texts.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    script = Path(__file__).with_name("sentence_transformers_answers.py").read_text()
    folders.run(python, script, model, root, root / "texts.txt")
    return root


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("engine", ["tensorflow", "openvino"])
@pytest.mark.parametrize("name", ["mean", "cls", "max", "concatenated", "old"])
def test_the_embeddings_are_those_of_sentence_transformers(made, name, engine):
    if engine == "openvino":
        pytest.importorskip("openvino")
    found = albert_tf.load_predictor(str(made / name), engine=engine)(TEXTS)
    np.testing.assert_allclose(found, np.load(made / f"{name}.npy"), atol=1e-5)

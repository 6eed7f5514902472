"""Folders of models with random weights, as programs, converters and releases leave them."""

from __future__ import annotations

import functools
import shutil
import sys

import numpy as np
import pytest

import albert_tf
from albert_tf import (
    AlbertEncoder,
    AlbertForAnswerableSpans,
    AlbertForClassification,
    AlbertForMultipleChoice,
    AlbertForPretraining,
    AlbertForSpans,
    AlbertForTokenClassification,
)
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.run_record import RunRecord
from albert_tf.checkpoints.store import save_checkpoint
from albert_tf.model.config import AlbertConfig
from tests.checkpoints.checkpoint_samples import random_arrays, random_weights
from tests.conftest import TINY_SHAPE

TEXTS = [
    "The river carries the rain.",
    "A small boat waits at the landing, and nobody knows whose it is.",
    "",
    "They measured it once.",
]
LONG = "The river carries the rain. " * 30  # longer than any of the models takes
SIZE = 12  # hidden units of all models
TAGS = {"name": "token_classification", "labels": ["B-LOC", "I-LOC", "O"]}
# Name → class of the model, its arguments, and its labels.
KINDS = {
    "classification": (AlbertForClassification, {"num_labels": 2}, ["water", "land"]),
    "mean of the last layer": (
        *(AlbertForClassification, {"num_labels": 2, "use_pooled_output": False}),
        ["water", "land"],
    ),
    "multi_label_classification": (
        *(AlbertForClassification, {"num_labels": 3, "is_multi_label": True}),
        ["water", "land", "ice"],
    ),
    "regression": (AlbertForClassification, {"num_labels": 1, "is_regression": True}, None),
    "token_classification": (AlbertForTokenClassification, {"num_labels": 3}, TAGS["labels"]),
    "multiple_choice": (AlbertForMultipleChoice, {}, None),
    "spans": (AlbertForSpans, {}, None),
    "answerable_spans": (AlbertForAnswerableSpans, {"start_n_top": 5}, None),
    "fill_mask": (AlbertForPretraining, {"sentence_objective": "nsp"}, None),
    "sentence order": (AlbertForPretraining, {"sentence_objective": "sop"}, None),
    "masked words alone": (AlbertForPretraining, {"sentence_objective": "none"}, None),
    "embeddings": (AlbertEncoder, {}, None),
}


@pytest.fixture(autouse=True, scope="module")
def _eager():
    """Computes eagerly without OpenVINO: the models take milliseconds, compiling them a second."""
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "openvino", None)
        yield
    tf.config.run_functions_eagerly(False)


def make_model(kind, tokenizer):
    """A model whose weights are far from those of a new one."""
    import tensorflow as tf

    model_class, arguments, _ = KINDS[kind]
    shape = {"num_hidden_layers": 2, "num_hidden_groups": 1, "max_position_embeddings": 90}
    config = AlbertConfig(**TINY_SHAPE | shape | {"vocab_size": tokenizer.vocab_size})
    model = model_class(config, **arguments)
    model(tf.ones((1, 2, 5) if kind == "multiple_choice" else (1, 5), tf.int32))
    rng = np.random.default_rng(3)
    for variable in model.variables:
        mean = float("gamma" in variable.name)
        variable.assign(mean + 0.3 * rng.standard_normal(variable.shape))
    return model


@pytest.fixture(scope="session")
def saved(tmp_path_factory, toy_tokenizer):
    """A function that returns the folder of a kind of model."""

    @functools.cache
    def folder_of(kind):
        folder = str(tmp_path_factory.mktemp("saved"))
        model = make_model(kind, toy_tokenizer)
        albert_tf.save_pretrained(model, folder, toy_tokenizer, KINDS[kind][2])
        return folder

    return folder_of


@pytest.fixture(scope="session")
def pretrained_dir(tmp_path_factory, config_file, toy_spm_model):
    """A folder like a released archive, with pre-trained weights, config and vocabulary."""
    return write_folder(tmp_path_factory.mktemp("pretrained"), config_file, toy_spm_model)


def write_folder(folder, config_file, vocabulary, heads=None, record=None):
    """Writes random pre-training weights, or an encoder and heads with the given shapes."""
    config = AlbertConfig.from_json_file(str(config_file))
    weights = {name: 0.3 * value for name, value in random_weights(config).items()}
    if heads is not None:
        weights = {name: value for name, value in weights.items() if name.startswith("bert/")}
        weights |= random_arrays(heads)
    save_checkpoint(str(folder / "model.ckpt-best"), weights)
    shutil.copy(config_file, folder / "albert_config.json")
    shutil.copy(vocabulary, folder)
    if record is not None:
        RunFolder(str(folder)).write_record(RunRecord(**record))
    return folder

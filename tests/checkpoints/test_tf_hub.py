"""SavedModels in the format of TF-Hub: trained, and loaded with all that is in them.

Their outputs are compared in `tests/test_folders_and_doors.py`.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints.loading import inspect_checkpoint, read_weights
from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.checkpoints.weight_names import variable_name
from albert_tf.export import hub_module
from albert_tf.model.config import AlbertConfig
from albert_tf.model.modeling import AlbertForPretraining
from albert_tf.model.tokenization import FullTokenizer
from tests.checkpoints.checkpoint_samples import SHARED, random_weights

pytestmark = pytest.mark.ci

CONFIG = dataclasses.replace(SHARED, num_hidden_layers=2, hidden_dropout_prob=0.1)


@pytest.fixture
def inputs(tiny_batch):
    """`tiny_batch` under the names of TF-Hub."""
    return {
        "input_word_ids": tf.constant(tiny_batch["input_ids"]),
        "input_mask": tf.constant(tiny_batch["input_mask"]),
        "input_type_ids": tf.constant(tiny_batch["segment_ids"]),
    }


@pytest.fixture(scope="module")
def model():
    """A small model with random weights."""
    model = AlbertForPretraining(CONFIG)
    weights = random_weights(CONFIG)
    for variable in model.variables:
        variable.assign(weights[variable_name(variable)])
    return model


@pytest.fixture(scope="module")
def module(model, toy_tokenizer, tmp_path_factory):
    """The folder of the SavedModel of `model`."""
    folder = str(tmp_path_factory.mktemp("hub") / "albert")
    hub_module.save_hub_module(folder, model, CONFIG, tokenizer=toy_tokenizer)
    return folder


@pytest.fixture(scope="module")
def loaded(module):
    return tf.saved_model.load(module)


def test_training_applies_dropout_and_reaches_every_weight(loaded, inputs):
    first, second = (loaded(inputs, training=True)["sequence_output"] for _ in range(2))
    assert abs(first - second).numpy().max() > 0.01
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(loaded(inputs)["pooled_output"] ** 2)
    gradients = tape.gradient(loss, loaded.trainable_variables)
    assert len(gradients) == 25
    assert all(gradient is not None for gradient in gradients)


def test_weights_config_and_vocabulary_are_included(module, loaded, toy_spm_model):
    config_file = loaded.albert_config_file.asset_path.numpy().decode()
    assert AlbertConfig.from_json_file(config_file) == CONFIG
    with open(toy_spm_model, "rb") as stream:
        assert tf.io.read_file(loaded.sp_model_file.asset_path).numpy() == stream.read()
    model = AlbertForPretraining(CONFIG)
    assert inspect_checkpoint(module, model).fits
    read, weights = read_weights(module, model), random_weights(CONFIG)
    assert set(read) == set(weights)
    for name, value in weights.items():
        np.testing.assert_array_equal(read[name], value, name)


def test_untrained_heads_are_omitted_and_wordpiece_has_do_lower_case(model, tmp_path):
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n")
    folder, tokenizer = str(tmp_path / "hub"), FullTokenizer(str(tmp_path / "vocab.txt"), False)
    hub_module.save_hub_module(folder, model, CONFIG, False, False, tokenizer)
    loaded = tf.saved_model.load(folder)
    assert not hasattr(loaded, "mlm")
    assert not hasattr(loaded, "sop")
    assert loaded.vocab_file.asset_path.numpy().endswith(b"/vocab.txt")
    assert not ModelSource.open(folder).do_lower_case
    report = inspect_checkpoint(folder)
    assert not [name for name in report.found if name.startswith("cls/")]

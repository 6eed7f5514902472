"""Opening a model: no random numbers for what a file has, and each array in memory once."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from safetensors.numpy import save_file

from albert_tf.checkpoints import safetensors_file, store
from albert_tf.checkpoints.lazy_arrays import LazyArrays
from albert_tf.checkpoints.loading import load_checkpoint
from albert_tf.checkpoints.tensor_memory import as_tensor
from albert_tf.model import initialization
from albert_tf.model.config import AlbertConfig
from albert_tf.model.modeling import AlbertForPretraining
from albert_tf.tensorflow_releases import set_random_seed
from tests.checkpoints.checkpoint_samples import random_weights, values_of
from tests.conftest import TINY_SHAPE

CONFIG = AlbertConfig(**TINY_SHAPE)


def test_weights_that_a_file_lacks_are_those_of_a_model_that_was_initialized(tmp_path):
    set_random_seed(5)
    initialized = values_of(AlbertForPretraining(CONFIG))
    after = tf_keras.initializers.TruncatedNormal()((3,)).numpy()
    encoder = {k: v for k, v in random_weights(CONFIG).items() if k.startswith("bert/")}
    store.save_checkpoint(str(tmp_path / "model.ckpt-best"), encoder)
    set_random_seed(5)
    with initialization.deferred():
        model = AlbertForPretraining(CONFIG)
        load_checkpoint(model, str(tmp_path))
    for name, value in values_of(model).items():
        np.testing.assert_array_equal(value, encoder.get(name, initialized[name]), name)
    np.testing.assert_array_equal(tf_keras.initializers.TruncatedNormal()((3,)).numpy(), after)


def test_nothing_is_initialized_that_a_file_has(tmp_path, monkeypatch):
    store.save_checkpoint(str(tmp_path / "model.ckpt-best"), random_weights(CONFIG))
    drawn = []
    original = tf_keras.initializers.TruncatedNormal.__call__

    def draw(self, shape, *arguments, **options):
        drawn.append(tuple(shape))
        return original(self, shape, *arguments, **options)

    monkeypatch.setattr(tf_keras.initializers.TruncatedNormal, "__call__", draw)
    with initialization.deferred():
        load_checkpoint(AlbertForPretraining(CONFIG), str(tmp_path))
    assert set(drawn) == {(1,)}  # the draws of the seeds


@pytest.mark.parametrize(
    "view", [lambda x: x, lambda x: x.T, lambda x: x[1:], lambda x: x[:, 3:], lambda x: x[0]]
)
def test_a_tensor_has_the_numbers_of_its_array(view):
    array = np.random.default_rng(3).standard_normal((4097, 37), np.float32)
    expected = view(array).copy()
    np.testing.assert_array_equal(as_tensor(view(array)).numpy(), expected)


def test_a_variable_does_not_change_the_read_only_array_that_it_was_made_of():
    array = np.ones((300, 300), np.float32)
    array.flags.writeable = False
    variable = tf.Variable(tf.zeros_like(array))
    variable.assign(as_tensor(array))
    variable.assign_add(tf.ones_like(array))
    assert (array == 1).all()


def test_files_of_safetensors_are_those_of_its_library(tmp_path):
    random = np.random.default_rng(7)
    shapes = {"b.kernel": (5, 7), "ä": (3,), "a": (), "none": (0, 4), "large": (4200, 1100)}
    arrays = {name: random.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    save_file(arrays, tmp_path / "theirs", metadata={"format": "pt"})
    safetensors_file.write(str(tmp_path / "ours"), LazyArrays.of(arrays), {"format": "pt"})
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
    places = safetensors_file.places_of_float32(str(tmp_path / "theirs"))
    assert places.keys() == arrays.keys() - {"none"}
    for name, place in places.items():
        found = np.memmap(tmp_path / "theirs", np.float32, "r", place, arrays[name].shape)
        np.testing.assert_array_equal(found, arrays[name])

"""Opening a model: no random numbers for what a file has, and each array in memory once."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from albert_tf.checkpoints import safetensors_file, store
from albert_tf.checkpoints.arrays import LazyArrays, as_tensor
from albert_tf.checkpoints.huggingface import save_hugging_face
from albert_tf.checkpoints.loading import inspect_checkpoint, load_checkpoint
from albert_tf.model import initialization
from albert_tf.model.config import AlbertConfig
from albert_tf.model.modeling import AlbertForPretraining
from albert_tf.tensorflow_releases import set_random_seed
from tests.checkpoints.checkpoint_samples import random_weights, shapes_of, values_of
from tests.conftest import TINY_SHAPE
from tests.huggingface_folders import LINES, save_file

CONFIG = AlbertConfig(**TINY_SHAPE)

# Prints by how many bytes the memory in use has grown at its peak.
MEASURE = """
import re, sys
import tensorflow as tf
import albert_tf
from albert_tf.export import convert
act, folder, output = sys.argv[1:]
def peak():
    with open("/proc/self/status") as status:
        return 1024 * int(re.search(r"VmHWM:\\s+(\\d+) kB", status.read())[1])
tf.zeros(1)
before = peak()
if act == "open":
    kept = albert_tf.from_pretrained(folder, "pretraining")
else:
    list(convert.run(convert.Settings(folder, output, act)))
print("grown", peak() - before)
"""


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
    for name, place in safetensors_file.places(str(tmp_path / "theirs")).items():
        np.testing.assert_array_equal(place.read(str(tmp_path / "theirs")), arrays.pop(name))
    assert not arrays


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int64", "bool"])
def test_matrices_are_read_transposed(tmp_path, dtype):
    path, random = str(tmp_path / "model.safetensors"), np.random.default_rng(7)
    shapes = {"wide": (37, 70001), "high": (70001, 37), "row": (1, 50), "none": (0, 4)}
    arrays = {name: random.integers(-9, 9, shape).astype(dtype) for name, shape in shapes.items()}
    save_file(arrays, path)
    places = safetensors_file.places(path)
    for name, array in arrays.items():
        transpose = places[name].read(path, is_transposed=True)
        assert transpose.dtype == np.float32
        assert transpose.flags.c_contiguous
        np.testing.assert_array_equal(transpose, array.T.astype(np.float32), name)
    os.truncate(path, places["wide"].offset + places["wide"].size - 1)
    with pytest.raises(ValueError, match=rf"^{path}: cannot read 'wide', the file is cut short"):
        places["wide"].read(path, is_transposed=True)


def test_what_is_read_of_a_folder_of_hugging_face_is_not_copied(tmp_path, monkeypatch):
    config = AlbertConfig(**TINY_SHAPE | {"hidden_size": 160})
    weights = random_weights(config)
    save_hugging_face(str(tmp_path), weights, config)
    original, read = safetensors_file.Place.read, []

    def keep(*arguments):
        read.append(original(*arguments))
        return read[-1]

    monkeypatch.setattr(safetensors_file.Place, "read", keep)
    values = inspect_checkpoint(str(tmp_path)).read(weights)
    large = [name for name, value in values.items() if value.nbytes > 1 << 16]
    assert len(large) == 4 * config.num_hidden_groups + 1
    for name in large:
        np.testing.assert_array_equal(values[name], weights[name], name)
        assert any(np.shares_memory(values[name], array) for array in read)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A model of 200 MB as a TensorFlow checkpoint and in a folder of Hugging Face; their size."""
    root = tmp_path_factory.mktemp("large")
    size = {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_groups": 1}
    config = AlbertConfig(**TINY_SHAPE | size)
    random = np.random.default_rng(5)
    weights = {
        name: random.standard_normal(shape, np.float32) for name, shape in shapes_of(config).items()
    }
    for name in ("tensorflow", "huggingface"):
        (root / name).mkdir()
        (root / name / "vocab.txt").write_text("\n".join(["[PAD]", *LINES]))
    store.save_checkpoint(str(root / "tensorflow" / "model.ckpt-best"), weights)
    config.to_json_file(str(root / "tensorflow" / "albert_config.json"))
    save_hugging_face(str(root / "huggingface"), weights, config)
    return root, sum(array.nbytes for array in weights.values())


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read of Linux")
@pytest.mark.parametrize(
    ("source", "act", "most"),
    [
        ("tensorflow", "open", 1.4),
        ("huggingface", "open", 1.4),
        ("tensorflow", "huggingface", 2),
        ("huggingface", "tensorflow", 2),
    ],
)
def test_weights_are_in_memory_once(large, tmp_path, source, act, most):
    root, size = large
    command = [sys.executable, "-c", MEASURE, act, str(root / source), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    grown = int(re.search(r"^grown (\d+)$", done.stdout, re.MULTILINE)[1])
    assert (0.2 if act == "huggingface" else 0.9) * size < grown < most * size

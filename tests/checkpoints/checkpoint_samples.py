"""Random weights under the names of every family of checkpoints, and how arrays are compared."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from albert_tf.checkpoints.containers import open_checkpoint
from albert_tf.checkpoints.weight_names import name_map, variable_name
from albert_tf.model.config import AlbertConfig
from albert_tf.model.modeling import AlbertForPretraining
from tests.conftest import TINY_SHAPE

GOOGLE = AlbertConfig(**TINY_SHAPE)
SHARED = dataclasses.replace(GOOGLE, num_hidden_groups=1)
SQUARE = dataclasses.replace(SHARED, embedding_size=12)
INNER = dataclasses.replace(GOOGLE, num_hidden_layers=3, num_hidden_groups=3, inner_group_num=2)
ALBERT_ZH = dataclasses.replace(SHARED, layout="albert_zh")
PRE_LN = dataclasses.replace(ALBERT_ZH, ln_type="preln")


@functools.cache
def shapes_of(config):
    """Variable name → shape of `AlbertForPretraining(config)`."""
    model = AlbertForPretraining(config)
    return {v.name.split(":")[0]: tuple(v.shape) for v in model.variables}


def random_arrays(shapes, seed=5):
    """An array of random numbers for every name."""
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def random_weights(config, seed=5):
    """Weights for `AlbertForPretraining(config)`, by variable name."""
    return random_arrays(shapes_of(config), seed)


def renamed(weights, family, config):
    """Weights with Google's names under a family's, still with Google's shapes."""
    names = name_map(family, config.num_hidden_groups, config.inner_group_num)
    return {names[name]: value for name, value in weights.items()}


def as_hugging_face(weights, config):
    """The arrays of a PyTorch file: dense kernels are [out, in] there."""
    turned = {n: x.T if n.endswith("/kernel") else x for n, x in weights.items()}
    return renamed(turned, "hugging_face", config)


def as_model_garden(weights, config):
    """The arrays of the Model Garden's encoder: heads have an axis of their own there."""
    heads, size = config.num_attention_heads, config.hidden_size // config.num_attention_heads
    split = {}
    for name, value in weights.items():
        if "/attention_1/self/" in name:
            value = value.reshape(*value.shape[:-1], heads, size)
        elif name.endswith("/attention_1/output/dense/kernel"):
            value = value.reshape(heads, size, -1)
        split[name] = value
    known = name_map("model_garden").keys()
    return renamed({n: x for n, x in split.items() if n in known}, "model_garden", config)


def values_of(model):
    """The arrays of a model's variables, by name."""
    return {variable_name(variable): variable.numpy() for variable in model.variables}


def read_all(prefix):
    """All arrays of a TensorFlow checkpoint, by name."""
    reader = open_checkpoint(prefix)
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def assert_same(arrays, expected):
    """Checks that two dicts of arrays have the same names and bits."""
    assert set(arrays) == set(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(arrays[name], value, name)

"""Sharing of parameters: patterns, the paper's table 4, checkpoints, repeated application."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from albert_tf.checkpoints.huggingface import to_hugging_face
from albert_tf.checkpoints.loading import load_checkpoint
from albert_tf.checkpoints.store import save_checkpoint
from albert_tf.checkpoints.weight_names import variable_name
from albert_tf.model import config as configs
from albert_tf.model import ops
from albert_tf.model.config import AlbertConfig
from albert_tf.model.modeling import AlbertEncoder
from albert_tf.model.shared_layers import Weight, apply_repeatedly
from tests.conftest import TINY_SHAPE

TINY = AlbertConfig(**TINY_SHAPE | {"num_hidden_layers": 4, "num_hidden_groups": 1})
BASE = AlbertConfig.from_json_file("albert_base")
KINDS = ("all", "attention", "ffn", "none")


def with_share(share, **changes):
    return dataclasses.replace(TINY, share=share, **changes)


def random_weights(model):
    """Assigns and returns random weights, name → array."""
    random, weights = np.random.default_rng(3), {}
    for variable in model.variables:
        values = random.normal(size=variable.shape, scale=0.3).astype(np.float32)
        weights[variable_name(variable)] = values + ("gamma" in variable.name)
        variable.assign(weights[variable_name(variable)])
    return weights


def save(folder, config, weights):
    folder.mkdir()
    config.to_json_file(str(folder / "albert_config.json"))
    save_checkpoint(str(folder / "model.ckpt-best"), weights)
    return str(folder)


# Millions of parameters, in the order of KINDS.
TABLE_4 = {768: (31, 83, 57, 108), 128: (12, 64, 38, 89)}


@pytest.mark.parametrize("embedding_size", TABLE_4)
def test_parameters_are_those_of_table_4_of_the_paper(embedding_size):
    """Some of its numbers include the pooler, 0.6 million parameters, and some do not."""
    H = BASE.hidden_size
    for share, expected in zip(KINDS, TABLE_4[embedding_size], strict=True):
        config = dataclasses.replace(BASE, embedding_size=embedding_size, share=share)
        with_pooler, without = config.num_weights, config.num_weights - (H + 1) * H
        assert expected in (round(with_pooler / 1e6), round(without / 1e6))


@pytest.mark.parametrize(
    "changes",
    [
        *({"share": share, "inner_group_num": 2} for share in KINDS),
        {"num_hidden_groups": 3, "embedding_size": 12},
        {"num_hidden_groups": 12},
        {"layout": "albert_zh"},
        {"layout": "albert_zh", "ln_type": "preln"},
    ],
    ids=str,
)
def test_configs_count_the_weights_that_the_encoder_has(changes):
    config = dataclasses.replace(TINY, **changes)
    variables = AlbertEncoder(config).variables
    assert config.num_weights == sum(variable.shape.num_elements() for variable in variables)
    assert len({variable_name(variable) for variable in variables}) == len(variables)


@pytest.mark.parametrize(
    ("share", "groups", "attention", "ffn"),
    [
        ("all", 1, (0, 0, 0, 0), (0, 0, 0, 0)),
        ("none", 1, (0, 1, 2, 3), (0, 1, 2, 3)),
        ("attention", 1, (0, 0, 0, 0), (0, 1, 2, 3)),
        ("ffn", 1, (0, 1, 2, 3), (0, 0, 0, 0)),
        ("groups", 2, (0, 0, 1, 1), (0, 0, 1, 1)),
    ],
)
def test_patterns(share, groups, attention, ffn):
    config = with_share(share, num_hidden_groups=groups)
    assert config.modules_of_layers() == (attention, ffn)
    blocks = AlbertEncoder(config).blocks
    for kind, pattern in (("attention", attention), ("feed_forward", ffn)):
        modules = [getattr(block, kind) for block in blocks]
        assert [modules.index(module) for module in modules] == [
            pattern.index(number) for number in pattern
        ]
    assert AlbertConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_a_pattern_of_sharing_can_be_added_and_is_checked(monkeypatch, tmp_path):
    monkeypatch.setattr(configs, "SHARING", dict(configs.SHARING))

    def in_turn(layers):
        return [layer % 2 for layer in range(layers)], [0] * layers

    configs.register_sharing("in turn", in_turn)
    configs.register_sharing("in turn", in_turn)  # a cell of a notebook runs twice
    config = with_share("in turn", num_hidden_layers=5)
    assert config.modules_of_layers() == ((0, 1, 0, 1, 0), (0, 0, 0, 0, 0))
    encoder = AlbertEncoder(config)
    assert config.num_weights == sum(x.shape.num_elements() for x in encoder.variables)
    weights = random_weights(encoder)
    folder = save(tmp_path / "model", config, weights)
    again = AlbertEncoder(AlbertConfig.from_json_file(f"{folder}/albert_config.json"))
    load_checkpoint(again, folder)
    ids = tf.constant([[2, 45, 61, 3]])
    np.testing.assert_array_equal(again(ids)["sequence_output"], encoder(ids)["sequence_output"])
    for name in ("in turn", "ffn", "groups"):
        with pytest.raises(ValueError, match=f"share='{name}': the name is taken"):
            configs.register_sharing(name, lambda layers: ([0] * layers, [0] * layers))
    configs.register_sharing("short", lambda layers: ([0], [0]))
    configs.register_sharing("beyond", lambda layers: ([layers] * layers, [0] * layers))
    for name in ("short", "beyond"):
        with pytest.raises(ValueError, match=r"expected the number of a module from 0 to 3 for"):
            with_share(name).modules_of_layers()


def test_an_activation_can_be_added(monkeypatch):
    monkeypatch.setattr(configs, "ACTIVATIONS", dict(configs.ACTIVATIONS))
    monkeypatch.setattr(ops, "ACTIVATIONS", dict(ops.ACTIVATIONS))
    ops.register_activation("doubled relu", lambda x: 2 * tf.nn.relu(x))
    relu, doubled = (
        AlbertEncoder(dataclasses.replace(TINY, hidden_act=name))
        for name in ("relu", "doubled relu")
    )
    random_weights(relu)
    doubled.set_weights(relu.get_weights())
    projection = doubled.blocks[0].feed_forward.projection  # that of all layers
    projection.kernel.assign(projection.kernel / 2)
    ids = tf.constant([[2, 45, 61, 3]])
    expected = relu(ids)["sequence_output"]
    np.testing.assert_allclose(doubled(ids)["sequence_output"], expected, atol=1e-5)
    with pytest.raises(ValueError, match="hidden_act='gelu': the name is taken"):
        ops.register_activation("gelu", tf.nn.relu)


def test_what_googles_groups_express_is_written_as_googles():
    for share, groups in (("all", 1), ("none", 4)):
        values = with_share(share).to_dict()
        assert "share" not in values
        assert values["num_hidden_groups"] == groups
    assert with_share("ffn").to_dict()["share"] == "ffn"
    # Google's rounding skips a group of 22: its "no sharing" shares two layers.
    deep = dataclasses.replace(TINY, num_hidden_layers=22, share="none")
    assert deep.to_dict()["share"] == "none"
    assert len(set(deep.modules_of_layers()[0])) == 22


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"share": "some"}, "share='some': expected one of groups, all, attention, ffn, none"),
        ({"share": "ffn", "num_hidden_groups": 2}, "share='ffn' does not use num_hidden_groups=2"),
        ({"share": "ffn", "layout": "albert_zh"}, "shares all weights"),
    ],
)
def test_bad_sharing_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(TINY, **changes)


@pytest.mark.ci
@pytest.mark.parametrize("share", ["attention", "ffn", "none"])
def test_copies_of_a_shared_model_compute_the_same(tmp_path, tiny_batch, share):
    shared, config = AlbertEncoder(TINY), with_share(share)
    path = save(tmp_path / "shared", TINY, random_weights(shared))
    encoder = AlbertEncoder(config)
    with pytest.raises(ValueError, match="--init_from_group0"):
        load_checkpoint(encoder, path)
    load_checkpoint(encoder, path, init_from_group0=True)
    expected = shared(tiny_batch)["sequence_output"]
    np.testing.assert_allclose(encoder(tiny_batch)["sequence_output"], expected, atol=1e-5)
    # Its own checkpoints load, here and by their folder; shared models refuse them.
    weights = random_weights(encoder)
    folder = save(tmp_path / "own", config, weights)
    expected, again = encoder(tiny_batch)["sequence_output"], AlbertEncoder(config)
    assert load_checkpoint(again, folder).fits
    np.testing.assert_array_equal(again(tiny_batch)["sequence_output"], expected)
    with pytest.raises(ValueError, match="does not contain this model's encoder"):
        load_checkpoint(shared, folder)


def test_other_programs_formats_are_refused_for_what_they_cannot_express():
    with pytest.raises(ValueError, match="has hidden groups only: this model has share='ffn'"):
        to_hugging_face({}, with_share("ffn"))


# Shared layers applied repeatedly.

N, H = 55, 12


class Layer(tf_keras.layers.Layer):
    """A layer with dropout, two weights of its own, and one that another library's layer reads."""

    kernel, gamma = Weight(), Weight()

    def __init__(self):
        super().__init__()
        kernel = tf.random.stateless_normal((H, H), (3, 4))
        self.kernel = self.add_weight("kernel", (H, H))
        self.kernel.assign(kernel)
        self.gamma = self.add_weight("gamma", (H,), initializer="ones")
        self.foreign = tf_keras.layers.Dense(
            H, kernel_initializer=tf_keras.initializers.Constant(kernel)
        )
        self.foreign.build((None, H))

    def call(self, x, seed):
        y = tf.matmul(x, self.kernel) + self.foreign(x)
        return ops.add_and_norm(y, x, self.gamma, tf.zeros(H), 0.3, seed)


@pytest.fixture
def layer():
    return Layer()


@pytest.fixture
def x():
    return tf.random.stateless_normal((N, H), (1, 2), stddev=1.5)


def test_shared_layers_compute_the_same_with_and_without_gradient_checkpointing(layer, x):
    """The same as calling the layer repeatedly, with dropout."""
    seeds = tf.constant(((1, 2), (3, 4)))

    def run(make_apply):
        with tf.GradientTape() as tape:
            tape.watch(x)
            apply = make_apply()
            y = apply(layer, apply(layer, x, seed=seeds[0]), seed=seeds[1])
            loss = tf.reduce_sum(tf.sin(y))
        gradients = tape.gradient(loss, [x, *layer.trainable_variables])
        return y, *map(tf.convert_to_tensor, gradients)

    expected = run(lambda: lambda layer, x, seed: layer(x, seed))
    assert len(expected) == 6
    for is_recomputed in (False, True):
        for wrap in (tf.function, lambda function: function):
            found = wrap(lambda f=is_recomputed: run(lambda: apply_repeatedly([layer] * 2, f)))()
            for ours, theirs in zip(found, expected, strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-4)


def test_a_shared_layer_is_traced_once_and_its_weights_are_read_once(layer, x):
    @tf.function
    def run(x):
        apply = apply_repeatedly([layer] * 5)
        for _ in range(5):
            x = apply(layer, x, seed=tf.constant((1, 2)))
        return x

    operations = run.get_concrete_function(x).graph.get_operations()
    assert [operation.type for operation in operations].count("ReadVariableOp") == 2
    called = {operation.get_attr("f").name for operation in operations if "Call" in operation.type}
    assert len(called) == 1


@pytest.mark.parametrize("is_recomputed", [False, True])
def test_the_gradients_of_a_shared_kernel_are_added_up_one_call_at_a_time(layer, x, is_recomputed):
    """So that they need not be kept until the last one is there."""

    @tf.function
    def run(x):
        with tf.GradientTape() as tape:
            apply = apply_repeatedly([layer] * 5, is_recomputed)
            for _ in range(5):
                x = apply(layer, x, seed=tf.constant((1, 2)))
        return tape.gradient(x, [type(layer).kernel.variable(layer), *layer.foreign.variables])

    operations = run.get_concrete_function(x).graph.get_operations()
    sums = [op for op in operations if op.type == "AddN" and op.outputs[0].shape == (H, H)]
    assert len(sums) <= 1  # that of the other library's layer

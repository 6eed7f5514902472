"""Sharing of parameters: patterns, the paper's table 4, names of weights, checkpoints, adapters."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from albert_tf import sharing
from albert_tf.checkpoints.loading import load_checkpoint
from albert_tf.checkpoints.names import variable_name
from albert_tf.checkpoints.store import save_checkpoint
from albert_tf.config import AlbertConfig
from albert_tf.modeling import AlbertEncoder
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


@pytest.mark.ci
@pytest.mark.parametrize(
    ("share", "adapter_rank"),
    [
        *zip(KINDS, (2, 0, 2, 0), strict=True),
        *(("sandwich", 0), ((0, 0, 1, 1), 2), ({"attention": "sandwich", "ffn": (0, 1, 0, 1)}, 2)),
    ],
)
def test_configs_count_the_weights_that_the_encoder_has(share, adapter_rank):
    config = with_share(share, adapter_rank=adapter_rank, inner_group_num=2)
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
        ("cyclic", 2, (0, 1, 0, 1), (0, 1, 0, 1)),
        ("sandwich", 1, (0, 1, 1, 2), (0, 1, 1, 2)),
        ([0, 1, 1, 0], 1, (0, 1, 1, 0), (0, 1, 1, 0)),
        ({"attention": "all", "ffn": "cyclic"}, 3, (0, 0, 0, 0), (0, 1, 2, 0)),
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


def test_what_googles_groups_express_is_written_as_googles():
    for share, groups in (("all", 1), ("none", 4), ([0, 0, 1, 1], 2)):
        values = with_share(share).to_dict()
        assert "share" not in values
        assert values["num_hidden_groups"] == groups
    assert with_share("ffn").to_dict()["share"] == "ffn"
    # Google's rounding skips a group of 22: its "no sharing" shares two layers.
    deep = dataclasses.replace(TINY, num_hidden_layers=22, share="none")
    assert deep.to_dict()["share"] == "none"
    assert len(set(deep.modules_of_layers()[0])) == 22


def test_names_are_googles_with_the_number_of_the_module_as_the_group():
    names = {
        variable_name(variable) for variable in AlbertEncoder(with_share("attention")).variables
    }
    block = "bert/encoder/transformer/group_{}/inner_group_0/"
    attention = {n for n in names if "/attention_1/" in n or n.endswith(("LayerNorm/beta",))}
    assert block.format(0) + "attention_1/self/query/kernel" in attention
    assert not any("group_1" in name for name in attention)
    for group in range(4):
        assert block.format(group) + "ffn_1/intermediate/dense/kernel" in names
        assert block.format(group) + "LayerNorm_1/gamma" in names


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"share": "some"}, "share='some': expected one of groups, all, none, cyclic, sandwich, a"),
        ({"share": [0, 1]}, r"share=\[0, 1\]: expected num_hidden_layers=4 whole numbers"),
        ({"share": [0, 2, 0, 2]}, r"expected every number from 0 to 2 at least once"),
        ({"share": [0, 1.0, 0, 1]}, "expected num_hidden_layers=4 whole numbers"),
        ({"share": {"attention": "all"}}, 'expected "attention" and "ffn"'),
        ({"share": 3}, "share=3: expected one of"),
        ({"share": "ffn", "num_hidden_groups": 2}, "share does not use num_hidden_groups=2"),
        ({"share": "ffn", "num_hidden_layers": 10**6}, "expected at most 10000"),
        ({"share": "ffn", "layout": "albert_zh"}, "shares all weights"),
        ({"adapter_rank": -1}, "adapter_rank=-1: expected an integer of 0 or more"),
    ],
)
def test_bad_sharing_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(TINY, **changes)


@pytest.mark.ci
@pytest.mark.parametrize("share", ["attention", "ffn", "none", "sandwich", (0, 1, 0, 1)])
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


def test_patterns_with_the_same_weights_are_told_apart_by_the_config(tmp_path):
    cyclic = with_share("cyclic", num_hidden_groups=2)
    path = save(tmp_path / "cyclic", cyclic, random_weights(AlbertEncoder(cyclic)))
    for other in (with_share((0, 1, 1, 0)), with_share("groups", num_hidden_groups=2)):
        with pytest.raises(ValueError, match="the layers would use other modules"):
            load_checkpoint(AlbertEncoder(other), path)
    assert load_checkpoint(AlbertEncoder(with_share((0, 1, 0, 1))), path).fits


@pytest.mark.ci
@pytest.mark.parametrize("layout", ["google", "albert_zh"])
def test_adapters_start_as_the_identity_and_make_shared_layers_differ(tmp_path, tiny_batch, layout):
    plain = dataclasses.replace(TINY, layout=layout)
    config = dataclasses.replace(plain, adapter_rank=2)
    shared, encoder = AlbertEncoder(plain), AlbertEncoder(config)
    path = save(tmp_path / "shared", plain, random_weights(shared))
    assert load_checkpoint(encoder, path).fits
    expected = shared(tiny_batch)["sequence_output"]
    np.testing.assert_allclose(encoder(tiny_batch)["sequence_output"], expected, atol=1e-5)

    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.sin(encoder(tiny_batch, training=True)["sequence_output"]))
    ups = {v.name: v for v in encoder.trainable_variables if v.name.endswith("/up:0")}
    assert len(ups) == 4 * 6  # layers, kernels
    for gradient in tape.gradient(loss, list(ups.values())):
        assert np.abs(gradient).max() > 0
    # An adapter equals the sum of the kernels.
    random_weights(encoder)
    attention, x = encoder.blocks[1].attention, tf.random.stateless_normal((3, 5, 12), (1, 2))
    query = attention.query
    kernel = query.linear.kernel + query.down @ query.up
    np.testing.assert_allclose(query(x), x @ kernel + query.linear.bias, atol=1e-4)
    folder = save(tmp_path / "adapted", config, random_weights(encoder))
    assert load_checkpoint(AlbertEncoder(config), folder).fits
    with pytest.raises(ValueError, match="does not contain this model's encoder"):
        load_checkpoint(shared, folder)


def test_other_programs_formats_are_refused_for_what_they_cannot_express():
    from albert_tf.checkpoints.huggingface import to_hugging_face

    for config in (with_share("ffn"), dataclasses.replace(TINY, adapter_rank=1)):
        with pytest.raises(ValueError, match="has hidden groups only, and no adapters"):
            to_hugging_face({}, config)


def test_the_names_of_patterns_are_all_listed():
    for name in sharing.NAMES:
        assert len(sharing.patterns(name, 4, 1)[0]) == 4
    assert albert_tf.AlbertConfig is AlbertConfig

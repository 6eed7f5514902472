"""Sharing of parameters: patterns, the paper's table 4, names of weights, checkpoints."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from albert_tf.checkpoints.huggingface import to_hugging_face
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
@pytest.mark.parametrize("share", KINDS)
def test_configs_count_the_weights_that_the_encoder_has(share):
    config = with_share(share, inner_group_num=2)
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
        ({"share": "some"}, "share='some': expected one of groups, all, attention, ffn, none"),
        ({"share": [0, 0, 1, 1]}, r"share=\[0, 0, 1, 1\]: expected one of groups, all"),
        ({"share": {"attention": "all"}}, "expected one of groups, all"),
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

"""AlbertConfig: Google's, albert_zh's and Hugging Face's files, and what is refused."""

from __future__ import annotations

import re

import pytest

from albert_tf.model.config import AlbertConfig
from albert_tf.model.modeling import AlbertEncoder
from tests.conftest import TINY_SHAPE

# The keys by which brightmart's configs are known, and no other of Google's.
ALBERT_ZH = {
    "vocab_size": 97,
    "embedding_size": 8,
    "hidden_size": 12,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "intermediate_size": 20,
    "directionality": "bidi",
    "pooler_fc_size": 768,
    "pooler_type": "first_token_transform",
}
HUGGING_FACE = {"model_type": "albert"}


def test_defaults_are_googles():
    assert AlbertConfig(vocab_size=30000).to_dict() == {
        "vocab_size": 30000,
        "embedding_size": 128,
        "hidden_size": 4096,
        "num_hidden_layers": 12,
        "num_hidden_groups": 1,
        "num_attention_heads": 64,
        "intermediate_size": 16384,
        "inner_group_num": 1,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "initializer_range": 0.02,
    }


@pytest.mark.parametrize(
    ("values", "layout", "ln_type"),
    [
        (TINY_SHAPE, "google", "postln"),
        (ALBERT_ZH | {"num_hidden_groups": 1}, "google", "postln"),
        (ALBERT_ZH, "albert_zh", "postln"),
        (ALBERT_ZH | {"ln_type": None}, "albert_zh", "postln"),
        (ALBERT_ZH | {"ln_type": "postln"}, "albert_zh", "postln"),
        (ALBERT_ZH | {"ln_type": "preln"}, "albert_zh", "preln"),
    ],
)
def test_the_layout_follows_from_the_keys_and_is_read_back(values, layout, ln_type, tmp_path):
    before = dict(values)
    config = AlbertConfig.from_dict(values)
    assert (config.layout, config.ln_type) == (layout, ln_type)
    assert values == before
    path = str(tmp_path / "albert_config.json")
    config.to_json_file(path)
    assert AlbertConfig.from_json_file(path) == config


def test_googles_obsolete_keys_are_ignored():
    obsolete = ("down_scale_factor", "net_structure_type", "gap_size", "num_memory_blocks")
    values = TINY_SHAPE | dict.fromkeys(obsolete, 0) | {"layers_to_keep": []}
    assert AlbertConfig.from_dict(values) == AlbertConfig(**TINY_SHAPE)


def test_hugging_faces_configs_are_read_with_its_defaults(caplog):
    others = {"bos_token_id": 2, "classifier_dropout_prob": 0.1, "id2label": {"0": "no"}}
    written = {"hidden_act": "gelu_new", "layer_norm_eps": 1e-12, "hidden_size": 768}
    expected = AlbertConfig(vocab_size=30000, hidden_size=768)
    for mark in (HUGGING_FACE, {"architectures": ["AlbertForMaskedLM"]}):  # the second: in 2019
        assert AlbertConfig.from_dict(mark | others | written) == expected
    assert AlbertConfig.from_dict(HUGGING_FACE) == AlbertConfig(vocab_size=30000)
    assert not caplog.messages
    assert AlbertConfig.from_dict(HUGGING_FACE | {"hidden_act": "gelu"}).hidden_act == "gelu"
    assert "Hugging Face computes with erf" in caplog.text


@pytest.mark.parametrize("linear", ["", None, "linear"])
def test_no_activation_means_linear(linear):
    assert AlbertConfig.from_dict({**TINY_SHAPE, "hidden_act": linear}).hidden_act == "linear"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"vocab_size": 97, "hidden_size": 12, "pooler_fc_size": 768}, "this is a BERT config"),
        ({"hidden_size": 12}, "'vocab_size' is missing"),
        (TINY_SHAPE | {"hiden_size": 12}, "unknown keys 'hiden_size'. Known: "),
        ({"model_type": "bert"}, "'bert', expected \"albert\". Use transformers for other"),
        (HUGGING_FACE | {"layer_norm_eps": 1e-5}, "layer_norm_eps=1e-05: only 1e-12"),
        (HUGGING_FACE | {"hidden_act": "silu"}, "hidden_act='silu': expected one of "),
        (TINY_SHAPE | {"num_hidden_groups": 0}, "num_hidden_groups=0: expected an integer from 1"),
        (TINY_SHAPE | {"num_hidden_layers": 10**9}, "is 1000000000: expected at most 65536"),
        (TINY_SHAPE | {"num_hidden_layers": 2**31}, "num_hidden_layers=2147483648: expected an"),
        (TINY_SHAPE | {"type_vocab_size": True}, "type_vocab_size=True: expected an integer"),
        (
            TINY_SHAPE | {"hidden_dropout_prob": 1},
            "hidden_dropout_prob=1: expected a number in [0",
        ),
        (TINY_SHAPE | {"hidden_act": "swish"}, "hidden_act='swish': expected one of gelu"),
        (TINY_SHAPE | {"initializer_range": float("nan")}, "initializer_range=nan: expected a fin"),
        (TINY_SHAPE | {"initializer_range": -1}, "initializer_range=-1: expected a finite number"),
        (TINY_SHAPE | {"ln_type": "preln", "layout": "google"}, '"preln" requires the layout'),
        (TINY_SHAPE | {"layout": "albert_zh"}, 'layout "albert_zh" requires num_hidden_groups=1'),
    ],
)
def test_other_models_and_invalid_values_are_refused(values, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        AlbertConfig.from_dict(values)


@pytest.mark.parametrize(
    ("layers", "groups", "expected"),
    [
        (6, 1, [0, 0, 0, 0, 0, 0]),
        (6, 2, [0, 0, 0, 1, 1, 1]),
        (6, 6, [0, 1, 2, 3, 4, 5]),
        (5, 2, [0, 0, 0, 1, 1]),
        (5, 3, [0, 0, 1, 1, 2]),
        (4, 12, [0, 3, 6, 9]),
    ],
)
def test_consecutive_layers_share_a_group(layers, groups, expected):
    config = AlbertConfig(vocab_size=97, num_hidden_layers=layers, num_hidden_groups=groups)
    assert config.modules_of_layers() == (tuple(expected), tuple(expected))


def test_values_at_their_limits_are_accepted():
    limits = {"type_vocab_size": 2**31 - 1, "num_hidden_groups": 1, "initializer_range": 0}
    limits |= {"hidden_dropout_prob": 1 - 2**-53, "attention_probs_dropout_prob": 0}
    config = AlbertConfig(**TINY_SHAPE | limits)
    assert {name: getattr(config, name) for name in limits} == limits


def test_units_that_heads_cannot_share_are_refused_in_the_model(tmp_path):
    config = AlbertConfig(99, hidden_size=37)
    config.to_json_file(str(tmp_path / "config.json"))
    assert AlbertConfig.from_json_file(str(tmp_path / "config.json")) == config
    said = "hidden_size=37 is not a multiple of num_attention_heads=64"
    for use in (AlbertEncoder, lambda config: config.check_length(1)):
        with pytest.raises(ValueError, match=said):
            use(config)
    with pytest.raises(ValueError, match=rf"config\.json: {said}"):
        AlbertConfig.for_model(tmp_path / "config.json")

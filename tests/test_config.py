"""AlbertConfig: reading, writing and validation."""

from __future__ import annotations

import dataclasses
import json

import pytest

from albert_tf.config import AlbertConfig
from tests.conftest import TINY_SHAPE

GOOGLE_KEYS = {
    "attention_probs_dropout_prob",
    "embedding_size",
    "hidden_act",
    "hidden_dropout_prob",
    "hidden_size",
    "initializer_range",
    "inner_group_num",
    "intermediate_size",
    "max_position_embeddings",
    "num_attention_heads",
    "num_hidden_groups",
    "num_hidden_layers",
    "type_vocab_size",
    "vocab_size",
}
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


def test_defaults_are_googles():
    config = AlbertConfig(vocab_size=30000)
    assert config.to_dict() == {
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
    assert (config.layout, config.ln_type) == ("google", "postln")


def test_a_config_cannot_be_changed(tiny_config):
    with pytest.raises(dataclasses.FrozenInstanceError):
        tiny_config.hidden_size = 24


def test_a_written_config_is_read_back_unchanged(tiny_config, tmp_path):
    path = str(tmp_path / "albert_config.json")
    tiny_config.to_json_file(path)
    assert AlbertConfig.from_json_file(path) == tiny_config
    assert AlbertConfig.from_dict(tiny_config.to_dict()) == tiny_config
    assert set(json.loads((tmp_path / "albert_config.json").read_text())) == GOOGLE_KEYS


@pytest.mark.parametrize("ln_type", ["postln", "preln"])
def test_albert_zhs_configs_are_recognized_and_read_back_unchanged(ln_type, tmp_path):
    config = AlbertConfig.from_dict({**ALBERT_ZH, "ln_type": ln_type})
    assert (config.layout, config.ln_type) == ("albert_zh", ln_type)
    path = str(tmp_path / "albert_config.json")
    config.to_json_file(path)
    assert AlbertConfig.from_json_file(path) == config


@pytest.mark.parametrize("missing", [{}, {"ln_type": None}])
def test_an_albert_zh_config_defaults_to_post_ln(missing):
    config = AlbertConfig.from_dict({**ALBERT_ZH, **missing})
    assert (config.layout, config.ln_type) == ("albert_zh", "postln")


def test_a_config_with_googles_sharing_keys_is_googles():
    assert AlbertConfig.from_dict({**ALBERT_ZH, "num_hidden_groups": 1}).layout == "google"


def test_googles_obsolete_keys_are_ignored():
    historic = {
        "down_scale_factor": 1,
        "net_structure_type": 0,
        "gap_size": 0,
        "num_memory_blocks": 0,
        "layers_to_keep": [],
    }
    assert AlbertConfig.from_dict({**TINY_SHAPE, **historic}) == AlbertConfig(**TINY_SHAPE)


def test_hugging_faces_config_can_be_read(tmp_path):
    values = {
        "architectures": ["AlbertForMaskedLM"],
        "attention_probs_dropout_prob": 0,
        "bos_token_id": 2,
        "classifier_dropout_prob": 0.1,
        "down_scale_factor": 1,
        "embedding_size": 128,
        "eos_token_id": 3,
        "gap_size": 0,
        "hidden_act": "gelu_new",
        "hidden_dropout_prob": 0,
        "hidden_size": 768,
        "id2label": {"0": "negative", "1": "positive"},
        "initializer_range": 0.02,
        "inner_group_num": 1,
        "intermediate_size": 3072,
        "layer_norm_eps": 1e-12,
        "max_position_embeddings": 512,
        "model_type": "albert",
        "net_structure_type": 0,
        "num_attention_heads": 12,
        "num_hidden_groups": 1,
        "num_hidden_layers": 12,
        "pad_token_id": 0,
        "type_vocab_size": 2,
        "vocab_size": 30000,
    }
    base = AlbertConfig(
        vocab_size=30000,
        hidden_size=768,
        intermediate_size=3072,
        num_attention_heads=12,
        num_hidden_layers=12,
    )
    path = tmp_path / "config.json"
    path.write_text(json.dumps(values))
    assert AlbertConfig.from_json_file(str(path)) == base
    del values["model_type"]  # as in the first configs of 2019
    assert AlbertConfig.from_dict(values) == base


def test_hugging_faces_defaults_are_used():
    config = AlbertConfig.from_dict({"model_type": "albert"})
    assert config == AlbertConfig(vocab_size=30000)


def test_the_exact_gelu_causes_a_warning(caplog):
    assert (
        AlbertConfig.from_dict({"model_type": "albert", "hidden_act": "gelu"}).hidden_act == "gelu"
    )
    assert "Hugging Face computes with erf" in caplog.text


def without(values, name):
    return {key: value for key, value in values.items() if key != name}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (without(ALBERT_ZH, "embedding_size"), "BERT config"),
        (without(TINY_SHAPE, "vocab_size"), "'vocab_size' is missing"),
        ({**TINY_SHAPE, "hiden_size": 12}, "unknown key.*'hiden_size'.*Known: .*hidden_size"),
        ({"model_type": "bert"}, "model_type is 'bert'"),
        ({"architectures": ["BertModel"]}, r"architectures is \['BertModel'\]"),
        ({"model_type": "albert", "layer_norm_eps": 1e-5}, "layer_norm_eps=1e-05: only 1e-12"),
        ({"model_type": "albert", "layer_norm_eps": "small"}, "layer_norm_eps='small': "),
        ({"model_type": "albert", "hidden_act": "silu"}, "hidden_act='silu': expected one of gelu"),
        ({"model_type": "albert", "hidden_act": []}, r"hidden_act=\[\]: expected one of gelu"),
    ],
)
def test_configs_of_other_models_are_rejected(values, message):
    with pytest.raises(ValueError, match=message):
        AlbertConfig.from_dict(values)


def test_from_dict_does_not_change_its_argument():
    values = {**ALBERT_ZH, "hidden_act": "", "ln_type": None}
    before = dict(values)
    AlbertConfig.from_dict(values)
    assert values == before


@pytest.mark.parametrize("linear", ["", None, "linear"])
def test_no_activation_means_linear(linear):
    assert AlbertConfig.from_dict({**TINY_SHAPE, "hidden_act": linear}).hidden_act == "linear"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"hidden_size": 13}, r"hidden_size=13 is not a multiple of num_attention_heads=4"),
        ({"num_hidden_groups": 0}, r"num_hidden_groups=0: expected an integer of 1 or more"),
        ({"num_hidden_layers": 0}, r"num_hidden_layers=0: expected an integer of 1 or more"),
        ({"vocab_size": -1}, r"vocab_size=-1: expected an integer of 1 or more"),
        ({"vocab_size": "97"}, r"vocab_size='97': expected an integer"),
        ({"embedding_size": 8.0}, r"embedding_size=8\.0: expected an integer"),
        ({"type_vocab_size": True}, r"type_vocab_size=True: expected an integer"),
        ({"hidden_dropout_prob": 1}, r"hidden_dropout_prob=1 is not in \[0, 1\)"),
        ({"attention_probs_dropout_prob": -0.1}, r"attention_probs_dropout_prob=-0\.1 is not in"),
        ({"hidden_dropout_prob": "0.1"}, r"hidden_dropout_prob='0\.1': expected a number"),
        ({"hidden_act": "swish"}, r"hidden_act='swish': expected one of gelu, relu, tanh, linear"),
        ({"hidden_act": []}, r"hidden_act=\[\]: expected one of gelu"),
        ({"hidden_act": 0}, r"hidden_act=0: expected one of gelu"),
        ({"hidden_act": False}, r"hidden_act=False: expected one of gelu"),
        ({"initializer_range": float("nan")}, r"initializer_range=nan: expected a finite number"),
        ({"initializer_range": float("inf")}, r"initializer_range=inf: expected a finite number"),
        ({"initializer_range": -1}, r"initializer_range=-1: expected a finite number of 0 or more"),
        ({"initializer_range": 10**400}, r"initializer_range=10+…: expected a finite number of 0"),
        ({"hidden_dropout_prob": float("nan")}, r"hidden_dropout_prob=nan is not in \[0, 1\)"),
        ({"num_hidden_layers": 2**31}, r"num_hidden_layers=2147483648: expected at most 21474836"),
        ({"layout": "hugging_face"}, r"layout='hugging_face': expected one of google, albert_zh"),
        ({"ln_type": "preln", "layout": "google"}, r'"preln" requires the layout "albert_zh"'),
        ({"layout": "albert_zh"}, r'layout "albert_zh" requires num_hidden_groups=1'),
    ],
)
def test_invalid_values_are_rejected_with_the_value(values, message):
    with pytest.raises(ValueError, match=message):
        AlbertConfig.from_dict({**TINY_SHAPE, **values})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", r"broken\.json: not JSON: Expecting property name"),
        ("[1]", r"broken\.json: expected a JSON object, got list"),
        ('{"vocab_size": 0}', r"broken\.json: vocab_size=0"),
        ('{"vocab_size": 9, "x": 1}', r"broken\.json: unknown key"),
        ('{"vocab_size": 9, "initializer_range": NaN}', r"broken\.json: initializer_range=nan"),
    ],
)
def test_the_name_of_a_broken_file_is_reported(content, message, tmp_path):
    path = tmp_path / "broken.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=message):
        AlbertConfig.from_json_file(str(path))


def test_the_name_of_a_missing_file_is_reported(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no\.json: no such file"):
        AlbertConfig.from_json_file(str(tmp_path / "no.json"))


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
    assert [config.group_of_layer(layer) for layer in range(layers)] == expected


def test_only_googles_layout_needs_no_projection_for_equal_sizes(tiny_config):
    assert tiny_config.has_embedding_projection
    assert not dataclasses.replace(tiny_config, embedding_size=12).has_embedding_projection
    same_widths = {**ALBERT_ZH, "embedding_size": 12, "ln_type": "postln"}
    assert AlbertConfig.from_dict(same_widths).has_embedding_projection


def test_released_configs_can_be_read(shared):
    paths = sorted((shared / "released").glob("*/albert_config*.json"))
    assert paths
    for path in paths:
        config = AlbertConfig.from_json_file(str(path))
        brightmart = "brightmart" in path.parent.name
        assert config.layout == ("albert_zh" if brightmart else "google"), path


def test_a_sequence_longer_than_the_position_embeddings_is_rejected():
    config = AlbertConfig(**TINY_SHAPE | {"max_position_embeddings": 11})
    config.check_length(11)
    with pytest.raises(ValueError, match=r"--max_seq_length=12 is larger than the model.s max_"):
        config.check_length(12)

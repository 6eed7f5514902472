"""The JSON files of configs/: readable, in Google's keys, and of the published sizes."""

from __future__ import annotations

import math

import pytest

from albert_tf.config import AlbertConfig
from tests.conftest import ROOT

PATHS = sorted((ROOT / "configs").glob("*.json"))
NAMES = [path.stem for path in PATHS]
SIZES = ("base", "large", "xlarge", "xxlarge")
ENGLISH = [f"albert_{size}{version}" for size in SIZES for version in ("", "_v2")]
CHINESE = [f"albert_{size}_zh" for size in ("tiny", "small", *SIZES)]

# (encoder and pooler) as published, and with the two pre-training heads where it was.
PUBLISHED = {
    "albert_base": (11_683_584, None),
    "albert_large": (17_683_968, None),
    "albert_xlarge": (58_724_864, None),
    "albert_xxlarge": (222_595_584, None),
    "albert_tiny_zh": (4_080_520, 4_142_594),
    "albert_small_zh": (4_742_272, 4_813_706),
    "albert_base_zh": (10_547_968, 10_669_322),
    "albert_large_zh": (16_548_352, 16_702_986),
    "albert_xlarge_zh": (57_589_248, 57_877_002),
    "albert_xxlarge_zh": (221_459_968, 222_013_962),
}


def dense(inputs, outputs):
    return inputs * outputs + outputs


def count_parameters(config):
    """Parameters in closed form: encoder and pooler, and the same with the pre-training heads."""
    V, E, H, I = (  # noqa: E741
        config.vocab_size,
        config.embedding_size,
        config.hidden_size,
        config.intermediate_size,
    )
    norm = 2
    tables = (V + config.type_vocab_size + config.max_position_embeddings) * E + norm * E
    mapping = dense(E, H) if config.has_embedding_projection else 0
    attention = 4 * dense(H, H) + norm * H
    feed_forward = dense(H, I) + dense(I, H) + norm * H
    groups = {config.group_of_layer(layer) for layer in range(config.num_hidden_layers)}
    shared = len(groups) * config.inner_group_num * (attention + feed_forward)
    encoder = tables + mapping + shared + dense(H, H)
    heads = dense(H, E) + norm * E + V + dense(H, 2)
    return encoder, encoder + heads


def load(name):
    return AlbertConfig.from_json_file(str(ROOT / "configs" / f"{name}.json"))


def test_every_released_shape_is_there():
    assert set(ENGLISH + CHINESE + ["albert_demo", "albert_mini_en", "albert_small_en"]) == set(
        NAMES
    )


@pytest.mark.parametrize("path", PATHS, ids=NAMES)
def test_files_hold_googles_keys_and_nothing_else(path, tmp_path):
    config = AlbertConfig.from_json_file(str(path))
    assert config.layout == "google"
    config.to_json_file(str(tmp_path / "again.json"))
    assert path.read_text() == (tmp_path / "again.json").read_text()


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameter_counts_are_the_published_ones(name):
    encoder, with_heads = count_parameters(load(name))
    published_encoder, published_with_heads = PUBLISHED[name]
    assert encoder == published_encoder
    assert published_with_heads in (None, with_heads)


@pytest.mark.parametrize("name", ENGLISH)
def test_english_models_have_the_english_vocabulary(name):
    assert load(name).vocab_size == 30000


@pytest.mark.parametrize("name", CHINESE)
def test_chinese_models_have_berts_chinese_vocabulary_and_no_dropout(name):
    config = load(name)
    assert config.vocab_size == 21128
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (0, 0)


@pytest.mark.parametrize("size", SIZES)
def test_version_2_differs_from_version_1_in_dropout_alone(size):
    first, second = load(f"albert_{size}").to_dict(), load(f"albert_{size}_v2").to_dict()
    different = {key for key in first if first[key] != second[key]}
    dropouts = {"hidden_dropout_prob", "attention_probs_dropout_prob"}
    assert different == (set() if size == "xxlarge" else dropouts)
    assert {second[key] for key in dropouts} == {0.0}


@pytest.mark.parametrize("size", SIZES)
def test_chinese_models_differ_from_english_ones_where_googles_do(size):
    english, chinese = load(f"albert_{size}_v2").to_dict(), load(f"albert_{size}_zh").to_dict()
    different = {key: chinese[key] for key in english if english[key] != chinese[key]}
    own = {"base": {"hidden_act": "relu"}, "xxlarge": {"num_attention_heads": 16}}
    assert different == {"vocab_size": 21128, **own.get(size, {})}


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("albert_base", "albert_base_en_v1"),
        ("albert_large", "albert_large_en_v1"),
        ("albert_base_zh", "albert_base_zh_google"),
        ("albert_small_zh", "albert_small_zh_google"),
    ],
)
def test_configs_agree_with_the_files_inside_the_released_models(name, folder, shared):
    released = shared / "released" / folder / "albert_config.json"
    assert load(name) == AlbertConfig.from_json_file(str(released))


def test_the_built_model_has_the_parameters_of_the_closed_form(tiny_config, tiny_model):
    encoder = sum(math.prod(weight.shape) for weight in tiny_model.encoder.trainable_variables)
    everything = sum(math.prod(weight.shape) for weight in tiny_model.trainable_variables)
    assert (encoder, everything) == count_parameters(tiny_config)

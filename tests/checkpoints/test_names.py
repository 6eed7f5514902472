"""Names of weights in the families of checkpoints."""

from __future__ import annotations

import pytest

from albert_tf.checkpoints.names import (
    FAMILY_NAMES,
    is_bookkeeping,
    is_encoder,
    name_map,
    part_of,
    unwrap,
)
from tests.checkpoints.checkpoint_samples import INNER, SHARED, SQUARE, shapes_of


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_no_two_weights_have_the_same_name(family):
    groups, inner = {"hugging_face": (3, 2)}.get(family, (1, 1))
    names = name_map(family, groups, inner)
    assert len(set(names.values())) == len(names)


@pytest.mark.parametrize(
    ("family", "config", "lacking"),
    [
        ("hugging_face", INNER, set()),
        ("albert_zh", SQUARE, set()),
        (
            "model_garden",
            SHARED,
            {"cls/seq_relationship/output_weights", "cls/seq_relationship/output_bias"},
        ),
    ],
)
def test_every_weight_of_the_model_has_a_name(family, config, lacking):
    names = name_map(family, config.num_hidden_groups, config.inner_group_num)
    assert set(shapes_of(config)) - set(names) == lacking


def test_names_match_the_other_programs():
    block = "bert/encoder/transformer/group_1/inner_group_0/"
    names = name_map("hugging_face", 2)
    layer = "albert.encoder.albert_layer_groups.1.albert_layers.0."
    assert names[block + "ffn_1/intermediate/output/dense/kernel"] == layer + "ffn_output.weight"
    assert names[block + "LayerNorm/gamma"] == layer + "attention.LayerNorm.weight"
    assert names[block + "LayerNorm_1/beta"] == layer + "full_layer_layer_norm.bias"
    assert names["cls/seq_relationship/output_weights"] == "sop_classifier.classifier.weight"
    assert names["cls/predictions/output_bias"] == "predictions.bias"
    assert names["output_bias"] == "classifier.bias"
    block, scope = "bert/encoder/transformer/group_0/inner_group_0/", "transformer/"
    names = name_map("model_garden")
    assert names[block + "LayerNorm/beta"] == scope + "self_attention_layer_norm/beta"
    assert names[block + "LayerNorm_1/beta"] == scope + "output_layer_norm/beta"
    assert names[block + "ffn_1/intermediate/dense/kernel"] == scope + "intermediate/kernel"
    assert names[block + "ffn_1/intermediate/output/dense/bias"] == scope + "output/bias"
    assert names["bert/pooler/dense/bias"] == "pooler_transform/bias"
    names = name_map("albert_zh")
    layer = "bert/encoder/layer_shared/"
    assert names[block + "LayerNorm/gamma"] == layer + "attention/output/LayerNorm/gamma"
    assert names[block + "attention_1/self/key/bias"] == layer + "attention/self/key/bias"


@pytest.mark.parametrize(
    "name",
    [
        "bert/pooler/dense/kernel/adam_m",
        "bert/pooler/dense/kernel/lamb_v",
        "module/bert/embeddings/word_embeddings/adam_v",
        "AdamWeightDecayOptimizer/beta1_power",
        "bert/x/LAMBOptimizer_1/y",
        "AdamW/m/bert/pooler/dense/kernel",
        "global_step",
        "save_counter",
        "albert.embeddings.position_ids",
        "predictions.decoder.weight",
    ],
)
def test_moments_counters_and_copies_are_bookkeeping(name):
    assert is_bookkeeping(name)


@pytest.mark.parametrize(
    "name", ["bert/pooler/dense/kernel", "adam_m/kernel", "predictions.bias", "x/global_step"]
)
def test_weights_are_not_bookkeeping(name):
    assert not is_bookkeeping(name)


def test_wrapping_prefixes_are_removed():
    assert unwrap("module/bert/pooler/dense/bias") == "bert/pooler/dense/bias"
    assert unwrap("encoder.albert_layer_groups.0.x") == "albert.encoder.albert_layer_groups.0.x"
    assert unwrap("encoder/layer_1") == "encoder/layer_1"


def test_weights_belong_to_parts():
    assert part_of("bert/encoder/embedding_hidden_mapping_in/bias") == "embeddings"
    assert part_of("bert/embeddings/word_embeddings_2") == "embeddings"
    assert part_of("bert/encoder/layer_shared/output/dense/bias") == "encoder"
    assert part_of("cls/seq_relationship/output_bias") == "sentence head"
    assert part_of("cls/squad/output_bias") == "other heads"
    assert is_encoder("bert/pooler/dense/bias")
    assert not is_encoder("cls/predictions/output_bias")

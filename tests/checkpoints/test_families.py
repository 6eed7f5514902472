"""The families of checkpoints: their names, how they are recognized, and what fits a model."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

from albert_tf.checkpoints import families, weight_names
from albert_tf.checkpoints.weight_names import name_map
from tests.checkpoints.checkpoint_samples import (
    ALBERT_ZH,
    GOOGLE,
    INNER,
    SHARED,
    SQUARE,
    as_hugging_face,
    as_model_garden,
    random_weights,
    shapes_of,
)
from tests.conftest import TINY_SHAPE

BLOCK = "bert/encoder/transformer/group_2/inner_group_1"
LAYER = "albert.encoder.albert_layer_groups.2.albert_layers.1"
SAMPLES = {
    "google": lambda: random_weights(INNER),
    "albert_zh": lambda: random_weights(ALBERT_ZH),
    "hugging_face": lambda: as_hugging_face(random_weights(INNER), INNER),
    "model_garden": lambda: as_model_garden(random_weights(SHARED), SHARED),
    "unknown": lambda: {"resnet/conv1/kernel": np.ones((3, 3, 1, 2), np.float32)},
}


def recognize(arrays):
    return families.recognize({name: value.shape for name, value in arrays.items()})


@pytest.mark.parametrize(
    ("google", "theirs"),
    [
        (f"{BLOCK}/attention_1/self/key/bias", f"{LAYER}.attention.key.bias"),
        (f"{BLOCK}/attention_1/output/dense/kernel", f"{LAYER}.attention.dense.weight"),
        (f"{BLOCK}/LayerNorm/gamma", f"{LAYER}.attention.LayerNorm.weight"),
        (f"{BLOCK}/ffn_1/intermediate/dense/kernel", f"{LAYER}.ffn.weight"),
        (f"{BLOCK}/ffn_1/intermediate/output/dense/bias", f"{LAYER}.ffn_output.bias"),
        (f"{BLOCK}/LayerNorm_1/beta", f"{LAYER}.full_layer_layer_norm.bias"),
        ("cls/predictions/output_bias", "predictions.bias"),
        ("cls/seq_relationship/output_weights", "sop_classifier.classifier.weight"),
        ("cls/squad/output_weights", "qa_outputs.weight"),
        ("output_bias", "classifier.bias"),
    ],
)
def test_names_are_those_of_hugging_face(google, theirs):
    assert name_map("hugging_face", 3, 2)[google] == theirs


def test_moments_counters_and_copies_are_no_weights():
    for name in (
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
    ):
        assert weight_names.is_bookkeeping(name), name
    for name in ("bert/pooler/dense/kernel", "adam_m/kernel", "predictions.bias", "x/global_step"):
        assert not weight_names.is_bookkeeping(name), name


@pytest.mark.parametrize("family", families.TITLES)
def test_every_family_is_recognized_with_its_moments_and_under_the_prefix_of_tf_hub(family):
    sample = SAMPLES[family]()
    moments = {f"{name}/{slot}": x for name, x in sample.items() for slot in ("adam_m", "lamb_v")}
    step = {"global_step": np.int64(3)}
    for arrays, bookkeeping in ((sample, set()), (sample | moments | step, {*moments, *step})):
        recognized = recognize(arrays)
        assert recognized.family == family
        assert set(recognized.bookkeeping) == bookkeeping
        assert bool(recognized.entries) != bool(recognized.refusal)
        assert bool(recognized.unmapped) == bool(recognized.refusal)
    if family in ("google", "albert_zh"):
        recognized = recognize({f"module/{name}": value for name, value in sample.items()})
        assert (recognized.family, set(recognized.entries)) == (family, set(sample))


def test_an_encoder_of_hugging_face_without_its_heads_is_recognized():
    arrays = as_hugging_face(random_weights(SHARED), SHARED)
    encoder = {n.removeprefix("albert."): x for n, x in arrays.items() if n.startswith("albert.")}
    recognized = recognize(encoder | {"lm_head.weight": np.ones((2, 3))})
    assert recognized.family == "hugging_face"
    assert set(recognized.entries) == {n for n in shapes_of(SHARED) if n.startswith("bert/")}
    assert recognized.unmapped == ["lm_head.weight"]


def test_multiplying_the_factors_of_albert_zh_keeps_other_heads():
    head = {"start_logits/dense/kernel": np.ones((12, 1), np.float32)}
    entries = recognize(random_weights(ALBERT_ZH) | head).entries
    assert set(families.fit(entries, shapes_of(SQUARE))) == {*shapes_of(SQUARE), *head}


def test_sizes_are_inferred_from_shapes():
    names = ("vocab_size", "embedding_size", "hidden_size", "intermediate_size", "type_vocab_size")
    expected = {name: TINY_SHAPE[name] for name in (*names, "max_position_embeddings")}
    groups = {"num_hidden_groups": 3, "inner_group_num": 2}
    assert families.sizes(recognize(random_weights(INNER)).entries) == expected | groups
    assert families.sizes(recognize(random_weights(ALBERT_ZH)).entries) == expected


def test_groups_with_gaps_are_counted_as_the_config_uses_them():
    """Twelve groups for four layers: Google's program only creates the groups 0, 3, 6 and 9."""
    config = dataclasses.replace(GOOGLE, num_hidden_layers=4, num_hidden_groups=12)
    recognized = recognize(random_weights(config))
    assert families.sizes(recognized.entries)["num_hidden_groups"] == 4
    assert families.differences(recognized, recognized.entries, config) == []


@pytest.mark.parametrize(
    ("key", "theirs", "ours"),
    [
        ("vocab_size", 97, 89),
        ("embedding_size", 8, 4),
        ("hidden_size", 12, 16),
        ("intermediate_size", 20, 7),
        ("num_hidden_groups", 3, 2),
        ("inner_group_num", 2, 1),
        ("max_position_embeddings", 13, 17),
    ],
)
def test_a_size_that_is_another_in_the_config_is_named(key, theirs, ours):
    recognized = recognize(random_weights(INNER))
    config = dataclasses.replace(INNER, **{key: ours})
    line = f"{key} is {theirs} in the checkpoint, {ours} in the config"
    assert families.differences(recognized, recognized.entries, config) == [line]


@pytest.mark.parametrize(
    ("layers", "groups", "are_the_same"),
    [
        *((12, 1, True), (12, 12, True), (24, 24, True), (24, 3, True), (6, 4, True)),
        *((22, 22, False), (18, 14, False), (4, 12, False)),
    ],
)
def test_groups_are_hugging_faces_unless_they_round_differently(layers, groups, are_the_same):
    config = dataclasses.replace(GOOGLE, num_hidden_layers=layers, num_hidden_groups=groups)
    assert bool(families.group_obstacle(config)) != are_the_same


@pytest.mark.parametrize(
    ("prefix", "said"),
    [
        (
            "model.albert.",
            r"some weights have the prefix 'model\.', as those of an ALBERT inside of",
        ),
        ("bert.", r"have the prefix 'bert\.', as those"),
        ("module.base_model.model.albert.", r"of an adapter of PEFT, or of a model with one"),
        ("base_model.model.albert.", r"of an adapter of PEFT, or of a model with one\. Merge it"),
    ],
)
def test_weights_with_a_prefix_are_refused_with_a_way_out(prefix, said):
    names = SAMPLES["hugging_face"]()
    renamed = {name.replace("albert.", prefix, 1): array for name, array in names.items()}
    assert re.search(said, recognize(renamed).refusal)
    assert recognize(names).prefix == ""


@pytest.mark.parametrize(
    ("change", "left_out"),
    [
        (lambda name: f"module.{name}", ("module.",)),
        (lambda name: f"_orig_mod.{name}", ("_orig_mod.",)),
        (lambda name: f"module._orig_mod.{name}", ("_orig_mod.", "module.")),
        (lambda name: f"_forward_module.model.{name}", ("_forward_module.", "model.")),
        (lambda name: f"model.{name}", ("model.",)),
        (lambda name: f"student.backbone.{name}", ("student.backbone.",)),
        (lambda name: name.replace("albert.", "albert.module."), ("module.",)),
        (lambda name: name.replace("layers.0.", "layers.0._checkpoint_wrapped_module."), None),
    ],
)
def test_wrappers_and_a_prefix_of_all_weights_are_left_out_of_names(change, left_out):
    names = SAMPLES["hugging_face"]() | {"albert.embeddings.position_ids": np.arange(3)}
    wrapped = recognize({change(name): array for name, array in names.items()})
    assert not wrapped.refusal
    assert wrapped.left_out == left_out or left_out is None
    assert f"read without {', '.join(map(repr, wrapped.left_out))} in names" in wrapped.title
    assert wrapped.bookkeeping == [change("albert.embeddings.position_ids")]
    expected = recognize(names)
    assert expected.left_out == ()
    assert {name: entry.shape for name, entry in wrapped.entries.items()} == {
        name: entry.shape for name, entry in expected.entries.items()
    }
    assert wrapped.entries["bert/embeddings/LayerNorm/beta"].sources == (
        change("albert.embeddings.LayerNorm.bias"),
    )


def test_weights_that_are_there_with_and_without_a_wrapper_are_not_mixed():
    names = SAMPLES["hugging_face"]()
    both = recognize(names | {f"module.{name}": array for name, array in names.items()})
    assert both.left_out == ()
    assert "some weights have the prefix 'module.'" in both.refusal


def test_a_bias_that_only_the_decoder_has_is_that_of_the_head():
    names = dict(SAMPLES["hugging_face"]())
    both = recognize(names | {"predictions.decoder.bias": names["predictions.bias"]})
    assert both.entries["cls/predictions/output_bias"].sources == ("predictions.bias",)
    names["predictions.decoder.bias"] = names.pop("predictions.bias")
    alone = recognize(names)
    assert alone.entries["cls/predictions/output_bias"].sources == ("predictions.decoder.bias",)
    assert alone.bookkeeping == []

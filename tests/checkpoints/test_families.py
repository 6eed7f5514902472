"""Recognizing families of checkpoints, and fitting their weights to a model."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

from albert_tf.checkpoints import families
from albert_tf.checkpoints.names import PROJECTION, WORDS, WORDS_2
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

BLOCK = "bert/encoder/transformer/group_0/inner_group_0"


def recognize(arrays):
    return families.recognize({name: value.shape for name, value in arrays.items()})


def compute(arrays, entries):
    return {
        name: entry.compute(*(arrays[source] for source in entry.sources))
        for name, entry in entries.items()
    }


def without(arrays, pattern):
    return {name: value for name, value in arrays.items() if not re.search(pattern, name)}


SAMPLES = {
    "google": lambda: random_weights(INNER),
    "google_square": lambda: random_weights(SQUARE),
    "albert_zh": lambda: random_weights(ALBERT_ZH),
    "hugging_face": lambda: as_hugging_face(random_weights(INNER), INNER),
    "model_garden": lambda: as_model_garden(random_weights(SHARED), SHARED),
    "unknown": lambda: {"resnet/conv1/kernel": np.ones((3, 3, 1, 2), np.float32)},
}


def test_there_is_a_sample_of_every_family():
    assert set(SAMPLES) == set(families.FAMILIES)


@pytest.mark.parametrize("family", SAMPLES)
def test_every_family_is_recognized(family):
    recognized = recognize(SAMPLES[family]())
    assert recognized.family == family
    assert bool(recognized.entries) != bool(recognized.refusal)
    assert not recognized.bookkeeping
    if recognized.entries:
        assert not recognized.unmapped


def test_what_is_not_known_is_refused_with_what_was_found():
    zh = random_weights(ALBERT_ZH)
    for names, some in (
        (zh.keys() - {WORDS_2}, "bert/embeddings/LayerNorm/beta"),
        ({f"bert/encoder/layer_{i}/output/dense/bias" for i in range(3)}, "bert/encoder/layer_1"),
        ({"encoder/shared_layer/output/kernel:0"}, "found 1 others, such as encoder/shared_layer"),
        ((), "found 0 others, such as none"),
    ):
        recognized = families.recognize(dict.fromkeys(names, (2, 3)))
        assert recognized.family == families.UNKNOWN
        assert some in recognized.refusal
        assert recognized.refusal.startswith("expected the weights of an ALBERT by Google")


@pytest.mark.parametrize("family", SAMPLES)
def test_moments_and_counters_change_nothing(family):
    sample = SAMPLES[family]()
    moments = {f"{name}/{slot}": x for name, x in sample.items() for slot in ("adam_m", "lamb_v")}
    recognized = recognize(sample | moments | {"global_step": np.int64(3)})
    assert recognized.family == family
    assert set(recognized.bookkeeping) == {*moments, "global_step"}


@pytest.mark.parametrize("family", ["google", "google_square", "albert_zh"])
def test_the_prefix_of_tf_hub_changes_nothing(family):
    sample = SAMPLES[family]()
    recognized = recognize({f"module/{name}": value for name, value in sample.items()})
    assert recognized.family == family
    assert set(recognized.entries) == set(sample)


@pytest.mark.parametrize(
    ("config", "rename"),
    [
        (INNER, as_hugging_face),
        (SHARED, as_model_garden),
    ],
)
def test_weights_of_other_families_round_trip_bit_for_bit(config, rename):
    weights = random_weights(config)
    arrays = rename(weights, config)
    read = compute(arrays, recognize(arrays).entries)
    if rename is as_model_garden:
        weights = without(weights, "cls/seq_relationship")
    assert {name: value.shape for name, value in read.items()} == {
        name: value.shape for name, value in weights.items()
    }
    for name, value in weights.items():
        np.testing.assert_array_equal(read[name], value, name)


def test_an_encoder_of_hugging_face_without_its_heads_is_recognized():
    arrays = as_hugging_face(random_weights(SHARED), SHARED)
    encoder = {
        name.removeprefix("albert."): value
        for name, value in arrays.items()
        if name.startswith("albert.")
    }
    recognized = recognize(encoder)
    assert recognized.family == "hugging_face"
    assert set(recognized.entries) == {n for n in shapes_of(SHARED) if n.startswith("bert/")}


def test_two_factors_are_multiplied_for_a_model_with_equal_sizes():
    weights = random_weights(ALBERT_ZH)
    entries = families.fit(recognize(weights).entries, shapes_of(SQUARE))
    assert {name: entry.shape for name, entry in entries.items()} == shapes_of(SQUARE)
    read = compute(weights, entries)
    np.testing.assert_allclose(read[WORDS], weights[WORDS] @ weights[WORDS_2], rtol=1e-5, atol=1e-5)
    norm = weights["bert/encoder/layer_shared/output/LayerNorm/gamma"]
    np.testing.assert_array_equal(read[f"{BLOCK}/LayerNorm_1/gamma"], norm)


def test_two_factors_are_kept_for_other_models():
    entries = recognize(random_weights(ALBERT_ZH)).entries
    for config in (ALBERT_ZH, SHARED, dataclasses.replace(SQUARE, embedding_size=11)):
        assert families.fit(entries, shapes_of(config)) == entries


def test_every_group_can_be_initialized_from_group_0():
    weights = random_weights(INNER)
    config = dataclasses.replace(INNER, num_hidden_layers=4, num_hidden_groups=4)
    entries = families.fit(recognize(weights).entries, shapes_of(config), init_from_group0=True)
    name = "bert/encoder/transformer/group_{}/inner_group_1/attention_1/self/query/kernel"
    for group in range(4):
        assert entries[name.format(group)].sources == (name.format(0),)
    assert entries[WORDS].sources == (WORDS,)
    assert set(shapes_of(config)) <= set(entries)


def test_sizes_are_inferred_from_shapes():
    expected = {
        "vocab_size": 97,
        "embedding_size": 8,
        "hidden_size": 12,
        "intermediate_size": 20,
        "max_position_embeddings": 13,
        "type_vocab_size": 3,
    }
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
    ("change", "line"),
    [
        ({"vocab_size": 89}, "vocab_size is 97 in the checkpoint, 89 in the config"),
        ({"embedding_size": 4}, "embedding_size is 8 in the checkpoint, 4 in the config"),
        ({"hidden_size": 16}, "hidden_size is 12 in the checkpoint, 16 in the config"),
        ({"intermediate_size": 7}, "intermediate_size is 20 in the checkpoint, 7 in the config"),
        ({"num_hidden_groups": 2}, "num_hidden_groups is 3 in the checkpoint, 2 in the config"),
        ({"inner_group_num": 1}, "inner_group_num is 2 in the checkpoint, 1 in the config"),
        (
            {"max_position_embeddings": 17},
            "max_position_embeddings is 13 in the checkpoint, 17 in the config",
        ),
    ],
)
def test_contradictions_of_config_and_shapes_are_reported(change, line):
    recognized = recognize(random_weights(INNER))
    config = dataclasses.replace(INNER, **change)
    assert families.differences(recognized, recognized.entries, config) == [line]


def test_the_wrong_layout_is_reported_with_a_hint():
    recognized = recognize(random_weights(ALBERT_ZH))
    lines = families.differences(recognized, recognized.entries, SHARED)
    assert lines[0] == "layout is 'albert_zh' in the checkpoint, 'google' in the config"
    assert "ln_type" in lines[-1]


@pytest.mark.parametrize(("layers", "groups"), [(12, 1), (12, 12), (24, 24), (24, 3), (6, 4)])
def test_common_groupings_are_the_same_as_hugging_faces(layers, groups):
    config = dataclasses.replace(GOOGLE, num_hidden_layers=layers, num_hidden_groups=groups)
    assert not families.group_obstacles(config)


@pytest.mark.parametrize(("layers", "groups"), [(22, 22), (18, 14), (4, 12)])
def test_groupings_that_round_differently_are_obstacles(layers, groups):
    config = dataclasses.replace(GOOGLE, num_hidden_layers=layers, num_hidden_groups=groups)
    assert f"{layers} layers in {groups} groups" in families.group_obstacles(config)[0]


def test_identity_projections_are_recognized():
    kernel, bias = np.eye(3, dtype=np.float32), np.zeros(3, np.float32)
    assert families.is_identity(kernel, bias)
    assert not families.is_identity(kernel, bias + 1e-7)
    assert not families.is_identity(kernel + 1e-6, bias)
    assert not families.is_identity(np.zeros((2, 3), np.float32), bias)


def test_unmapped_weights_of_other_families_have_the_names_in_the_file():
    arrays = as_hugging_face(random_weights(SHARED), SHARED) | {"lm_head.weight": np.ones((2, 3))}
    recognized = recognize(arrays)
    assert recognized.unmapped == ["lm_head.weight"]
    assert f"{PROJECTION}/kernel" in recognized.entries


@pytest.mark.parametrize("family", SAMPLES)
def test_every_weight_of_a_damaged_file_is_known_or_unmapped(family):
    """Some weights are missing or have another rank."""
    rng = np.random.default_rng(11)
    sample = {name: value.shape for name, value in SAMPLES[family]().items()}
    for _ in range(40):
        kept = {name: shape for name, shape in sample.items() if rng.random() < 0.8}
        maimed = {
            name: shape if rng.random() < 0.7 else (*shape[: rng.integers(3)], 5)
            for name, shape in kept.items()
        }
        recognized = families.recognize(maimed)
        sources = {name for entry in recognized.entries.values() for name in entry.sources}
        if recognized.entries:
            assert sources | {*recognized.unmapped, *recognized.bookkeeping} == set(maimed)
        for config in (SHARED, SQUARE, ALBERT_ZH):
            entries = families.fit(recognized.entries, shapes_of(config), init_from_group0=True)
            assert {name for e in entries.values() for name in e.sources} <= sources
            for line in families.differences(recognized, entries, config):
                assert " in the checkpoint, " in line or line == recognized.kind.hint


def test_multiplying_factors_keeps_other_heads():
    head = {"start_logits/dense/kernel": np.ones((12, 1), np.float32)}
    entries = recognize(random_weights(ALBERT_ZH) | head).entries
    fitted = families.fit(entries, shapes_of(SQUARE))
    assert set(fitted) == {*shapes_of(SQUARE), *head}

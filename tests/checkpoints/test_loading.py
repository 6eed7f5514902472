"""Loading checkpoints of every family into models."""

from __future__ import annotations

import dataclasses
import json
import logging
import re

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import save_file

from albert_tf.checkpoints import loading
from albert_tf.checkpoints.containers import open_checkpoint
from albert_tf.checkpoints.loading import inspect_checkpoint, load_checkpoint, read_weights
from albert_tf.checkpoints.names import PROJECTION, WORDS, WORDS_2, variable_name
from albert_tf.checkpoints.store import save_checkpoint
from albert_tf.config import AlbertConfig
from albert_tf.heads import (
    AlbertForAnswerableSpans,
    AlbertForClassification,
    AlbertForMultipleChoice,
    AlbertForSpans,
    AlbertForTokenClassification,
)
from albert_tf.modeling import AlbertEncoder, AlbertForPretraining
from albert_tf.optimization import create_optimizer
from tests.checkpoints.checkpoint_samples import (
    ALBERT_ZH,
    GOOGLE,
    INNER,
    PRE_LN,
    SHARED,
    SQUARE,
    as_hugging_face,
    as_model_garden,
    random_arrays,
    random_weights,
    shapes_of,
)
from tests.conftest import ROOT

GOLDEN = ROOT / "tests" / "golden"
GROUP = "bert/encoder/transformer/group_{}/inner_group_0/attention_1/self/query/kernel"
HEADS = {name for name in shapes_of(GOOGLE) if name.startswith("cls/")}


def write(tmp_path, tensors, name="model.ckpt-best"):
    prefix = str(tmp_path / name)
    save_checkpoint(prefix, tensors)
    return prefix


def values_of(model):
    return {variable_name(variable): variable.numpy() for variable in model.variables}


def assert_same(arrays, expected):
    assert set(arrays) == set(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(arrays[name], value, name)


def read_all(prefix):
    reader = open_checkpoint(prefix)
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


@pytest.mark.parametrize("config", [SHARED, INNER, SQUARE, ALBERT_ZH, PRE_LN])
def test_every_layout_round_trips_bit_for_bit(config, tmp_path):
    weights = random_weights(config)
    prefix = write(tmp_path, weights)
    model = AlbertForPretraining(config)
    report = load_checkpoint(model, prefix)
    assert report.fits
    assert set(report.loaded) == set(weights)
    assert report.missing == report.unused == report.notes == []
    assert report.misshapen == {}
    again = write(tmp_path, {variable_name(v): v for v in model.variables}, "again")
    assert_same(read_all(again), weights)


@pytest.mark.parametrize("ln_type", ["postln", "preln"])
def test_a_checkpoint_of_albert_zh_produces_its_recorded_outputs(ln_type, tmp_path):
    golden = np.load(GOLDEN / f"albert_zh_{ln_type}.npz")
    parts = {part: {} for part in ("variable", "input", "output")}
    for name in golden:
        part, rest = name.split("/", 1)
        parts[part][rest] = golden[name]
    write(tmp_path, parts["variable"], "albert_model.ckpt")
    model = AlbertForPretraining(
        AlbertConfig.from_json_file(str(GOLDEN / f"albert_zh_{ln_type}.json"))
    )
    assert not load_checkpoint(model, str(tmp_path)).missing
    inputs, expected = parts["input"], parts["output"]
    outputs = model(inputs) | model.encoder(inputs)
    outputs["embedding_output"] = model.encoder.embeddings(
        inputs["input_ids"], inputs["segment_ids"]
    )
    for name in ("embedding_output", "sequence_output", "pooled_output"):
        np.testing.assert_allclose(outputs[name], expected[name], rtol=0, atol=1e-5)
    words = tf.nn.log_softmax(outputs["masked_lm_logits"]).numpy().reshape(-1, 71)
    np.testing.assert_allclose(words, expected["masked_lm_log_probs"], rtol=0, atol=1e-5)
    order = tf.nn.log_softmax(outputs["sentence_order_logits"])
    np.testing.assert_allclose(order, expected["sentence_order_log_probs"], rtol=0, atol=1e-5)


def test_the_step_defaults_to_0(tmp_path):
    assert loading.read_step(write(tmp_path, random_arrays({"a": (3,)}))) == 0
    save_file(random_arrays({"a": (3,)}), tmp_path / "model.safetensors")
    assert loading.read_step(str(tmp_path / "model.safetensors")) == 0


def test_missing_encoder_variables_are_rejected_without_changes(tmp_path):
    weights = random_weights(SHARED)
    del weights["bert/pooler/dense/bias"]
    model = AlbertForPretraining(SHARED)
    before = values_of(model)
    with pytest.raises(ValueError, match="bert/pooler/dense/bias is missing") as error:
        load_checkpoint(model, write(tmp_path, weights))
    assert "--allow_partial_init" in str(error.value)
    assert_same(values_of(model), before)


def test_missing_encoder_variables_keep_their_values_with_allow_partial(tmp_path):
    weights = random_weights(SHARED)
    del weights["bert/pooler/dense/bias"]
    model = AlbertForPretraining(SHARED)
    before = model.encoder.pooler.bias.numpy()
    report = load_checkpoint(model, write(tmp_path, weights), allow_partial=True)
    assert report.missing == ["bert/pooler/dense/bias"]
    assert not report.fits
    assert_same(values_of(model), weights | {"bert/pooler/dense/bias": before})


def without(weights, *prefixes):
    return {name: value for name, value in weights.items() if not name.startswith(prefixes)}


READ_THE_SEQUENCE = {
    "tags": lambda: AlbertForTokenClassification(SHARED, 3),
    "spans": lambda: AlbertForSpans(SHARED),
    "answerable spans": lambda: AlbertForAnswerableSpans(SHARED),
    "mean of the last layer": lambda: AlbertForClassification(SHARED, 3, use_pooled_output=False),
    "masked words": lambda: AlbertForPretraining(SHARED, "none"),
}
READ_THE_POOLER = {
    "classification": lambda: AlbertForClassification(SHARED, 3),
    "multiple choice": lambda: AlbertForMultipleChoice(SHARED),
    "pre-training": lambda: AlbertForPretraining(SHARED),
    "an encoder": lambda: AlbertEncoder(SHARED),
}


def assert_outputs_depend_on_the_pooler(model, depends):
    shape = (1, 2, 11) if isinstance(model, AlbertForMultipleChoice) else (5, 11)
    outputs = []
    for value in (0.1, -0.3):
        encoder = model if isinstance(model, AlbertEncoder) else model.encoder
        encoder.pooler.bias.assign(np.full(12, value))
        outputs.append(tf.nest.flatten(model(np.full(shape, 7))))
    same = [np.array_equal(*pair) for pair in zip(*outputs, strict=True)]
    assert all(same) is not depends


@pytest.mark.parametrize("task", READ_THE_SEQUENCE)
def test_a_pooler_that_is_not_used_may_be_missing(task, tmp_path, caplog):
    model = READ_THE_SEQUENCE[task]()
    assert_outputs_depend_on_the_pooler(model, False)
    weights = random_arrays({variable_name(v): v.shape for v in model.variables})
    prefix = write(tmp_path, without(weights, "bert/pooler/"))
    with caplog.at_level(logging.WARNING, logger="absl"):
        report = load_checkpoint(model, prefix)
        loading.load_weights(model, prefix)
    assert report.fits
    assert report.missing == ["bert/pooler/dense/bias", "bert/pooler/dense/kernel"]
    assert not caplog.messages
    found = without(values_of(model), "bert/pooler/")
    assert_same(found, without(weights, "bert/pooler/"))


@pytest.mark.parametrize("task", READ_THE_POOLER)
def test_a_pooler_that_is_used_is_a_new_weight(task, tmp_path, caplog):
    model = READ_THE_POOLER[task]()
    assert_outputs_depend_on_the_pooler(model, True)
    weights = random_arrays({variable_name(v): v.shape for v in model.variables})
    prefix = write(tmp_path, without(weights, "bert/pooler/"))
    with caplog.at_level(logging.WARNING, logger="absl"):
        assert load_checkpoint(model, prefix).fits
    (line,) = caplog.messages
    assert "random" in line
    assert "bert/pooler/dense/bias, bert/pooler/dense/kernel" in line
    with pytest.raises(ValueError, match="bert/pooler/dense/bias is missing"):
        loading.load_weights(model, prefix)


def test_half_a_pooler_is_an_error_even_where_it_is_not_used(tmp_path):
    weights = without(random_weights(SHARED), "bert/pooler/dense/bias")
    with pytest.raises(ValueError, match="bert/pooler/dense/bias is missing"):
        load_checkpoint(AlbertForSpans(SHARED), write(tmp_path, weights))


STRANGERS = {
    "google": "bert/embeddings/relative_positions",
    "hugging_face": "albert.encoder.albert_layer_groups.0.albert_layers.0.attention.query.lora_A",
    "model_garden": "transformer/self_attention/query/lora_a",
}


@pytest.mark.parametrize("family", STRANGERS)
def test_unknown_weights_of_the_encoder_are_refused_by_name(family, tmp_path):
    weights = random_weights(SHARED)
    if family != "google":
        rename = {"hugging_face": as_hugging_face, "model_garden": as_model_garden}[family]
        weights = rename(weights, SHARED)
    stranger = {STRANGERS[family]: np.zeros((3, 12), np.float32)}
    for added in ({}, {"a_head/kernel": np.zeros(3, np.float32)}, stranger):
        prefix = write(tmp_path, weights | added)
        model = AlbertForPretraining(SHARED, "none")
        if added is not stranger:
            assert load_checkpoint(model, prefix).fits
            continue
        before = values_of(model)
        for load in (load_checkpoint, loading.load_weights):
            with pytest.raises(ValueError, match=re.escape(STRANGERS[family])):
                load(model, prefix)
        assert_same(values_of(model), before)
        assert not inspect_checkpoint(prefix, model).fits


def test_missing_heads_are_reported_without_an_error(tmp_path):
    weights = {n: x for n, x in random_weights(GOOGLE).items() if n.startswith("bert/")}
    report = load_checkpoint(AlbertForPretraining(GOOGLE), write(tmp_path, weights))
    assert set(report.missing) == HEADS
    assert "missing    cls/predictions/output_bias" in str(report)


def test_heads_of_another_task_are_not_loaded(tmp_path):
    """For example, a classifier with 3 labels that is initialized from one with 2."""
    head = random_arrays({"output_weights": (2, 12), "output_bias": (2,)})
    weights = random_weights(SHARED)
    model = AlbertForClassification(SHARED, 3)
    before = model.classifier.kernel.numpy()
    report = load_checkpoint(model, write(tmp_path, weights | head))
    assert report.fits
    assert set(report.misshapen) == {"output_weights", "output_bias"}
    assert report.misshapen["output_weights"] == ([2, 12], [3, 12])
    assert set(report.unused) == HEADS
    np.testing.assert_array_equal(model.classifier.kernel.numpy(), before)
    same = AlbertForClassification(SHARED, 2)
    assert not load_checkpoint(same, write(tmp_path, weights | head)).misshapen
    np.testing.assert_array_equal(same.classifier.kernel.numpy(), head["output_weights"])


@pytest.mark.ci
@pytest.mark.parametrize(
    "changes",
    [
        {"embedding_size": 4},
        {"hidden_size": 16},
        {"intermediate_size": 7},
        {"vocab_size": 89},
        {"max_position_embeddings": 17},
        {"num_hidden_groups": 1},
        {"num_hidden_groups": 3},
        {"inner_group_num": 2},
        {"embedding_size": 12},
    ],
)
def test_the_error_for_a_wrong_config_names_the_value(changes, tmp_path):
    """Even if the checkpoint has all weights of the model, but more hidden groups."""
    prefix = write(tmp_path, random_weights(GOOGLE))
    model = AlbertForPretraining(dataclasses.replace(GOOGLE, **changes))
    ((key, value),) = changes.items()
    with pytest.raises(ValueError, match=rf"{key} is \d+ in the checkpoint, {value} in the config"):
        load_checkpoint(model, prefix)


@pytest.mark.parametrize(("stored", "config"), [(ALBERT_ZH, SHARED), (SHARED, ALBERT_ZH)])
def test_the_error_for_another_layout_names_it(stored, config, tmp_path):
    prefix = write(tmp_path, random_weights(stored))
    with pytest.raises(
        ValueError, match=f"layout is '{stored.layout}' in the checkpoint, '{config.layout}'"
    ):
        load_checkpoint(AlbertForPretraining(config), prefix)


@pytest.mark.parametrize(
    "name",
    [
        "bert/encoder/transformer/group_0_2/layer_2/layer_normalization_5/gamma",
        "a/albert_layer_groups_._0/albert_layers_._0/ffn/kernel:0",
        "bert/encoder/layer_0/output/dense/kernel",
        "some/other/model",
    ],
)
def test_unsupported_families_are_rejected_even_with_allow_partial(name, tmp_path):
    prefix = write(tmp_path, {name: np.zeros((2, 3, 4), np.float32)})
    with pytest.raises(ValueError, match=rf"found 1 others, such as {re.escape(name)}\n"):
        load_checkpoint(AlbertForPretraining(SHARED), prefix, allow_partial=True)


def test_multiplying_albert_zhs_factors_does_not_change_the_outputs(tmp_path, tiny_batch):
    prefix = write(tmp_path, random_weights(ALBERT_ZH))
    outputs = []
    for config in (ALBERT_ZH, SQUARE):
        model = AlbertForPretraining(config)
        assert load_checkpoint(model, prefix).fits
        outputs.append(model(tiny_batch) | model.encoder(tiny_batch))
    for name in ("sequence_output", "masked_lm_logits", "sentence_order_logits"):
        first, second = (output[name].numpy() for output in outputs)
        np.testing.assert_allclose(first, second, rtol=0, atol=1e-4 * abs(first).max())


def test_an_unshared_model_can_start_from_shared_weights(tmp_path, tiny_batch):
    config = dataclasses.replace(SHARED, num_hidden_layers=4)
    weights = random_weights(config)
    prefix = write(tmp_path, weights)
    shared = AlbertForPretraining(config)
    load_checkpoint(shared, prefix)
    unshared = AlbertForPretraining(dataclasses.replace(config, num_hidden_groups=4))
    with pytest.raises(ValueError, match="num_hidden_groups is 1 in the checkpoint, 4 in"):
        load_checkpoint(unshared, prefix)
    report = load_checkpoint(unshared, prefix, init_from_group0=True)
    assert report.fits
    assert not report.missing
    values = values_of(unshared)
    for group in range(4):
        np.testing.assert_array_equal(values[GROUP.format(group)], weights[GROUP.format(0)])
    expected = shared(tiny_batch)["masked_lm_logits"]
    np.testing.assert_array_equal(unshared(tiny_batch)["masked_lm_logits"], expected)


def test_init_from_group_0_ignores_the_other_groups(tmp_path):
    weights = random_weights(GOOGLE)
    prefix = write(tmp_path, weights)
    model = AlbertForPretraining(GOOGLE)
    load_checkpoint(model, prefix, init_from_group0=True)
    values = values_of(model)
    for group in range(2):
        np.testing.assert_array_equal(values[GROUP.format(group)], weights[GROUP.format(0)])
    alone = AlbertForPretraining(SHARED)
    report = load_checkpoint(alone, prefix, init_from_group0=True)
    assert GROUP.format(1) in report.unused


def test_hugging_faces_identity_projection_is_dropped(tmp_path):
    """Hugging Face's ALBERT has a projection even if E = H; Google's does not."""
    kernel, bias = np.eye(12, dtype=np.float32), np.zeros(12, np.float32)
    projection = {f"{PROJECTION}/kernel": kernel, f"{PROJECTION}/bias": bias}
    weights = random_weights(SQUARE)
    path = tmp_path / "model.safetensors"
    arrays = as_hugging_face(weights | projection, SQUARE)
    save_file({name: np.ascontiguousarray(value) for name, value in arrays.items()}, path)
    model = AlbertForPretraining(SQUARE)
    assert load_checkpoint(model, str(tmp_path)).fits
    assert_same(values_of(model), weights)
    arrays["albert.encoder.embedding_hidden_mapping_in.weight"] = 2 * kernel
    save_file({name: np.ascontiguousarray(value) for name, value in arrays.items()}, path)
    with pytest.raises(ValueError, match=f"{PROJECTION}/bias is not in the model"):
        load_checkpoint(model, str(tmp_path))


def test_hugging_face_weights_in_other_groups_are_rejected(tmp_path):
    config = dataclasses.replace(GOOGLE, num_hidden_layers=4, num_hidden_groups=12)
    arrays = as_hugging_face(random_weights(SHARED), SHARED)
    save_file(
        {name: np.ascontiguousarray(value) for name, value in arrays.items()},
        tmp_path / "model.safetensors",
    )
    with pytest.raises(ValueError, match="assign layers to different groups"):
        load_checkpoint(AlbertForPretraining(config), str(tmp_path))


@pytest.mark.parametrize(
    "changes", [{"num_attention_heads": 2}, {"hidden_act": "relu"}, {"num_hidden_layers": 2}]
)
def test_a_config_that_differs_from_the_one_beside_the_weights_is_said(changes, tmp_path, caplog):
    """Shapes do not show it, but the outputs are others."""
    ((key, value),) = changes.items()
    prefix = write(tmp_path, random_weights(SHARED))
    SHARED.to_json_file(str(tmp_path / "albert_config.json"))
    other = AlbertForPretraining(dataclasses.replace(SHARED, **changes))
    same = AlbertForPretraining(SHARED)
    for load in (load_checkpoint, loading.load_weights):
        with caplog.at_level(logging.WARNING, logger="absl"):
            load(same, prefix)
            assert not caplog.messages
            load(other, prefix)
        said = f"{key} is {getattr(SHARED, key)!r} in the config beside the checkpoint, {value!r}"
        assert said in caplog.text
        caplog.clear()
    ids = np.arange(22).reshape(2, 11)
    difference = other.encoder(ids)["sequence_output"] - same.encoder(ids)["sequence_output"]
    assert np.abs(difference).max() > 1e-3


def test_the_report_has_a_table_by_part(tmp_path):
    weights = random_weights(SHARED)
    moments = {f"{name}/adam_m": value for name, value in weights.items()}
    head = random_arrays({"output_weights": (2, 12)})
    del weights["cls/predictions/output_bias"]
    prefix = write(tmp_path, weights | moments | head)
    text = str(inspect_checkpoint(prefix, AlbertForPretraining(SHARED)))
    assert text.splitlines()[0] == f"{prefix}: Google ALBERT (TensorFlow checkpoint)"
    assert "vocab_size 97, embedding_size 8, hidden_size 12" in text
    rows = {
        match[1].strip(): [int(number) for number in match[2].split()]
        for match in re.finditer(r"^  ([a-zA-Z -]+?)((?: +\d+){5})$", text, re.MULTILINE)
    }
    assert rows == {
        "embeddings": [7, 7, 0, 0, 0],
        "encoder": [16, 16, 0, 0, 0],
        "pooler": [2, 2, 0, 0, 0],
        "masked-LM head": [4, 4, 1, 0, 0],
        "sentence head": [2, 2, 0, 0, 0],
        "other heads": [1, 0, 0, 0, 1],
        "all": [32, 31, 1, 0, 1],
    }
    assert "and 32 moments, counters and copies" in text
    assert "unused     output_weights" in text


def test_long_lists_of_names_are_truncated(tmp_path):
    prefix = write(tmp_path, random_weights(GOOGLE))
    text = str(inspect_checkpoint(prefix, AlbertForPretraining(ALBERT_ZH)))
    assert text.count("  unused     ") == 16
    assert "  … and 18 more" in text


def test_weights_are_read_in_the_layout_of_the_model(tmp_path):
    prefix = write(tmp_path, random_weights(ALBERT_ZH))
    assert WORDS_2 in read_weights(prefix)
    merged = read_weights(prefix, AlbertForPretraining(SQUARE))
    assert merged[WORDS].shape == (97, 12)
    assert merged[WORDS].dtype == np.float32


@pytest.mark.ci
@pytest.mark.parametrize("name", ["lamb", "adamw"])
def test_google_checkpoints_with_moments_round_trip_bit_for_bit(shared, name, tmp_path):
    source = str(shared / "golden" / "resume" / name / "model.ckpt-6")
    config_file = shared / "golden" / "encoder" / "groups" / "albert_config.json"
    model = AlbertForPretraining(AlbertConfig.from_json_file(str(config_file)))
    saved_back(model, source, str(tmp_path / "again"))
    assert_same(read_all(str(tmp_path / "again")), read_all(source))


def saved_back(model, source, target):
    """Loads weights, moments and step, and saves them like training does."""
    report = load_checkpoint(model, source)
    reader = open_checkpoint(source)
    stored = reader.get_variable_to_shape_map()
    slots = create_optimizer("adamw", 0.1).slot_variables(model.trainable_variables)
    moments = {name: slot for name, slot in slots.items() if name in stored}
    for moment, slot in moments.items():
        slot.assign(reader.get_tensor(moment))
    step = {n: tf.constant(reader.get_tensor(n)) for n in ("global_step",) if n in stored}
    save_checkpoint(target, {variable_name(v): v for v in model.variables} | moments | step)
    return report


RELEASED = {
    "albert_base_en_v1": "Google ALBERT",
    "albert_base_zh_google": "Google ALBERT",
    "albert_large_en_v1": "Google ALBERT",
    "albert_large_zh_brightmart": "albert_zh",
    "albert_small_zh_google": "Google ALBERT",
    "albert_tiny_250k_brightmart": "albert_zh",
    "albert_tiny_brightmart": "albert_zh",
    "albert_tiny_google_lcqmc_finetuned": "Google ALBERT",
    "albert_tiny_zh_google": "Google ALBERT",
}
RELEASED_BY_SIZE = [
    pytest.param(
        name,
        marks=pytest.mark.slow if "large" in name or "base" in name else pytest.mark.ci,
    )
    for name in RELEASED
]
DTYPES = {"float32": np.float32, "int64": np.int64}


def released_arrays(folder):
    """Writes random numbers with the names, shapes and dtypes of a released checkpoint."""
    lines = (folder / "variables.txt").read_text().splitlines()
    found = [re.match(r"(\S+) (\[.*?\]) (\w+) offset", line) for line in lines]
    rng = np.random.default_rng(5)
    return {
        match[1]: (rng.standard_normal(json.loads(match[2]), np.float32) * 0.05).astype(
            DTYPES[match[3]]
        )
        for match in found
        if match
    }


def test_every_released_checkpoint_is_tried(shared):
    assert {path.name for path in (shared / "released").iterdir()} == set(RELEASED)


@pytest.mark.parametrize("name", RELEASED_BY_SIZE)
def test_released_checkpoints_load_run_and_save_back(shared, name, tmp_path):
    folder = shared / "released" / name
    arrays = released_arrays(folder)
    (index,) = folder.glob("*.index")
    prefix = str(tmp_path / index.stem)
    save_checkpoint(prefix, arrays)
    # The fine-tuned one came without a config: it is the tiny model's.
    configs = list(folder.glob("*.json")) or [shared / "released" / "albert_tiny_zh_google"]
    path = configs[0] if configs[0].is_file() else next(configs[0].glob("*.json"))
    config = AlbertConfig.from_json_file(str(path))
    has_heads = "cls/predictions/output_bias" in arrays
    model = AlbertForPretraining(config) if has_heads else AlbertEncoder(config)
    report = saved_back(model, prefix, str(tmp_path / "again"))
    assert report.title == f"{RELEASED[name]} (TensorFlow checkpoint)"
    assert report.missing == report.unused == []
    assert report.misshapen == {}
    assert report.notes == []
    assert_same(read_all(str(tmp_path / "again")), arrays)
    ids = tf.constant([[101, 7, 8, 102, 0]])
    encoder = model.encoder if has_heads else model
    assert np.isfinite(encoder(ids)["sequence_output"]).all()
    if has_heads:
        outputs = model(ids, masked_lm_positions=tf.constant([[1, 2]]))
        assert outputs["masked_lm_logits"].shape == (1, 2, config.vocab_size)

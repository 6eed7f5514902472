"""Loading checkpoints of every family into models."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import re

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints import loading
from albert_tf.checkpoints.loading import inspect_checkpoint, load_checkpoint, read_weights
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.run_record import RunRecord
from albert_tf.checkpoints.store import save_checkpoint
from albert_tf.checkpoints.weight_names import PROJECTION, WORDS, WORDS_2, variable_name
from albert_tf.model import heads
from albert_tf.model.config import AlbertConfig
from albert_tf.model.modeling import AlbertForPretraining
from tests.checkpoints.checkpoint_samples import (
    ALBERT_ZH,
    GOOGLE,
    INNER,
    PRE_LN,
    SHARED,
    SQUARE,
    as_hugging_face,
    as_model_garden,
    assert_same,
    random_arrays,
    random_weights,
    read_all,
    values_of,
)
from tests.conftest import ROOT
from tests.huggingface_folders import save_file

GOLDEN = ROOT / "tests" / "golden"
QUERY = "bert/encoder/transformer/group_{}/inner_group_0/attention_1/self/query/kernel"


def write(tmp_path, tensors, name="model.ckpt-best"):
    prefix = str(tmp_path / name)
    save_checkpoint(prefix, tensors)
    return prefix


def write_hugging_face(tmp_path, weights, config):
    arrays = as_hugging_face(weights, config)
    contiguous = {name: np.ascontiguousarray(value) for name, value in arrays.items()}
    save_file(contiguous, tmp_path / "model.safetensors")
    return str(tmp_path)


def without(weights, *prefixes):
    return {name: value for name, value in weights.items() if not name.startswith(prefixes)}


@pytest.mark.parametrize("config", [SHARED, INNER, SQUARE, ALBERT_ZH, PRE_LN])
def test_every_layout_round_trips_bit_for_bit(config, tmp_path):
    weights = random_weights(config)
    model = AlbertForPretraining(config)
    report = load_checkpoint(model, write(tmp_path, weights))
    assert report.fits
    assert set(report.loaded) == set(weights)
    assert report.missing == report.unused == report.notes == []
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


@pytest.mark.parametrize(("count", "more"), [(16, None), (17, None), (18, 2)])
def test_a_report_lists_17_names_or_16_and_the_number_of_the_others(tmp_path, count, more):
    names = [f"x{number:02}" for number in range(count)]
    report = inspect_checkpoint(write(tmp_path, random_arrays(dict.fromkeys(names, (1,)))))
    listed = [line for line in str(report).splitlines() if line.startswith(("  unused", "  …"))]
    shown = names if more is None else names[:16]
    others = [] if more is None else [f"  … and {more} more"]
    assert listed == [f"  unused     {name}" for name in shown] + others


def test_an_incomplete_encoder_is_refused_and_loaded_with_allow_partial(tmp_path):
    weights = random_weights(SHARED)
    del weights["bert/pooler/dense/bias"]
    prefix, model = write(tmp_path, weights), AlbertForPretraining(SHARED)
    before = values_of(model)
    with pytest.raises(ValueError, match=r"dense/bias is missing(?s:.*)--allow_partial_init"):
        load_checkpoint(model, prefix)
    assert_same(values_of(model), before)
    report = load_checkpoint(model, prefix, allow_partial=True)
    assert (report.missing, report.fits) == (["bert/pooler/dense/bias"], False)
    name = "bert/pooler/dense/bias"
    assert_same(values_of(model), weights | {name: before[name]})


@pytest.mark.parametrize(
    ("make", "is_used"),
    [
        (lambda: heads.AlbertForTokenClassification(SHARED, 3), False),
        (lambda: heads.AlbertForSpans(SHARED), False),
        (lambda: heads.AlbertForAnswerableSpans(SHARED), False),
        (lambda: heads.AlbertForClassification(SHARED, 3, use_pooled_output=False), False),
        (lambda: AlbertForPretraining(SHARED, "none"), False),
        (lambda: heads.AlbertForClassification(SHARED, 3), True),
        (lambda: heads.AlbertForMultipleChoice(SHARED), True),
        (lambda: AlbertForPretraining(SHARED), True),
    ],
)
def test_a_missing_pooler_is_new_where_an_output_depends_on_it(make, is_used, tmp_path, caplog):
    model = make()
    pooler = model.encoder.pooler
    ids = np.full((1, 2, 11) if isinstance(model, heads.AlbertForMultipleChoice) else (5, 11), 7)
    before = tf.nest.flatten(model(ids))
    pooler.bias.assign_add(tf.ones(12))
    after = tf.nest.flatten(model(ids))
    assert all(map(np.array_equal, before, after)) is not is_used

    weights = random_arrays({variable_name(v): v.shape for v in model.variables})
    prefix = write(tmp_path, without(weights, "bert/pooler/"))
    with caplog.at_level(logging.WARNING, logger="absl"):
        report = load_checkpoint(model, prefix)
    assert report.fits
    assert report.missing == ["bert/pooler/dense/bias", "bert/pooler/dense/kernel"]
    said = "New, with random weights: bert/pooler/dense/bias, bert/pooler/dense/kernel"
    assert len(caplog.messages) == is_used
    assert (said in caplog.text) == is_used
    assert_same(without(values_of(model), "bert/pooler/"), without(weights, "bert/pooler/"))
    refused = pytest.raises(ValueError, match="bert/pooler/dense/bias is missing")
    with refused if is_used else contextlib.nullcontext():
        loading.load_weights(model, prefix)


@pytest.mark.parametrize(
    ("rename", "stranger"),
    [
        (lambda weights, config: weights, "bert/embeddings/relative_positions"),
        (as_hugging_face, "albert.encoder.albert_layer_groups.0.albert_layers.0.ffn.lora_A"),
        (as_model_garden, "transformer/self_attention/query/lora_a"),
    ],
)
def test_unknown_weights_of_the_encoder_are_refused_by_name(rename, stranger, tmp_path):
    weights, model = rename(random_weights(SHARED), SHARED), AlbertForPretraining(SHARED, "none")
    head = {"a_head/kernel": np.zeros(3, np.float32)}
    assert load_checkpoint(model, write(tmp_path, weights | head)).fits
    prefix = write(tmp_path, weights | {stranger: np.zeros((3, 12), np.float32)})
    for load in (load_checkpoint, loading.load_weights):
        with pytest.raises(ValueError, match=re.escape(stranger)):
            load(model, prefix)
    assert not inspect_checkpoint(prefix, model).fits


def test_heads_of_another_task_are_not_loaded(tmp_path):
    """For example, a classifier with 3 labels that is initialized from one with 2."""
    head = random_arrays({"output_weights": (2, 12), "output_bias": (2,)})
    pretrained = random_weights(SHARED)
    prefix = write(tmp_path, pretrained | head)
    model = heads.AlbertForClassification(SHARED, 3)
    before = model.classifier.kernel.numpy()
    report = load_checkpoint(model, prefix)
    assert report.fits
    assert report.misshapen == {"output_weights": ([2, 12], [3, 12]), "output_bias": ([2], [3])}
    assert set(report.unused) == {name for name in pretrained if name.startswith("cls/")}
    np.testing.assert_array_equal(model.classifier.kernel.numpy(), before)


@pytest.mark.parametrize(
    ("stored", "config", "said"),
    [
        (SHARED, dataclasses.replace(SHARED, hidden_size=16), "hidden_size is 12 in the checkp"),
        # The checkpoint has all weights of this model, and another group.
        (GOOGLE, SHARED, "num_hidden_groups is 2 in the checkpoint, 1 in the config"),
        (ALBERT_ZH, SHARED, "layout is 'albert_zh' in the checkpoint, 'google'(?s:.*)ln_type"),
        (SHARED, ALBERT_ZH, "layout is 'google' in the checkpoint, 'albert_zh'"),
    ],
)
def test_a_model_of_another_config_is_refused_with_the_value(stored, config, said, tmp_path):
    prefix = write(tmp_path, random_weights(stored))
    with pytest.raises(ValueError, match=said):
        load_checkpoint(AlbertForPretraining(config), prefix)


def test_other_families_are_refused_even_with_allow_partial(tmp_path):
    name = "bert/encoder/transformer/group_0_2/layer_2/layer_normalization_5/gamma"
    prefix = write(tmp_path, {name: np.zeros((2, 3, 4), np.float32)})
    with pytest.raises(
        ValueError, match=f"nothing that fits the model: .* found 1 others, such as {name}$"
    ):
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
    assert WORDS_2 in read_weights(prefix)
    merged = read_weights(prefix, model)[WORDS]
    assert (merged.shape, merged.dtype) == ((97, 12), np.float32)


def test_an_unshared_model_can_start_from_group_0(tmp_path, tiny_batch):
    weights = random_weights(GOOGLE)
    prefix = write(tmp_path, weights)
    unshared = AlbertForPretraining(dataclasses.replace(GOOGLE, num_hidden_groups=3))
    with pytest.raises(ValueError, match=r"groups is 2 in the checkpoint(?s:.*)--init_from_group0"):
        load_checkpoint(unshared, prefix)
    report = load_checkpoint(unshared, prefix, init_from_group0=True)
    assert (report.fits, report.missing) == (True, [])
    for group in range(3):
        np.testing.assert_array_equal(
            values_of(unshared)[QUERY.format(group)], weights[QUERY.format(0)]
        )
    shared = AlbertForPretraining(SHARED)
    report = load_checkpoint(shared, prefix, init_from_group0=True)
    assert (report.fits, report.unused) == (True, [])  # other groups are not needed
    expected = shared(tiny_batch)["masked_lm_logits"]
    np.testing.assert_array_equal(unshared(tiny_batch)["masked_lm_logits"], expected)


def test_a_projection_of_hugging_face_is_refused_unless_it_is_the_identity(tmp_path):
    """Hugging Face's ALBERT has a projection even if E = H; Google's does not."""
    kernel, bias = np.eye(12, dtype=np.float32), np.zeros(12, np.float32)
    for factor, offset in ((1, 1e-7), (1 + 1e-6, 0), (1, 0)):
        projection = {f"{PROJECTION}/kernel": factor * kernel, f"{PROJECTION}/bias": bias + offset}
        projection = {name: np.float32(value) for name, value in projection.items()}
        path = write_hugging_face(tmp_path, random_weights(SQUARE) | projection, SQUARE)
        if (factor, offset) == (1, 0):
            assert load_checkpoint(AlbertForPretraining(SQUARE), path).fits
            continue
        with pytest.raises(ValueError, match=f"{PROJECTION}/bias is not in the model"):
            load_checkpoint(AlbertForPretraining(SQUARE), path)


def test_hugging_faces_weights_in_other_groups_are_refused(tmp_path):
    config = dataclasses.replace(GOOGLE, num_hidden_layers=4, num_hidden_groups=12)
    path = write_hugging_face(tmp_path, random_weights(SHARED), SHARED)
    with pytest.raises(ValueError, match="assign layers to different groups"):
        load_checkpoint(AlbertForPretraining(config), path)


@pytest.mark.parametrize(
    ("config", "key", "value"),
    [
        (SHARED, "num_attention_heads", 2),
        (SHARED, "hidden_act", "relu"),
        (SHARED, "num_hidden_layers", 2),
        (ALBERT_ZH, "ln_type", "preln"),
    ],
)
def test_what_differs_from_the_config_beside_the_weights_is_said(
    config, key, value, tmp_path, caplog
):
    """Shapes do not show it, but the outputs are others."""
    prefix = write(tmp_path, random_weights(config))
    config.to_json_file(str(tmp_path / "albert_config.json"))
    other = AlbertForPretraining(dataclasses.replace(config, **{key: value}))
    for load in (load_checkpoint, loading.load_weights):
        with caplog.at_level(logging.WARNING, logger="absl"):
            load(AlbertForPretraining(config), prefix)
            assert not caplog.messages
            load(other, prefix)
        assert f"{key} is {getattr(config, key)!r} in the config next to the che" in caplog.text
        caplog.clear()


def test_the_report_has_the_number_of_weights_by_part_and_the_first_names(tmp_path):
    weights = random_weights(SHARED)
    moments = {f"{name}/adam_m": value for name, value in weights.items()}
    head = random_arrays({"output_weights": (2, 12)})
    del weights["cls/predictions/output_bias"]
    prefix = write(tmp_path, weights | moments | head)
    text = str(inspect_checkpoint(prefix, AlbertForPretraining(SHARED)))
    heading = f"{prefix}: Google ALBERT (TensorFlow checkpoint), 32 weights"
    assert text.splitlines()[0] == f"{heading}, 32 moments, counters and copies"
    assert "vocab_size 97, embedding_size 8, hidden_size 12" in text
    parts = "embeddings 7, encoder 16, pooler 2, masked-LM head 4, sentence head 2, other heads 1"
    assert f"\n  weights: {parts}\n" in text
    assert "missing    cls/predictions/output_bias" in text


def test_a_sentence_head_of_another_objective_is_said(tmp_path, caplog):
    prefix = write(tmp_path, random_weights(SHARED))
    for objective, is_said in (("sop", False), ("nsp", True)):
        RunFolder(str(tmp_path)).write_record(RunRecord(settings={"sentence_objective": objective}))
        load_checkpoint(AlbertForPretraining(SHARED), prefix)
        assert ("trained with sentence_objective=nsp, and this model has sop" in caplog.text) == (
            is_said
        )

"""The two span heads of `albert_tf.heads`."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import heads
from albert_tf.checkpoints.names import variable_name
from tests.test_heads import load_golden

LABELS = ("start_positions", "end_positions", "is_impossible")
STARTS, ENDS = 3, 2


def as_tensors(batch, names=None):
    return {name: tf.constant(value) for name, value in batch.items() if not names or name in names}


def assert_gradients_match(model, tape, loss, golden):
    variables = model.trainable_variables
    for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
        name = variable_name(variable)
        if "pooler" in name:
            assert gradient is None  # no span depends on it, so training leaves it alone
            continue
        np.testing.assert_allclose(
            tf.convert_to_tensor(gradient),
            golden[f"gradient/{name}"],
            rtol=1e-4,
            atol=1e-6,
            err_msg=name,
        )


def test_spans_match_the_official_program(shared):
    model, batch, golden = load_golden(shared, "span_v1", heads.AlbertForSpans)
    with tf.GradientTape() as tape:
        outputs = model(as_tensors(batch))
        losses = heads.span_losses(outputs, batch["start_positions"], batch["end_positions"])
        loss = tf.reduce_mean(losses)
    for name in ("start_logits", "end_logits"):
        np.testing.assert_allclose(outputs[name], golden[name], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(loss, golden["loss"], rtol=1e-5)
    assert_gradients_match(model, tape, loss, golden)


def test_answerable_spans_match_the_official_program_in_training(shared):
    model, batch, golden = load_golden(
        shared, "span_v2", lambda config: heads.AlbertForAnswerableSpans(config, 3, 3, 0.0)
    )
    with tf.GradientTape() as tape:
        outputs = model(as_tensors(batch), training=True)
        losses = heads.answerable_span_losses(outputs, *(batch[name] for name in LABELS))
        loss = tf.reduce_mean(losses)
    for name in ("start_log_probs", "end_log_probs", "cls_logits"):
        np.testing.assert_allclose(outputs[name], golden[f"train_{name}"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(loss, golden["loss"], rtol=1e-5)
    assert_gradients_match(model, tape, loss, golden)


def test_answerable_spans_match_the_official_program_in_prediction(shared):
    model, batch, golden = load_golden(
        shared, "span_v2", lambda config: heads.AlbertForAnswerableSpans(config, 3, 3)
    )
    outputs = model(as_tensors(batch))
    for name in ("start_top_log_probs", "end_top_log_probs", "cls_logits"):
        np.testing.assert_allclose(outputs[name], golden[f"predict_{name}"], rtol=1e-5, atol=1e-6)
    for name in ("start_top_index", "end_top_index"):
        np.testing.assert_array_equal(outputs[name], golden[f"predict_{name}"])


@pytest.fixture
def batch(tiny_batch):
    """Questions of three tokens, each followed by a text; the first token means no answer."""
    mask = tiny_batch["input_mask"]
    places = np.arange(mask.shape[1])
    is_text = (places > 4) & (places < mask.sum(1, keepdims=True) - 1)
    return {
        "input_ids": tiny_batch["input_ids"],
        "input_mask": mask,
        "segment_ids": tiny_batch["segment_ids"],
        "p_mask": (~is_text & (places > 0)).astype(np.int32),
        "start_positions": np.array([5, 0, 5, 6, 0], np.int32),
        "end_positions": np.array([7, 0, 5, 7, 0], np.int32),
        "is_impossible": np.array([0, 1, 0, 0, 1], np.int32),
    }


@pytest.fixture(scope="module")
def answerable(tiny_config):
    return heads.AlbertForAnswerableSpans(tiny_config, STARTS, ENDS, dropout_prob=0.5)


def head_weights(model):
    return {variable_name(v): tuple(v.shape) for v in model.variables if "bert/" not in v.name}


def test_the_heads_have_googles_names(tiny_config, answerable):
    assert head_weights(heads.AlbertForSpans(tiny_config)) == {
        "cls/squad/output_weights": (2, 12),
        "cls/squad/output_bias": (2,),
    }
    assert head_weights(answerable) == {
        "start_logits/dense/kernel": (12, 1),
        "start_logits/dense/bias": (1,),
        "end_logits/dense_0/kernel": (24, 12),
        "end_logits/dense_0/bias": (12,),
        "end_logits/LayerNorm/beta": (12,),
        "end_logits/LayerNorm/gamma": (12,),
        "end_logits/dense_1/kernel": (12, 1),
        "end_logits/dense_1/bias": (1,),
        "answer_class/dense_0/kernel": (24, 12),
        "answer_class/dense_0/bias": (12,),
        "answer_class/dense_1/kernel": (12, 1),
    }


def test_a_new_span_head_is_initialized_like_googles(tiny_config):
    config = dataclasses.replace(tiny_config, initializer_range=0.5)
    kernel = np.abs(heads.AlbertForSpans(config).spans.kernel)
    assert 0 < kernel.max() <= 0.04 + 1e-7  # two standard deviations of 0.02, whatever the config
    model = heads.AlbertForAnswerableSpans(config)
    assert np.abs(model.end.hidden.kernel).max() > 0.5


def test_masked_positions_are_never_predicted(answerable, batch):
    outputs = answerable(as_tensors(batch))
    forbidden = batch["p_mask"] == 1
    for name in ("start_log_probs", "end_log_probs"):
        assert np.all(outputs[name].numpy()[forbidden] < -1e29)
        allowed = np.where(forbidden, 0, np.exp(outputs[name]))
        np.testing.assert_allclose(allowed.sum(axis=1), 1, rtol=1e-5)


def test_beams_agree_with_the_ends_for_given_starts(answerable, batch):
    outputs = answerable(as_tensors(batch))
    assert outputs["start_top_index"].shape == (5, STARTS)
    assert outputs["end_top_index"].shape == (5, STARTS * ENDS)
    best = np.sort(outputs["start_log_probs"], axis=1)[:, ::-1][:, :STARTS]
    np.testing.assert_array_equal(outputs["start_top_log_probs"], best)
    for beam in range(STARTS):
        given = dict(batch, start_positions=outputs["start_top_index"][:, beam].numpy())
        ends = np.sort(answerable(as_tensors(given))["end_log_probs"], axis=1)[:, ::-1]
        found = outputs["end_top_log_probs"][:, beam * ENDS : (beam + 1) * ENDS]
        np.testing.assert_allclose(found, ends[:, :ENDS], rtol=1e-5)


def test_the_end_layer_sees_end_and_start_concatenated(answerable, batch):
    outputs = answerable(as_tensors(batch))
    x = answerable.encoder(as_tensors(batch))["sequence_output"].numpy()
    start = x[np.arange(5), batch["start_positions"]]
    pairs = np.concatenate([x, np.broadcast_to(start[:, None], x.shape)], axis=-1)
    end = answerable.end
    hidden = np.tanh(pairs @ end.hidden.kernel.numpy() + end.hidden.bias.numpy())
    hidden -= hidden.mean(axis=-1, keepdims=True)
    hidden /= np.sqrt(hidden.var(axis=-1, keepdims=True) + 1e-12)
    logits = (hidden @ end.output_layer.kernel.numpy())[..., 0]
    logits = np.where(batch["p_mask"], -np.inf, logits)
    expected = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    allowed = batch["p_mask"] == 0
    np.testing.assert_allclose(
        outputs["end_log_probs"].numpy()[allowed], expected[allowed], rtol=1e-4
    )


def test_prediction_needs_no_labels_and_training_returns_no_beams(answerable, batch):
    names = set(batch) - set(LABELS)
    outputs = answerable(as_tensors(batch, names))
    assert "end_log_probs" not in outputs
    full = answerable(as_tensors(batch))
    for name in ("cls_logits", "end_top_log_probs"):
        np.testing.assert_array_equal(outputs[name], full[name])
    assert "start_top_index" not in answerable(as_tensors(batch), training=True)


def test_padding_changes_neither_answers_nor_losses(answerable, batch):
    longer = {
        name: np.pad(value, [(0, 0), (0, 2)], constant_values=int(name == "p_mask"))
        if value.ndim == 2
        else value
        for name, value in batch.items()
    }
    results = []
    for inputs in (batch, longer):
        outputs = answerable(as_tensors(inputs))
        losses = heads.answerable_span_losses(outputs, *(inputs[name] for name in LABELS))
        results.append(outputs | {"losses": losses})
    for name in ("losses", "cls_logits", "start_top_log_probs", "end_top_log_probs"):
        np.testing.assert_allclose(results[0][name], results[1][name], rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(results[0]["end_top_index"], results[1]["end_top_index"])


def test_only_the_answerability_classifier_has_dropout(answerable, batch):
    inputs = as_tensors(batch)
    plain = answerable(inputs)
    first, again, other = (
        answerable(inputs, training=True, dropout_seed=tf.constant([3, seed])) for seed in (4, 4, 5)
    )
    np.testing.assert_array_equal(first["cls_logits"], again["cls_logits"])
    assert np.any(first["cls_logits"] != other["cls_logits"])
    assert np.any(first["cls_logits"] != plain["cls_logits"])
    for name in ("start_log_probs", "end_log_probs"):
        np.testing.assert_allclose(first[name], plain[name], rtol=1e-5)


def test_span_losses_of_uniform_logits(batch):
    logits = {"start_logits": tf.zeros((5, 11)), "end_logits": tf.zeros((5, 11))}
    losses = heads.span_losses(logits, batch["start_positions"], batch["end_positions"])
    np.testing.assert_allclose(losses, np.full(5, np.log(11)), rtol=1e-6)
    guess = tf.fill((5, 11), -np.log(11).astype(np.float32))
    outputs = {"start_log_probs": guess, "end_log_probs": guess, "cls_logits": tf.zeros(5)}
    losses = heads.answerable_span_losses(outputs, *(batch[name] for name in LABELS))
    np.testing.assert_allclose(losses, np.full(5, np.log(11) + np.log(2) / 2), rtol=1e-6)


@pytest.mark.parametrize(
    "settings", [{"start_n_top": 0}, {"end_n_top": 0}, {"dropout_prob": 1.0}], ids=str
)
def test_invalid_arguments_of_heads_are_rejected(tiny_config, settings):
    name, value = next(iter(settings.items()))
    with pytest.raises(ValueError, match=f"{name}={value}"):
        heads.AlbertForAnswerableSpans(tiny_config, **settings)

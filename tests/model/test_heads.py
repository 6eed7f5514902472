"""The heads of fine-tuning tasks compute what Google's programs do."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints.loading import load_checkpoint
from albert_tf.checkpoints.weight_names import variable_name
from albert_tf.model import heads
from albert_tf.model.config import AlbertConfig
from albert_tf.model.losses import (
    answerable_span_losses,
    classification_losses,
    multi_label_losses,
    regression_losses,
    span_losses,
)

INPUTS = ("input_ids", "input_mask", "segment_ids")


def load_golden(shared, name, make_model):
    """Returns a model with a golden's weights, its inputs, and the official program's outputs."""
    folder = shared / "golden" / "heads" / name
    model = make_model(AlbertConfig.from_json_file(str(folder / "albert_config.json")))
    report = load_checkpoint(model, str(folder))
    assert not [*report.missing, *report.misshapen, *report.unused], str(report)
    inputs = dict(np.load(folder / "inputs.npz"))
    return model, inputs, dict(np.load(folder / "outputs.npz"))


def assert_gradients_match(model, tape, loss, golden):
    gradients = tape.gradient(loss, model.trainable_variables)
    for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
        name = variable_name(variable)
        if "pooler" in name and not model.uses_pooler:
            assert gradient is None  # so training leaves it alone
            continue
        np.testing.assert_allclose(
            tf.convert_to_tensor(gradient),
            golden[f"gradient/{name}"],
            rtol=1e-4,
            atol=1e-6,
            err_msg=name,
        )


@pytest.mark.parametrize(
    ("name", "make", "losses_of"),
    [
        (
            "classification",
            lambda config: heads.AlbertForClassification(config, 3),
            classification_losses,
        ),
        (
            "regression",
            lambda config: heads.AlbertForClassification(config, 1, is_regression=True),
            lambda logits, labels: regression_losses(logits[:, 0], labels),
        ),
        ("multiple_choice", heads.AlbertForMultipleChoice, classification_losses),
    ],
)
def test_classifiers_match_the_official_program(shared, name, make, losses_of):
    model, inputs, golden = load_golden(shared, name, make)
    labels = inputs.pop("label_ids")
    if name == "multiple_choice":
        inputs = {key: value.reshape(len(labels), 4, -1) for key, value in inputs.items()}
    with tf.GradientTape() as tape:
        logits = model({key: tf.constant(value) for key, value in inputs.items()})
        losses = losses_of(logits, labels)
        loss = tf.reduce_mean(losses)
    expected = golden["logits"].reshape(logits.shape)  # those of regression have the shape [B]
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(losses, golden["per_example_loss"], rtol=1e-5)
    np.testing.assert_allclose(loss, golden["loss"], rtol=1e-5)
    assert_gradients_match(model, tape, loss, golden)


def shallow(config):
    return dataclasses.replace(config, num_hidden_layers=1, num_hidden_groups=1)


@pytest.fixture
def inputs(tiny_batch):
    return {name: tf.constant(tiny_batch[name]) for name in INPUTS}


@pytest.fixture
def choices(inputs):
    """Four options for each of five questions: the rows of the batch, shifted by 0 to 3."""
    return {
        name: tf.stack([tf.roll(value, shift, axis=0) for shift in range(4)], axis=1)
        for name, value in inputs.items()
    }


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda config: heads.AlbertForClassification(config, 3), (3, 12)),
        (heads.AlbertForMultipleChoice, (1, 12)),
    ],
)
def test_a_new_head_has_googles_names_and_initializers(tiny_config, make, shape):
    model = make(dataclasses.replace(shallow(tiny_config), initializer_range=0.5))
    weights = {variable_name(v): v for v in model.variables if "bert/" not in v.name}
    assert {name: tuple(v.shape) for name, v in weights.items()} == {
        "output_weights": shape,
        "output_bias": shape[:1],
    }
    assert not np.any(weights["output_bias"])
    kernel = np.abs(weights["output_weights"])
    assert 0 < kernel.max() <= 0.04 + 1e-7  # truncated at two standard deviations of 0.02


def test_the_head_applies_dropout_only_in_training(tiny_config, inputs):
    model = heads.AlbertForClassification(shallow(tiny_config), 3)
    assert tiny_config.hidden_dropout_prob == tiny_config.attention_probs_dropout_prob == 0

    def logits(**kwargs):
        return model(inputs, **kwargs).numpy()

    plain = logits()
    np.testing.assert_array_equal(plain, logits())
    first = logits(training=True, dropout_seed=tf.constant([3, 4]))
    np.testing.assert_array_equal(first, logits(training=True, dropout_seed=tf.constant([3, 4])))
    assert np.any(first != plain)
    assert np.any(first != logits(training=True, dropout_seed=tf.constant([3, 5])))
    assert np.any(logits(training=True) != logits(training=True))
    # With pooled outputs and kernel of 1, the logits count the features that are kept.
    model.encoder.pooler.kernel.assign(tf.zeros((12, 12)))
    model.encoder.pooler.bias.assign(tf.fill((12,), 20.0))
    model.classifier.kernel.assign(tf.ones((3, 12)))
    kept = [logits(training=True, dropout_seed=tf.constant([0, seed])) * 0.9 for seed in range(8)]
    np.testing.assert_allclose(np.array(kept), np.round(kept), atol=1e-4)
    assert np.mean(kept) == pytest.approx(12 * 0.9, abs=0.5)


def test_padding_changes_nothing_except_with_mean_pooling(tiny_config, inputs):
    longer = {name: tf.pad(value, [[0, 0], [0, 2]]) for name, value in inputs.items()}
    pooled = heads.AlbertForClassification(shallow(tiny_config), 3)
    np.testing.assert_allclose(pooled(inputs), pooled(longer), rtol=1e-5, atol=1e-6)
    mean = heads.AlbertForClassification(shallow(tiny_config), 3, use_pooled_output=False)
    logits = mean(inputs)
    x = mean.encoder(inputs)["sequence_output"].numpy().mean(axis=1)  # padding too
    expected = x @ mean.classifier.kernel.numpy().T + mean.classifier.bias.numpy()
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-6)
    assert np.any(np.abs(mean(longer) - logits) > 1e-5)


def test_pre_ln_models_normalize_the_input_of_the_head(tiny_config, inputs):
    config = dataclasses.replace(shallow(tiny_config), layout="albert_zh", ln_type="preln")
    model = heads.AlbertForClassification(config, 3)
    names = [variable_name(variable) for variable in model.variables]
    assert {"loss/LayerNorm/beta", "loss/LayerNorm/gamma"} <= set(names)
    x = model.encoder(inputs)["pooled_output"].numpy()
    x = (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True)
    expected = x @ model.classifier.kernel.numpy().T
    np.testing.assert_allclose(model(inputs), expected, rtol=1e-3, atol=1e-6)


def test_regression_returns_the_unbounded_score(tiny_config, inputs):
    model = heads.AlbertForClassification(shallow(tiny_config), 1, is_regression=True)
    model.classifier.bias.assign([7.0])
    scores = model(inputs)
    assert scores.shape == (5, 1)
    assert np.all(scores > 5)  # not clipped to the range of STS-B, 0 to 5
    losses = regression_losses(tf.constant([1.0, 3.0]), tf.constant([1.5, 0.0]))
    np.testing.assert_allclose(losses, [0.25, 9.0])
    with pytest.raises(ValueError, match="num_labels=3: expected 1 for"):
        heads.AlbertForClassification(tiny_config, 3, is_regression=True)


def test_multi_label_losses_are_those_of_pytorch(tiny_config):
    # Computed with torch.nn.BCEWithLogitsLoss(reduction="none") of PyTorch 2.13, mean over labels.
    logits = tf.constant([[1.5, -0.25, 3.0], [-2.0, 0.0, 40.0]])
    labels = tf.constant([[1, 0, 0], [0, 1, 0]])
    losses = multi_label_losses(logits, labels)
    np.testing.assert_allclose(losses, [1.275313377380371, 13.60669231414795], rtol=1e-6)
    with pytest.raises(ValueError, match="is_regression or is_multi_label"):
        heads.AlbertForClassification(tiny_config, 1, is_regression=True, is_multi_label=True)


def test_missing_options_get_no_probability_and_no_gradient(tiny_config, choices):
    model = heads.AlbertForMultipleChoice(shallow(tiny_config))
    three = {name: value[:, :3] for name, value in choices.items()}
    lacking = {name: tf.pad(value, [[0, 0], [0, 1], [0, 0]]) for name, value in three.items()}
    labels = tf.constant([2, 0, 1, 1, 0])
    results = []
    for batch in (three, lacking):
        with tf.GradientTape() as tape:
            logits = model(batch)
            loss = tf.reduce_mean(classification_losses(logits, labels))
        gradients = tape.gradient(loss, model.trainable_variables)
        probabilities = tf.nn.softmax(logits)
        results.append((probabilities[:, :3], *map(tf.convert_to_tensor, gradients)))
    assert np.all(probabilities[:, 3] == 0)
    for plain, padded in zip(*results, strict=True):
        np.testing.assert_allclose(plain, padded, rtol=1e-4, atol=1e-6)


# Spans

LABELS = ("start_positions", "end_positions", "is_impossible")
STARTS, ENDS = 3, 2


def as_tensors(batch, names=None):
    return {name: tf.constant(value) for name, value in batch.items() if not names or name in names}


def test_spans_match_the_official_program(shared):
    model, batch, golden = load_golden(shared, "span_v1", heads.AlbertForSpans)
    with tf.GradientTape() as tape:
        outputs = model(as_tensors(batch))
        losses = span_losses(outputs, batch["start_positions"], batch["end_positions"])
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
        losses = answerable_span_losses(outputs, *(batch[name] for name in LABELS))
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
def questions(tiny_batch):
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
    return heads.AlbertForAnswerableSpans(shallow(tiny_config), STARTS, ENDS, dropout_prob=0.5)


def test_a_new_span_head_is_initialized_like_googles(tiny_config):
    config = dataclasses.replace(shallow(tiny_config), initializer_range=0.5)
    kernel = np.abs(heads.AlbertForSpans(config).spans.kernel)
    assert 0 < kernel.max() <= 0.04 + 1e-7  # two standard deviations of 0.02, whatever the config
    model = heads.AlbertForAnswerableSpans(config)
    assert np.abs(model.end.hidden.kernel).max() > 0.5


def test_masked_positions_are_never_predicted(answerable, questions):
    outputs = answerable(as_tensors(questions))
    forbidden = questions["p_mask"] == 1
    for name in ("start_log_probs", "end_log_probs"):
        assert np.all(outputs[name].numpy()[forbidden] < -1e29)
        allowed = np.where(forbidden, 0, np.exp(outputs[name]))
        np.testing.assert_allclose(allowed.sum(axis=1), 1, rtol=1e-5)


def test_beams_agree_with_the_ends_for_given_starts(answerable, questions):
    outputs = answerable(as_tensors(questions))
    assert outputs["start_top_index"].shape == (5, STARTS)
    assert outputs["end_top_index"].shape == (5, STARTS * ENDS)
    best = np.sort(outputs["start_log_probs"], axis=1)[:, ::-1][:, :STARTS]
    np.testing.assert_array_equal(outputs["start_top_log_probs"], best)
    for beam in range(STARTS):
        given = dict(questions, start_positions=outputs["start_top_index"][:, beam].numpy())
        ends = np.sort(answerable(as_tensors(given))["end_log_probs"], axis=1)[:, ::-1]
        found = outputs["end_top_log_probs"][:, beam * ENDS : (beam + 1) * ENDS]
        np.testing.assert_allclose(found, ends[:, :ENDS], rtol=1e-5)


def test_prediction_needs_no_labels_and_training_returns_no_beams(answerable, questions):
    names = set(questions) - set(LABELS)
    outputs = answerable(as_tensors(questions, names))
    assert "end_log_probs" not in outputs
    full = answerable(as_tensors(questions))
    for name in ("cls_logits", "end_top_log_probs"):
        np.testing.assert_array_equal(outputs[name], full[name])
    assert "start_top_index" not in answerable(as_tensors(questions), training=True)


def test_only_the_answerability_classifier_has_dropout(answerable, questions):
    inputs = as_tensors(questions)
    plain = answerable(inputs)
    first, again, other = (
        answerable(inputs, training=True, dropout_seed=tf.constant([3, seed])) for seed in (4, 4, 5)
    )
    np.testing.assert_array_equal(first["cls_logits"], again["cls_logits"])
    assert np.any(first["cls_logits"] != other["cls_logits"])
    assert np.any(first["cls_logits"] != plain["cls_logits"])
    for name in ("start_log_probs", "end_log_probs"):
        np.testing.assert_allclose(first[name], plain[name], rtol=1e-5)

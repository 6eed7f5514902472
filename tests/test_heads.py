import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import heads
from albert_tf.checkpoints.loading import load_checkpoint
from albert_tf.checkpoints.names import variable_name
from albert_tf.config import AlbertConfig

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
        np.testing.assert_allclose(
            tf.convert_to_tensor(gradient),
            golden[f"gradient/{name}"],
            rtol=1e-4,
            atol=1e-6,
            err_msg=name,
        )


def check_head(model, inputs, labels, losses_of, golden):
    with tf.GradientTape() as tape:
        logits = model({name: tf.constant(value) for name, value in inputs.items()})
        losses = losses_of(logits, labels)
        loss = tf.reduce_mean(losses)
    expected = golden["logits"].reshape(logits.shape)  # those of regression have the shape [B]
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(losses, golden["per_example_loss"], rtol=1e-5)
    np.testing.assert_allclose(loss, golden["loss"], rtol=1e-5)
    assert_gradients_match(model, tape, loss, golden)


def test_classification_matches_the_official_program(shared):
    model, inputs, golden = load_golden(
        shared, "classification", lambda config: heads.AlbertForClassification(config, 3)
    )
    labels = inputs.pop("label_ids")
    check_head(model, inputs, labels, heads.classification_losses, golden)


def test_regression_matches_the_official_program(shared):
    model, inputs, golden = load_golden(
        shared,
        "regression",
        lambda config: heads.AlbertForClassification(config, 1, is_regression=True),
    )
    labels = inputs.pop("label_ids")
    check_head(
        model,
        inputs,
        labels,
        lambda logits, labels: heads.regression_losses(logits[:, 0], labels),
        golden,
    )


def test_multiple_choice_matches_the_official_program(shared):
    model, inputs, golden = load_golden(shared, "multiple_choice", heads.AlbertForMultipleChoice)
    labels = inputs.pop("label_ids")
    choices = {name: value.reshape(len(labels), 4, -1) for name, value in inputs.items()}
    check_head(model, choices, labels, heads.classification_losses, golden)


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
    model = make(dataclasses.replace(tiny_config, initializer_range=0.5, hidden_size=12))
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
    kept = [logits(training=True, dropout_seed=tf.constant([0, seed])) * 0.9 for seed in range(20)]
    np.testing.assert_allclose(np.array(kept), np.round(kept), atol=1e-4)
    assert np.mean(kept) == pytest.approx(12 * 0.9, abs=0.5)


def test_multiple_choice_dropout_follows_its_rate(tiny_config, choices):
    never = heads.AlbertForMultipleChoice(tiny_config, dropout_prob=0.0)
    plain = never(choices)
    np.testing.assert_array_equal(plain, never(choices, training=True))
    often = heads.AlbertForMultipleChoice(tiny_config, dropout_prob=0.5)
    assert np.any(often(choices, training=True) != often(choices))
    with pytest.raises(ValueError, match=r"dropout_prob=1.0 is not in \[0, 1\)"):
        heads.AlbertForMultipleChoice(tiny_config, dropout_prob=1.0)


def test_padding_changes_nothing_except_with_mean_pooling(tiny_config, inputs):
    longer = {name: tf.pad(value, [[0, 0], [0, 2]]) for name, value in inputs.items()}
    pooled = heads.AlbertForClassification(tiny_config, 3)
    np.testing.assert_allclose(pooled(inputs), pooled(longer), rtol=1e-5, atol=1e-6)
    mean = heads.AlbertForClassification(tiny_config, 3, use_pooled_output=False)
    logits = mean(inputs)
    x = mean.encoder(inputs)["sequence_output"].numpy().mean(axis=1)  # padding too
    expected = x @ mean.classifier.kernel.numpy().T + mean.classifier.bias.numpy()
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-6)
    assert np.any(np.abs(mean(longer) - logits) > 1e-5)


def test_pre_ln_models_normalize_the_input_of_the_head(tiny_config, inputs):
    config = dataclasses.replace(
        tiny_config, layout="albert_zh", ln_type="preln", num_hidden_groups=1
    )
    model = heads.AlbertForClassification(config, 3)
    names = [variable_name(variable) for variable in model.variables]
    assert {"loss/LayerNorm/beta", "loss/LayerNorm/gamma"} <= set(names)
    x = model.encoder(inputs)["pooled_output"].numpy()
    x = (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True)
    expected = x @ model.classifier.kernel.numpy().T
    np.testing.assert_allclose(model(inputs), expected, rtol=1e-3, atol=1e-6)


def test_regression_returns_the_unbounded_score(tiny_config, inputs):
    model = heads.AlbertForClassification(tiny_config, 1, is_regression=True)
    model.classifier.bias.assign([7.0])
    scores = model(inputs)
    assert scores.shape == (5, 1)
    assert np.all(scores > 5)  # not clipped to the range of STS-B, 0 to 5
    losses = heads.regression_losses(tf.constant([1.0, 3.0]), tf.constant([1.5, 0.0]))
    np.testing.assert_allclose(losses, [0.25, 9.0])
    with pytest.raises(ValueError, match="num_labels=3: expected 1 for"):
        heads.AlbertForClassification(tiny_config, 3, is_regression=True)


def test_multi_label_losses_are_those_of_pytorch(tiny_config):
    # Computed with torch.nn.BCEWithLogitsLoss(reduction="none") of PyTorch 2.13, mean over labels.
    logits = tf.constant([[1.5, -0.25, 3.0], [-2.0, 0.0, 40.0]])
    labels = tf.constant([[1, 0, 0], [0, 1, 0]])
    losses = heads.multi_label_losses(logits, labels)
    np.testing.assert_allclose(losses, [1.275313377380371, 13.60669231414795], rtol=1e-6)
    with pytest.raises(ValueError, match="is_regression or is_multi_label"):
        heads.AlbertForClassification(tiny_config, 1, is_regression=True, is_multi_label=True)


def test_reordered_options_get_the_same_probabilities(tiny_config, choices):
    model = heads.AlbertForMultipleChoice(tiny_config)
    order = [2, 0, 3, 1]
    moved = {name: tf.gather(value, order, axis=1) for name, value in choices.items()}
    np.testing.assert_allclose(
        tf.nn.softmax(model(moved)),
        tf.gather(tf.nn.softmax(model(choices)), order, axis=1),
        rtol=1e-4,
    )


def test_missing_options_get_no_probability_and_no_gradient(tiny_config, choices):
    model = heads.AlbertForMultipleChoice(tiny_config)
    three = {name: value[:, :3] for name, value in choices.items()}
    lacking = {name: tf.pad(value, [[0, 0], [0, 1], [0, 0]]) for name, value in three.items()}
    labels = tf.constant([2, 0, 1, 1, 0])
    results = []
    for batch in (three, lacking):
        with tf.GradientTape() as tape:
            logits = model(batch)
            loss = tf.reduce_mean(heads.classification_losses(logits, labels))
        gradients = tape.gradient(loss, model.trainable_variables)
        probabilities = tf.nn.softmax(logits)
        results.append((probabilities[:, :3], *map(tf.convert_to_tensor, gradients)))
    assert np.all(probabilities[:, 3] == 0)
    for plain, padded in zip(*results, strict=True):
        np.testing.assert_allclose(plain, padded, rtol=1e-4, atol=1e-6)


def test_heads_run_in_a_graph_with_dynamic_shapes(tiny_config, choices):
    model = heads.AlbertForMultipleChoice(shallow(tiny_config))
    signature = {name: tf.TensorSpec((None, None, None), tf.int32) for name in INPUTS}
    graph = tf.function(model, input_signature=[signature])
    np.testing.assert_allclose(graph(choices), model(choices), rtol=1e-4, atol=1e-6)

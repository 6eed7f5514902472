"""What `compile`, `fit`, `evaluate` and `predict` refuse, and what `compile` chooses by itself."""

from __future__ import annotations

import functools
import inspect
import logging

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from albert_tf.model import expects_probabilities, heads, modeling, tokenizer_layer
from albert_tf.model.config import AlbertConfig
from albert_tf.model.optimization import Lamb, fine_tuning_optimizer
from tests.conftest import TINY_SHAPE

losses, metrics = tf_keras.losses, tf_keras.metrics
SHALLOW = AlbertConfig(**TINY_SHAPE | {"num_hidden_layers": 1, "num_hidden_groups": 1})
IDS, TEXTS = {"input_ids": np.ones((2, 5), np.int32)}, ["a red boat", "two blue ships"]
LABELS = np.array([0, 1])
NO_SCORES = {"Metric", "Reduction", "deserialize", "experimental", "get", "serialize"}
# What the constructors of metrics require.
REQUIRED = {
    "IoU": {"num_classes": 2, "target_class_ids": [0]},
    "MeanIoU": {"num_classes": 2},
    "MeanMetricWrapper": {"fn": losses.mean_squared_error},
    "MeanRelativeError": {"normalizer": 1.0},
    "OneHotIoU": {"num_classes": 2, "target_class_ids": [0]},
    "OneHotMeanIoU": {"num_classes": 2},
    "PrecisionAtRecall": {"recall": 0.5},
    "RecallAtPrecision": {"precision": 0.5},
    "SensitivityAtSpecificity": {"specificity": 0.5},
    "SpecificityAtSensitivity": {"sensitivity": 0.5},
}
# Everything of Keras 2 that is made for probabilities, or for labels.
REFUSED = {
    losses: {
        *("BinaryCrossentropy", "BinaryFocalCrossentropy", "CategoricalCrossentropy"),
        *("CategoricalFocalCrossentropy", "SparseCategoricalCrossentropy", "KLDivergence", "KLD"),
        *("binary_crossentropy", "binary_focal_crossentropy", "categorical_crossentropy"),
        *("categorical_focal_crossentropy", "sparse_categorical_crossentropy"),
        *("kl_divergence", "kld", "kullback_leibler_divergence"),
    },
    metrics: {
        *("AUC", "Accuracy", "BinaryAccuracy", "BinaryCrossentropy", "BinaryIoU"),
        *("CategoricalCrossentropy", "SparseCategoricalCrossentropy", "KLDivergence", "KLD"),
        *("FalseNegatives", "FalsePositives", "TrueNegatives", "TruePositives", "IoU", "MeanIoU"),
        *("Precision", "PrecisionAtRecall", "Recall", "RecallAtPrecision"),
        *("SensitivityAtSpecificity", "SpecificityAtSensitivity"),
        *("binary_accuracy", "binary_crossentropy", "binary_focal_crossentropy"),
        *("categorical_crossentropy", "categorical_focal_crossentropy"),
        *("sparse_categorical_crossentropy", "kl_divergence", "kld"),
        *("kullback_leibler_divergence",),
    },
}


def model_of(num_labels=2, **options):
    return heads.AlbertForClassification(SHALLOW, num_labels, **options)


def problems(place, value):
    given = (value, None) if place is losses else (None, value)
    return expects_probabilities.problems(*given)


@pytest.mark.parametrize("place", [losses, metrics], ids=["losses", "metrics"])
def test_all_of_keras_that_expects_probabilities_is_found_as_object_function_and_name(place):
    """Everything else passes: the accuracies, hinge losses, the top k, losses of numbers."""
    found, by_name = set(), set()
    for name, kind in inspect.getmembers(place):
        if name.startswith("_") or name in NO_SCORES:
            continue
        value = kind(**REQUIRED.get(name, {})) if inspect.isclass(kind) else kind
        if problems(place, value):
            found.add(name)
        if name not in REQUIRED and problems(place, name):
            by_name.add(name)
    assert found == REFUSED[place]
    # In metrics, Keras has no names of some functions, and "Accuracy" is that of the output.
    assert by_name == found - REQUIRED.keys() - ({"Accuracy"} if place is metrics else set())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"loss": "sparse_categorical_crossentropy"},
            r"^loss: 'sparse_categorical_crossentropy' does not expect logits, .*; "
            r"pass tf_keras\.losses\.SparseCategoricalCrossentropy\(from_logits=True\)$",
        ),
        (
            {"loss": functools.partial(losses.binary_crossentropy, label_smoothing=0.1)},
            r"losses\.BinaryCrossentropy\(from_logits=True\)",
        ),
        (
            {"loss": [losses.CategoricalCrossentropy()]},
            r"CategoricalCrossentropy\(from_logits=True\)",
        ),
        (
            {"loss": "mse", "metrics": [[metrics.AUC()]]},
            r"metrics\.AUC\(from_logits=True\)",
        ),
        (
            {"loss": "mse", "metrics": ["binary_accuracy"]},
            r"'binary_accuracy' .* pass tf_keras\.metrics\.BinaryAccuracy\(threshold=0\.0\)",
        ),
        (
            {"loss": "mse", "metrics": {"logits": metrics.BinaryAccuracy(threshold=0.7)}},
            r"BinaryAccuracy\(threshold=0\.0\)",
        ),
        ({"loss": "mse", "weighted_metrics": [metrics.Precision()]}, r"tf\.sigmoid\(logits\)"),
        ({"loss": "mse", "metrics": [metrics.F1Score(threshold=0.5)]}, "leave out threshold"),
        ({"loss": "mse", "metrics": [metrics.Accuracy()]}, 'pass "accuracy"'),
        ({"loss": "mse", "metrics": ["ce"]}, r"'ce' .*Crossentropy\(from_logits=True\)"),
        (
            {
                "loss": "mse",
                "metrics": [metrics.MeanMetricWrapper(losses.binary_crossentropy)],
            },
            r"metrics\.BinaryCrossentropy\(from_logits=True\)",
        ),
    ],
)
def test_what_expects_probabilities_is_refused_with_what_to_pass(given, said):
    with pytest.raises(ValueError, match=said):
        model_of().compile("sgd", **given)


def test_a_loss_of_keras_3_is_held_to_the_same():
    keras = pytest.importorskip("keras", minversion="3.0")
    with pytest.raises(ValueError, match=r"CategoricalCrossentropy\(from_logits=True\)"):
        model_of().compile("sgd", keras.losses.SparseCategoricalCrossentropy())
    with pytest.raises(ValueError, match="Dice does not expect logits"):
        model_of().compile("sgd", keras.losses.Dice())
    model_of().compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))


class SigmoidPrecision(metrics.Precision):
    """The subclass that the message describes."""

    def update_state(self, labels, logits, sample_weight=None):
        return super().update_state(labels, tf.sigmoid(logits), sample_weight)


@pytest.mark.ci
@pytest.mark.parametrize(
    "given",
    [
        {"loss": losses.BinaryCrossentropy(from_logits=True), "metrics": [SigmoidPrecision()]},
        {
            "loss": "categorical_hinge",
            "metrics": ["accuracy", "hinge", "top_k_categorical_accuracy"],
        },
        {"loss": "mse", "metrics": [metrics.F1Score(), metrics.OneHotMeanIoU(2)]},
        {"loss": "mse", "metrics": [metrics.AUC(from_logits=True, multi_label=True)]},
        {"loss": "mse", "metrics": [metrics.BinaryAccuracy(threshold=0.0)]},
        {"loss": functools.partial(losses.binary_crossentropy, from_logits=True)},
        {"loss": lambda labels, logits: tf.nn.softmax_cross_entropy_with_logits(labels, logits)},
    ],
)
def test_what_takes_logits_trains(given):
    model = model_of()
    model.compile("sgd", **given, run_eagerly=True)
    model.fit(IDS, np.eye(2, dtype=np.float32), verbose=0)


def test_the_accuracy_of_a_single_output_would_be_a_threshold_of_a_half():
    with pytest.raises(ValueError, match=r"'accuracy' .*BinaryAccuracy\(threshold=0\.0\)"):
        model_of(1).compile("sgd", "hinge", metrics=["accuracy"])


def test_a_subclass_that_returns_probabilities_may_say_so():
    class Softmax(heads.AlbertForClassification):
        returns_logits = False

        def answer(self, encoded, inputs, seeds):
            return tf.nn.softmax(super().answer(encoded, inputs, seeds))

    model = Softmax(SHALLOW, 2)
    model.compile("sgd", "sparse_categorical_crossentropy", run_eagerly=True)
    model.fit(IDS, LABELS, verbose=0)


@pytest.mark.ci
def test_a_saved_model_that_would_be_refused_is_opened_with_a_warning(tmp_path, caplog):
    model = model_of()
    model.returns_logits = False  # as before they were refused
    model.compile("sgd", losses.SparseCategoricalCrossentropy())
    model.fit(IDS, LABELS, verbose=0)
    model.save(tmp_path / "model.keras")
    caplog.set_level(logging.WARNING)
    found = tf_keras.models.load_model(tmp_path / "model.keras")
    assert "compiled with a loss: SparseCategoricalCrossentropy does not expect" in caplog.text
    np.testing.assert_array_equal(found.predict(IDS, verbose=0), model.predict(IDS, verbose=0))


# Without a loss.

TARGETS = {name: np.array([1, 3]) for name in ("start_logits", "end_logits")}
HALF = tf.nn.sparse_softmax_cross_entropy_with_logits


def cross_entropy(labels, logits):
    return float(tf.reduce_mean(HALF(labels=labels, logits=logits)))


DEFAULTS = {
    "classification": (
        model_of,
        LABELS,
        lambda y: {
            "loss": cross_entropy(LABELS, y),
            "accuracy": np.mean(np.argmax(y, -1) == LABELS),
        },
    ),
    "several labels": (
        lambda: model_of(3, is_multi_label=True),
        np.array([[0, 1, 1], [1, 0, 1]]),
        lambda y: {
            "loss": np.mean(np.log1p(np.exp(y)) - y * np.array([[0, 1, 1], [1, 0, 1]])),
            "accuracy": np.mean((y > 0) == np.array([[0, 1, 1], [1, 0, 1]])),
        },
    ),
    "regression": (
        lambda: model_of(1, is_regression=True),
        np.array([[0.5], [2.0]]),
        lambda y: {"loss": np.mean((y - np.array([[0.5], [2.0]])) ** 2)},
    ),
    "tokens": (
        lambda: heads.AlbertForTokenClassification(SHALLOW, 3),
        np.array([[0, 1, 2, 0, 1], [2, 2, 1, 0, 0]]),
        lambda y: {
            "loss": cross_entropy([[0, 1, 2, 0, 1], [2, 2, 1, 0, 0]], y),
            "accuracy": np.mean(np.argmax(y, -1) == [[0, 1, 2, 0, 1], [2, 2, 1, 0, 0]]),
        },
    ),
    "spans": (
        lambda: heads.AlbertForSpans(SHALLOW),
        TARGETS,
        lambda y: {
            "loss": sum(cross_entropy(TARGETS[name], y[name]) / 2 for name in TARGETS),
            "start_logits_loss": cross_entropy(TARGETS["start_logits"], y["start_logits"]),
            "end_logits_loss": cross_entropy(TARGETS["end_logits"], y["end_logits"]),
            "start_logits_accuracy": np.mean(np.argmax(y["start_logits"], -1) == [1, 3]),
            "end_logits_accuracy": np.mean(np.argmax(y["end_logits"], -1) == [1, 3]),
        },
    ),
}


@pytest.mark.ci
@pytest.mark.parametrize("name", DEFAULTS)
def test_without_a_loss_a_head_has_its_own_and_its_accuracy(name):
    make, labels, expected = DEFAULTS[name]
    tf_keras.utils.set_random_seed(7)
    model = make()
    model.compile("sgd", run_eagerly=True)
    found = model.evaluate(IDS, labels, verbose=0, return_dict=True)
    assert found == pytest.approx(expected(model.predict(IDS, verbose=0)), rel=1e-4)
    model.fit(IDS, labels, verbose=0)


@pytest.mark.ci
def test_the_default_of_multiple_choice_and_of_answerable_questions_trains():
    ids = np.ones((2, 3, 5), np.int32)
    choice = heads.AlbertForMultipleChoice(SHALLOW)
    choice.compile("sgd", run_eagerly=True)
    assert {"loss", "accuracy"} == choice.fit({"input_ids": ids}, LABELS, verbose=0).history.keys()
    model = heads.AlbertForAnswerableSpans(SHALLOW, 2, 2)
    model.compile("sgd", run_eagerly=True)
    starts = np.array([1, 0])
    labels = {"start_log_probs": starts, "end_log_probs": starts, "cls_logits": np.array([0, 1])}
    history = model.fit(IDS | {"start_positions": starts}, labels, verbose=0).history
    parts = [history[f"{name}_loss"][0] for name in labels]
    assert history["loss"][0] == pytest.approx(sum(parts) / 2)


@pytest.mark.ci
@pytest.mark.parametrize("objective", ["sop", "none"])
def test_the_default_of_pretraining_is_the_mean_over_the_masked_positions(objective):
    model = modeling.AlbertForPretraining(SHALLOW, objective)
    model.compile("sgd", run_eagerly=True)
    masked = np.array([[-1, 7, -1, -1, 9], [-1, -1, 3, -1, -1]])
    labels = {"masked_lm_logits": masked} | (
        {"sentence_order_logits": LABELS} if objective == "sop" else {}
    )
    found = model.evaluate(IDS, labels, verbose=0, return_dict=True)
    outputs = model.predict(IDS, verbose=0)
    parts = [cross_entropy(masked[masked >= 0], outputs["masked_lm_logits"][masked >= 0])]
    if objective == "sop":
        parts.append(cross_entropy(LABELS, outputs["sentence_order_logits"]))
        hits = np.argmax(outputs["sentence_order_logits"], -1) == LABELS
        assert found["sentence_order_logits_accuracy"] == pytest.approx(np.mean(hits))
    assert found["loss"] == pytest.approx(sum(parts), rel=1e-4)
    model.fit(IDS, labels, verbose=0)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"metrics": ["mse"]}, {"loss", "mse"}),
        ({"metrics": None}, {"loss"}),
        ({"loss": "mse"}, {"loss"}),
    ],
)
def test_what_is_given_takes_the_place_of_the_default(given, names):
    model = model_of()
    model.compile("sgd", **given, run_eagerly=True)
    assert set(model.evaluate(IDS, LABELS, verbose=0, return_dict=True)) == names


def test_no_default_is_made_where_there_is_none():
    model = model_of()
    model.compile("sgd", loss=None)
    assert model.compiled_loss._user_losses is None
    with pytest.raises(ValueError, match="num_labels=1: the cross-entropy of one label is 0"):
        model_of(1).compile("sgd")


# Texts.


@pytest.mark.parametrize(
    "texts",
    [
        TEXTS,
        tuple(TEXTS),
        list(zip(TEXTS, TEXTS, strict=True)),
        np.array(TEXTS),
        np.array(TEXTS, object),
        np.array([text.encode() for text in TEXTS]),
        tf.constant(TEXTS),
        {"text": np.array(TEXTS)},
        tf.data.Dataset.from_tensor_slices((TEXTS, LABELS)).batch(2),
        tf.data.Dataset.from_tensor_slices({"text": TEXTS}).batch(2),
    ],
    ids=lambda value: type(value).__name__,
)
def test_texts_are_refused_in_one_line(texts):
    model = model_of()
    model.compile("sgd")
    labels = None if isinstance(texts, tf.data.Dataset) else LABELS
    for method, given in (("fit", [labels]), ("evaluate", [labels]), ("predict", [])):
        with pytest.raises(ValueError, match=rf"^these are texts: model\.{method}\(tokenizer\("):
            getattr(model, method)(texts, *given, verbose=0)


@pytest.mark.parametrize("texts", [TEXTS, np.array(TEXTS), tf.constant(TEXTS), {"text": TEXTS}])
def test_texts_for_one_batch_are_refused_in_one_line(texts):
    model = model_of()
    model.compile("sgd", run_eagerly=True)
    calls = {"train_on_batch": [LABELS], "test_on_batch": [LABELS], "predict_on_batch": []}
    for method, given in calls.items():
        with pytest.raises(ValueError, match=rf"^these are texts: model\.{method}\(tokenizer\("):
            getattr(model, method)(texts, *given)
        getattr(model, method)(IDS, *(value.tolist() for value in given))  # a list of labels


@pytest.mark.parametrize("texts", [TEXTS, TEXTS[0], np.array(TEXTS), {"input_ids": TEXTS}])
def test_a_model_that_is_called_with_texts_says_so_in_one_line(texts):
    for call in (model_of(), model_of().encoder):
        with pytest.raises(ValueError, match=r"^these are texts: model\(tokenizer\(texts\)\)$"):
            call(texts)


TOO_LONG = np.ones((2, SHALLOW.max_position_embeddings + 1), int)
ROW, MASK = np.ones((2, 5), int), np.ones((2, 4), int)
# What a model is given → the beginning of the only line, which ends without Keras' arguments.
WRONG_INPUTS = {
    "too long": (TOO_LONG, r"the sequence length \d+ exceeds max_position_embeddings=\d+\. Trunc"),
    "one row": (ROW[0], r"the input has the shape \(5,\): expected \[B, S\], a row for each text"),
    "float": (ROW / 2, "input_ids have the dtype float64, expected int32 or int64"),
    "unknown id": (ROW * 1000, r"input_ids contain 1000: expected 0 to \d+ \(vocab_size=\d+\)"),
    "negative id": (tf.constant(-ROW), "input_ids contain -1: expected 0 to"),
    "name": ({"input_id": ROW}, "unknown input 'input_id': is it input_ids"),
    "mask": ({"input_ids": ROW, "input_mask": MASK}, r"input_mask has the shape \(\w+, 4\), the"),
    "segments": ({"input_ids": ROW, "segment_ids": ROW * 7}, "segment_ids contain 7: expected 0"),
}


@pytest.mark.parametrize("name", WRONG_INPUTS)
def test_inputs_that_do_not_fit_are_refused_in_one_line(name):
    """Keras would add ten lines to that of a call, and sixty to that of `fit`."""
    inputs, said = WRONG_INPUTS[name]
    model = model_of()
    model.compile("sgd")
    calls = [
        lambda: model(inputs),
        lambda: model.fit(inputs, LABELS),
        lambda: model.predict(inputs),
    ]
    if name in ("too long", "float", "name", "mask"):  # the values of a data set are not known
        data = tf.data.Dataset.from_tensor_slices((inputs, LABELS)).batch(2)
        calls.append(lambda: model.fit(data))
    for call in calls:
        with pytest.raises(ValueError, match=f"^{said}") as caught:
            call()
        assert "\n" not in str(caught.value)


def test_a_functional_model_of_float_ids_is_refused_in_one_line():
    with pytest.raises(ValueError, match=r"^input_ids have the dtype float32, .*In a functional"):
        model_of()(tf_keras.Input((5,)))
    inputs = tf_keras.Input((5,), dtype="int32")
    model = tf_keras.Model(inputs, model_of()(inputs))
    assert model.predict(ROW, verbose=0).shape == (2, 2)


def test_options_have_axes_of_their_own():
    model = heads.AlbertForMultipleChoice(SHALLOW)
    with pytest.raises(
        ValueError, match=r"^the input has the shape \(2, 5\): expected \[B, C, S\]"
    ):
        model(ROW)
    model.compile("sgd", run_eagerly=True)
    model.fit(np.ones((2, 3, 5), int), LABELS, verbose=0)


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (None, r"the labels are missing: model\.fit\(inputs, labels\)"),
        (np.array([0, 7]), r"labels contain 7: expected 0 to 1 \(num_labels=2\)"),
        ([0, -1], "labels contain -1: expected 0 to 1"),
        ([0.0, 0.5], r"labels contain 0\.5: expected 0 to 1"),
        ([0.0, float("nan")], "labels contain nan: expected 0 to 1"),
        (
            np.eye(2),
            r"labels have the shape \(2, 2\): expected \[B\], .* pass labels\.argmax\(-1\)",
        ),
        (np.ones((2, 5), int), r"labels have the shape \(2, 5\): expected \[B\], [^.]*$"),
    ],
)
def test_labels_that_are_not_those_of_the_model_are_refused_in_one_line(labels, said):
    model = model_of()
    model.compile("sgd")
    with pytest.raises(ValueError, match=f"^{said}"):
        model.fit(IDS, labels)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"loss": "crossentropy"}, "loss: 'crossentropy' is no name in tf_keras.losses. "),
        ({"loss": ["hinje"]}, "loss: 'hinje' is no name in .*losses. Did you mean 'hinge'[?]"),
        ({"loss": "hinge", "metrics": ["f1"]}, "metrics: 'f1' is no .*metrics. Pass an object"),
        ({"metrics": {"a": ["auc"]}}, "metrics: 'auc' is no .* Did you mean 'AUC'[?]"),
    ],
)
def test_names_that_keras_lacks_are_refused_before_the_first_step(arguments, said):
    with pytest.raises(ValueError, match=f"^{said}"):
        model_of().compile("sgd", **arguments)


def test_data_to_validate_on_are_checked_before_an_epoch():
    model = model_of()
    model.compile("sgd", run_eagerly=True)
    for held_out, said in (
        ((TEXTS, LABELS), "these are texts"),
        ((IDS, [0, 9]), "labels contain 9"),
    ):
        with pytest.raises(ValueError, match=f"^{said}"):
            model.fit(IDS, LABELS, validation_data=held_out)
    assert model.optimizer.iterations == 0
    model.fit(IDS, LABELS, validation_data=(IDS, LABELS), verbose=0)


# What makes an object → what is said, in place of an attribute or a dimension that lacks.
WRONG_ARGUMENTS = {
    "config": (
        lambda: heads.AlbertForSpans("albert_base"),
        r"AlbertForSpans: config is 'albert_b.* ",
    ),
    "encoder": (
        lambda: modeling.AlbertEncoder({}),
        r"AlbertEncoder: config is \{\}, expected an Alb",
    ),
    "labels": (lambda: model_of("2"), "num_labels='2': expected an integer, 1 or more"),
    "tags": (lambda: heads.AlbertForTokenClassification(SHALLOW, 0), "num_labels=0: expected an"),
    "layer": (
        lambda: tokenizer_layer.TokenizerLayer("a.model"),
        r"tokenizer='a.model': expected th",
    ),
    "text": (lambda: fine_tuning_optimizer("fast"), "learning_rate='fast': expected a number, 0"),
    "sign": (lambda: fine_tuning_optimizer(-1e-5, 9), "learning_rate=-1e-05: expected a number"),
    "optimizer": (lambda: Lamb(-1.0), r"learning_rate=-1\.0: expected a number, 0 or more"),
}


@pytest.mark.parametrize("name", WRONG_ARGUMENTS)
def test_arguments_of_another_kind_are_refused_by_name(name):
    make, said = WRONG_ARGUMENTS[name]
    with pytest.raises(ValueError, match=f"^{said}"):
        make()


def test_labels_of_other_losses_and_steps_are_not_looked_into():
    class Stepping(heads.AlbertForClassification):
        def train_step(self, data):
            return {"rows": tf.shape(data["input_ids"])[0]}

    model = Stepping(SHALLOW, 2)
    model.compile("sgd", run_eagerly=True)
    assert model.fit(IDS, verbose=0).history == {"rows": [2]}
    model = model_of()
    model.compile("sgd", losses.CategoricalCrossentropy(from_logits=True), run_eagerly=True)
    model.fit(IDS, np.eye(2), verbose=0)
    ignoring = losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1)
    model.compile("sgd", ignoring, run_eagerly=True)
    model.fit(IDS, np.array([[0], [-1]]), verbose=0)


def test_rows_of_unequal_length_are_refused_in_one_line():
    model = model_of()
    model.compile("sgd")
    with pytest.raises(
        ValueError, match=r"^model\.fit takes an array of ids, \[B, S\], or .* list"
    ):
        model.fit([[1, 2], [1, 2, 3]], LABELS)


@pytest.mark.parametrize("labels", [["bad", "good"], np.array(["bad", "good"])])
def test_labels_that_are_texts_are_refused(labels):
    model = model_of()
    model.compile("sgd")
    with pytest.raises(ValueError, match=r"^these labels are texts: model\.fit takes their num"):
        model.fit(IDS, labels, verbose=0)


def test_texts_beside_ids_and_labels_in_a_list_are_taken():
    model = model_of()
    model.compile("sgd", run_eagerly=True)
    model.fit(IDS | {"guid": np.array(TEXTS)}, LABELS.tolist(), verbose=0)


def test_a_subclass_may_take_texts():
    class Reader(heads.AlbertForClassification):
        def call(self, texts, training=False):
            return super().call(tf.strings.length(texts)[:, None], training=training)

    model = Reader(SHALLOW, 2)
    model.compile("sgd", run_eagerly=True)
    model.fit(np.array(TEXTS), LABELS, verbose=0)

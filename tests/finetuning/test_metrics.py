"""Metrics of classification and regression: values by hand, and what leaves them unchanged."""

import math

import numpy as np
import pytest

from albert_tf.finetuning import metrics

LABELS = [0, 1, 1, 0, 1, 1, 0]
PREDICTIONS = [0, 1, 0, 1, 1, 1, 0]  # tp 3, fn 1, fp 1, tn 2


def compute(names, predictions, labels):
    return {name: metrics.METRICS[name](predictions, labels) for name in names}


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def test_binary_metrics_have_the_values_computed_by_hand():
    names = ["eval_accuracy", "f1", "matthew_corr", "macro_f1"]
    assert compute(names, PREDICTIONS, LABELS) == pytest.approx(
        {
            "eval_accuracy": 5 / 7,
            "f1": 6 / 8,
            "matthew_corr": (3 * 2 - 1 * 1) / math.sqrt(4 * 4 * 3 * 3),
            "macro_f1": (6 / 8 + 4 / 6) / 2,
        }
    )


def test_the_confusion_matrix_has_a_row_for_each_true_label():
    matrix = metrics.confusion_matrix([0, 2, 2, 2, 1], [0, 0, 2, 2, 1])
    assert matrix.tolist() == [[1, 0, 1], [0, 1, 0], [0, 0, 2]]


def test_multi_label_metrics_have_the_values_computed_by_hand():
    actual = np.array([[1, 0, 1, 0], [0, 1, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0]])
    guess = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [1, 1, 1, 0], [0, 0, 0, 0]], bool)
    # a: 2 hits of 2 and 2; b: likewise; c: none of 1 and 1; d does not occur.
    assert metrics.multi_label_metrics(guess, actual, ["a", "b", "c", "d"]) == pytest.approx(
        {
            "eval_accuracy": 2 / 4,
            "micro_f1": 2 * 4 / (5 + 5),
            "macro_f1": (1 + 1 + 0 + 0) / 4,
            **{"f1_a": 1, "f1_b": 1, "f1_c": 0, "f1_d": 0},
        }
    )


def test_regression_metrics_have_the_values_computed_by_hand():
    predictions, labels = [1.0, 2.0, 4.0, 3.0], [0.5, 2.0, 3.0, 5.0]
    # Deviations from the means 2.5 and 2.625: products sum to 5.25, squares to 5 and 10.6875.
    assert compute(["MSE", "pearson", "spearman"], predictions, labels) == pytest.approx(
        {
            "MSE": 5.25 / 4,
            "pearson": 5.25 / math.sqrt(5 * 10.6875),
            "spearman": 1 - 6 * 2 / (4 * 15),
        }
    )


def test_multi_label_losses_are_those_of_pytorch():
    # torch.nn.BCEWithLogitsLoss(reduction="none") of PyTorch 2.13, mean over labels.
    logits, labels = [[1.5, -0.25, 3.0], [-2.0, 0.0, 40.0]], [[1, 0, 0], [0, 1, 0]]
    found = metrics.losses_of_examples(np.array(logits), np.array(labels))
    np.testing.assert_allclose(found, [1.275313377380371, 13.60669231414795], rtol=1e-6)


ALL_OF_ONE_CLASS = [
    # Predictions, labels; accuracy, F1 of label 1, mean F1, and correlation.
    ([0], [0], (1.0, 0.0, 1.0, 0.0)),
    ([1], [1], (1.0, 1.0, 1.0, 0.0)),
    ([0, 0, 0], [0, 0, 0], (1.0, 0.0, 1.0, 0.0)),
    ([1, 1, 1], [1, 1, 1], (1.0, 1.0, 1.0, 0.0)),
    ([0, 0, 0], [1, 1, 1], (0.0, 0.0, 0.0, 0.0)),
    ([1, 1, 1], [0, 0, 0], (0.0, 0.0, 0.0, 0.0)),
    ([1, 1, 1, 1], [0, 1, 1, 1], (0.75, 6 / 7, 3 / 7, 0.0)),
    ([0, 1], [1, 0], (0.0, 0.0, 0.0, -1.0)),
    ([2, 2], [2, 2], (1.0, 0.0, 1.0, 0.0)),
    ([0, 0, 2], [0, 0, 0], (2 / 3, 0.0, (4 / 5 + 0) / 2, 0.0)),  # 2 is predicted only
]


@pytest.mark.parametrize(("predictions", "labels", "expected"), ALL_OF_ONE_CLASS)
def test_metrics_of_one_class_are_defined(predictions, labels, expected):
    names = ("eval_accuracy", "f1", "macro_f1", "matthew_corr")
    found = compute(names, predictions, labels)
    assert found == pytest.approx(dict(zip(names, expected, strict=True)))


def test_multi_label_metrics_without_labels_are_zero():
    none, one = np.zeros((1, 2), bool), np.array([[True, False]])
    zero = {"micro_f1": 0.0, "macro_f1": 0.0, "f1_a": 0.0, "f1_b": 0.0}
    assert metrics.multi_label_metrics(none, none, "ab") == {"eval_accuracy": 1.0, **zero}
    assert metrics.multi_label_metrics(one, none, "ab") == {"eval_accuracy": 0.0, **zero}
    assert metrics.multi_label_metrics(none, one, "ab") == {"eval_accuracy": 0.0, **zero}


@pytest.mark.parametrize(
    ("batch_size", "loss"),
    [(1, 3.4), (2, (1.5 + 4 + 6) / 3), (3, (2 + 5.5) / 2), (5, 3.4), (6, 3.4)],
)
def test_the_loss_is_the_mean_of_the_means_of_batches(batch_size, loss):
    losses = np.array([1.0, 2.0, 3.0, 5.0, 6.0])
    found = metrics.loss_metrics(losses, batch_size)
    assert found["eval_loss"] == pytest.approx(3.4)
    assert found["loss"] == pytest.approx(loss)


def test_losses_of_one_label_are_those_of_the_softmax():
    found = metrics.losses_of_examples(np.array([[0.0, 0.0], [1000.0, 0.0]]), np.array([1, 0]))
    assert found.tolist() == pytest.approx([math.log(2), 0.0])
    assert metrics.losses_of_examples(np.array([3.0, 1.0]), np.array([1.0, 1.0])).tolist() == [4, 0]


def test_undefined_classification_metrics_are_0():
    assert metrics.f1_score([0, 0], [0, 0]) == 0.0
    assert metrics.f1_score([0, 0, 1], [0, 1, 0]) == 0.0
    assert metrics.matthews_correlation([1, 1, 1], [0, 1, 1]) == 0.0


@pytest.mark.parametrize("constant", [[2.0, 2.0, 2.0], [0.1, 0.1, 0.1]])
def test_correlation_with_a_constant_is_nan(constant):
    varying = [0.3, 0.1, 0.2]
    for metric in (metrics.pearson_correlation, metrics.spearman_correlation):
        assert math.isnan(metric(constant, varying))
        assert math.isnan(metric(varying, constant))


def test_pearson_of_float32_is_as_exact_as_of_float64_also_of_tiny_numbers(rng):
    x = rng.normal(size=1000).astype(np.float32) + 1000
    y = x + rng.normal(size=1000).astype(np.float32)
    expected = np.corrcoef(x.astype(np.float64), y.astype(np.float64))[0, 1]
    assert metrics.pearson_correlation(x, y) == pytest.approx(expected, rel=1e-12)
    assert metrics.pearson_correlation(-1e-200 * x.astype(np.float64), y) == pytest.approx(
        -expected
    )


def test_equal_values_share_the_mean_of_their_ranks():
    assert metrics.ranks([30, 10, 20, 20, 10, 20]).tolist() == [6, 1.5, 4, 4, 1.5, 4]
    # Ranks 1.5, 1.5, 3 and 1, 2, 3.
    assert metrics.spearman_correlation([5, 5, 9], [1, 2, 3]) == pytest.approx(math.sqrt(3) / 2)


def test_metrics_of_many_labels_do_not_depend_on_their_order(rng):
    predictions, labels = rng.integers(0, 4, 101), rng.integers(0, 4, 101)
    names = np.array([2, 0, 3, 1])
    for metric in (metrics.accuracy, metrics.matthews_correlation, metrics.macro_f1_score):
        expected = metric(predictions, labels)
        assert metric(names[predictions], names[labels]) == pytest.approx(expected)
    assert metrics.macro_f1_score([0, 5], [0, 5]) == 1.0  # others never occur


def test_counts_too_large_for_int64_do_not_overflow():
    labels = np.arange(300_000) % 2
    assert metrics.matthews_correlation(labels, labels) == pytest.approx(1.0)

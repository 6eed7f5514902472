import math

import numpy as np
import pytest

from albert_tf.finetuning import metrics

LABELS = [0, 1, 1, 0, 1, 1, 0]
PREDICTIONS = [0, 1, 0, 1, 1, 1, 0]  # tp 3, fn 1, fp 1, tn 2


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def test_binary_metrics_have_the_values_computed_by_hand():
    assert metrics.confusion_matrix(PREDICTIONS, LABELS).tolist() == [[2, 1], [1, 3]]
    found = metrics.compute_metrics(
        ["eval_accuracy", "f1", "matthew_corr", "macro_f1"], PREDICTIONS, LABELS
    )
    assert found == pytest.approx(
        {
            "eval_accuracy": 5 / 7,
            "f1": 6 / 8,
            "matthew_corr": (3 * 2 - 1 * 1) / math.sqrt(4 * 4 * 3 * 3),
            "macro_f1": (6 / 8 + 4 / 6) / 2,
        }
    )


def test_multi_label_metrics_have_the_values_computed_by_hand():
    actual = np.array([[1, 0, 1, 0], [0, 1, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0]])
    guess = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [1, 1, 1, 0], [0, 0, 0, 0]], bool)
    # a: 2 hits of 2 and 2; b: likewise; c: none of 1 and 1; d does not occur.
    found = metrics.multi_label_metrics(guess, actual, ["a", "b", "c", "d"])
    assert found == pytest.approx(
        {
            "eval_accuracy": 2 / 4,
            "micro_f1": 2 * 4 / (5 + 5),
            "macro_f1": (1 + 1 + 0 + 0) / 4,
            **{"f1_a": 1, "f1_b": 1, "f1_c": 0, "f1_d": 0},
        }
    )


# Computed with torch.nn.BCEWithLogitsLoss(reduction="none") of PyTorch 2.13, mean over labels.
LOGITS = [[1.5, -0.25, 3.0], [-2.0, 0.0, 40.0]]
TRUE = [[1, 0, 0], [0, 1, 0]]
LOSSES = [1.275313377380371, 13.60669231414795]


def test_multi_label_losses_are_those_of_pytorch():
    found = metrics.losses_of_examples(np.array(LOGITS), np.array(TRUE))
    np.testing.assert_allclose(found, LOSSES, rtol=1e-6)


def test_regression_metrics_have_the_values_computed_by_hand():
    predictions, labels = [1.0, 2.0, 4.0, 3.0], [0.5, 2.0, 3.0, 5.0]
    assert metrics.mean_squared_error(predictions, labels) == pytest.approx(5.25 / 4)
    # Deviations from the means 2.5 and 2.625: products sum to 5.25, squares to 5 and 10.6875.
    assert metrics.pearson_correlation(predictions, labels) == pytest.approx(
        5.25 / math.sqrt(5 * 10.6875)
    )
    assert metrics.spearman_correlation(predictions, labels) == pytest.approx(1 - 6 * 2 / (4 * 15))


def test_matthews_of_two_labels_is_googles_formula(rng):
    for _ in range(50):
        predictions, labels = rng.integers(0, 2, 9), rng.integers(0, 2, 9)
        tp, tn = int((predictions * labels).sum()), int(((1 - predictions) * (1 - labels)).sum())
        fp, fn = (
            int((predictions * (1 - labels)).sum()),
            int(((1 - predictions) * labels).sum()),
        )
        divisor = math.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
        expected = (tp * tn - fp * fn) / divisor if divisor else 0.0
        assert metrics.matthews_correlation(predictions, labels) == pytest.approx(expected)


def test_undefined_classification_metrics_are_0():
    assert metrics.f1_score([0, 0], [0, 0]) == 0.0
    assert metrics.f1_score([0, 0, 1], [0, 1, 0]) == 0.0
    assert metrics.matthews_correlation([1, 1, 1], [0, 1, 1]) == 0.0
    assert metrics.matthews_correlation([0], [0]) == 0.0


@pytest.mark.parametrize("constant", [[2.0, 2.0, 2.0], [0.1, 0.1, 0.1]])
def test_correlation_with_a_constant_is_nan(constant):
    varying = [0.3, 0.1, 0.2]
    for metric in (metrics.pearson_correlation, metrics.spearman_correlation):
        assert math.isnan(metric(constant, varying))
        assert math.isnan(metric(varying, constant))
    assert math.isnan(metrics.pearson_correlation([1.0], [1.0]))


def test_pearson_is_invariant_to_scale_and_shift_but_not_to_sign(rng):
    x, y = rng.normal(size=31), rng.normal(size=31)
    r = metrics.pearson_correlation(x, y)
    assert -1 < r < 1
    assert metrics.pearson_correlation(y, x) == pytest.approx(r)
    assert metrics.pearson_correlation(3 * x - 7, y) == pytest.approx(r)
    assert metrics.pearson_correlation(1e-200 * x, y) == pytest.approx(r)
    assert metrics.pearson_correlation(-x, y) == pytest.approx(-r)
    assert metrics.pearson_correlation(x, x) == pytest.approx(1.0)


def test_pearson_of_float32_is_as_exact_as_of_float64(rng):
    x = rng.normal(size=1000).astype(np.float32) + 1000
    y = x + rng.normal(size=1000).astype(np.float32)
    expected = np.corrcoef(x.astype(np.float64), y.astype(np.float64))[0, 1]
    assert metrics.pearson_correlation(x, y) == pytest.approx(expected, rel=1e-12)


def test_spearman_depends_only_on_the_order(rng):
    x, y = rng.normal(size=23), rng.normal(size=23)
    assert metrics.spearman_correlation(np.exp(x), y) == pytest.approx(
        metrics.spearman_correlation(x, y)
    )
    assert metrics.spearman_correlation(x, np.exp(x)) == pytest.approx(1.0)
    assert metrics.spearman_correlation(x, -(x**3)) == pytest.approx(-1.0)


def test_equal_values_share_the_mean_of_their_ranks():
    assert metrics.ranks([30, 10, 20, 20, 10, 20]).tolist() == [6, 1.5, 4, 4, 1.5, 4]
    # Ranks 1.5, 1.5, 3 and 1, 2, 3.
    assert metrics.spearman_correlation([5, 5, 9], [1, 2, 3]) == pytest.approx(math.sqrt(3) / 2)


def test_the_confusion_matrix_has_a_row_for_each_true_label():
    matrix = metrics.confusion_matrix([0, 2, 2, 2, 1], [0, 0, 2, 2, 1])
    assert matrix.tolist() == [[1, 0, 1], [0, 1, 0], [0, 0, 2]]


def test_metrics_of_many_labels_are_symmetric_under_renaming_them(rng):
    predictions, labels = rng.integers(0, 4, 101), rng.integers(0, 4, 101)
    names = np.array([2, 0, 3, 1])
    for metric in (metrics.accuracy, metrics.matthews_correlation, metrics.macro_f1_score):
        assert metric(names[predictions], names[labels]) == pytest.approx(
            metric(predictions, labels)
        )
    assert metrics.matthews_correlation(labels, labels) == pytest.approx(1.0)


def test_macro_f1_ignores_labels_that_never_occur():
    assert metrics.macro_f1_score([0, 5], [0, 5]) == 1.0


def test_counts_too_large_for_int64_do_not_overflow():
    labels = np.zeros(300_000, np.int64)
    labels[:150_000] = 1
    assert metrics.matthews_correlation(labels, labels) == pytest.approx(1.0)


@pytest.mark.parametrize("name", metrics.METRICS)
def test_every_metric_rejects_invalid_arguments(name):
    with pytest.raises(ValueError, match=r"shape \(2,\).*shape \(3,\)"):
        metrics.METRICS[name]([0, 1], [0, 1, 1])
    with pytest.raises(ValueError, match="no examples"):
        metrics.METRICS[name]([], [])
    with pytest.raises(ValueError, match="two vectors"):
        metrics.METRICS[name]([[0, 1]], [[0, 1]])


def test_the_table_by_label_has_the_shares_counted_by_hand():
    matrix = np.array([[3, 1, 0], [2, 4, 0], [0, 0, 0]])
    _, *rows = metrics.table_by_label(matrix, ["a", "b", "never seen"]).splitlines()
    assert rows[0].split() == ["0.600", "0.750", "0.667", "4", "a"]
    assert rows[1].split() == ["0.800", "0.667", "0.727", "6", "b"]
    assert rows[2].split(maxsplit=4) == ["0.000", "0.000", "0.000", "0", "never seen"]

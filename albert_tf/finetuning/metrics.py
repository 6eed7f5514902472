"""Metrics of classification, multiple choice and regression.

Metrics of Google's programs keep their keys (`eval_accuracy`, `matthew_corr`, `pearson`, `MSE`). F1
and Spearman correlation, which GLUE also reports, are added.

Shapes: N examples, K labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray


def accuracy(predictions: ArrayLike, label_ids: ArrayLike) -> float:
    """Returns the accuracy, in [0, 1]."""
    return float(np.mean(np.asarray(predictions) == np.asarray(label_ids)))


def confusion_matrix(predictions: ArrayLike, label_ids: ArrayLike) -> NDArray[np.int64]:
    """Returns the confusion matrix, where K - 1 is the largest id that occurs.

    Args:
        predictions: predicted ids in [0, K), [N].
        label_ids: true ids, [N].

    Returns:
        int64 [K, K], with a row for each true label and a column for each predicted label.
    """
    predicted, actual = np.asarray(predictions), np.asarray(label_ids)
    count = int(max(predicted.max(), actual.max())) + 1
    cells = actual.astype(np.int64) * count + predicted.astype(np.int64)
    return np.bincount(cells, minlength=count * count).reshape(count, count)


def _f1(hits: ArrayLike, sizes: ArrayLike) -> NDArray[np.float64]:
    """Returns F1 scores; 0/0 counts as 0.

    Args:
        hits: numbers of examples where a label is predicted and true, of any shape.
        sizes: numbers of examples where it is predicted and where it is true, added up.
    """
    return 2 * np.asarray(hits, np.float64) / np.maximum(np.asarray(sizes, np.float64), 1)


def _f1_of_each_label(matrix: NDArray[np.int64]) -> NDArray[np.float64]:
    """Returns the F1 score of each label, [K]; 0 for a label that does not occur."""
    return _f1(np.diag(matrix), matrix.sum(0) + matrix.sum(1))


def f1_score(predictions: ArrayLike, label_ids: ArrayLike) -> float:
    """Returns the F1 score of label 1 in [0, 1]: 2·tp / (2·tp + fp + fn), or 0 if undefined."""
    matrix = confusion_matrix(predictions, label_ids)
    return float(_f1_of_each_label(matrix)[1]) if len(matrix) > 1 else 0.0


def macro_f1_score(predictions: ArrayLike, label_ids: ArrayLike) -> float:
    """Returns the mean F1 score of all labels that occur as a true or predicted label."""
    matrix = confusion_matrix(predictions, label_ids)
    occurs = matrix.sum(0) + matrix.sum(1) > 0
    return float(np.mean(_f1_of_each_label(matrix)[occurs]))


def scores_of_labels(
    hits: ArrayLike, predicted: ArrayLike, actual: ArrayLike
) -> dict[str, NDArray[np.float64]]:
    """Returns `precision`, `recall` and `f1` of each label, float64 [K]; 0/0 counts as 0.

    Args:
        hits: number of examples where a label is predicted and true, [K].
        predicted: number of examples where it is predicted, [K].
        actual: number of examples where it is true, [K].
    """
    h, p, a = (np.asarray(x, np.float64) for x in (hits, predicted, actual))
    return {
        "precision": h / np.maximum(p, 1),
        "recall": h / np.maximum(a, 1),
        "f1": _f1(h, p + a),
    }


def multi_label_metrics(
    predictions: NDArray[np.bool_], label_ids: ArrayLike, labels: Sequence[str]
) -> dict[str, float]:
    """Returns the metrics of examples with any number of labels, all in [0, 1].

    Args:
        predictions: whether each label is predicted, [N, K].
        label_ids: whether each label is true, [N, K].
        labels: names of the K labels.

    Returns:
        `eval_accuracy`, the fraction of examples whose labels are all correct; `f1_<label>`;
        `macro_f1`, the mean of these; and `micro_f1`, the F1 score of all pairs of example and
        label. As in scikit-learn, 0/0 counts as 0.
    """
    actual = np.asarray(label_ids) > 0
    hits = (predictions & actual).sum(axis=0)  # [K]
    sizes = predictions.sum(axis=0) + actual.sum(axis=0)  # [K]
    scores = _f1(hits, sizes)  # [K]
    return {
        "eval_accuracy": float(np.mean((predictions == actual).all(axis=1))),
        "micro_f1": float(_f1(hits.sum(), sizes.sum())),
        "macro_f1": float(np.mean(scores)),
        **{f"f1_{label}": float(score) for label, score in zip(labels, scores, strict=True)},
    }


def matthews_correlation(predictions: ArrayLike, label_ids: ArrayLike) -> float:
    """Returns the Matthews correlation in [-1, 1], or 0 if undefined; Google's `matthew_corr`.

    With more than two labels, this is the generalization R_K (Gorodkin, 2004).
    """
    matrix = confusion_matrix(predictions, label_ids)
    # Python integers, because products of four counts can overflow int64.
    predicted = [int(count) for count in matrix.sum(0)]
    actual = [int(count) for count in matrix.sum(1)]
    total = sum(actual)
    hits = int(np.trace(matrix))
    covariance = hits * total - sum(p * a for p, a in zip(predicted, actual, strict=True))
    variances = (total**2 - sum(p * p for p in predicted)) * (total**2 - sum(a * a for a in actual))
    return covariance / float(variances) ** 0.5 if variances else 0.0


def mean_squared_error(predictions: ArrayLike, label_ids: ArrayLike) -> float:
    """Returns the mean squared error."""
    predicted, actual = np.asarray(predictions), np.asarray(label_ids)
    return float(np.mean((predicted.astype(np.float64) - actual.astype(np.float64)) ** 2))


def pearson_correlation(predictions: ArrayLike, label_ids: ArrayLike) -> float:
    """Returns the Pearson correlation in [-1, 1]; NaN if either argument is constant."""
    predicted, actual = np.asarray(predictions, np.float64), np.asarray(label_ids, np.float64)
    # Do not test the variance: rounding of the mean can make it positive for equal numbers.
    if np.ptp(predicted) == 0 or np.ptp(actual) == 0:
        return float("nan")
    x = predicted - np.mean(predicted)
    y = actual - np.mean(actual)
    # Squares of tiny numbers would underflow.
    x = x / np.abs(x).max()
    y = y / np.abs(y).max()
    correlation = np.sum(x * y) / np.sqrt(np.sum(x * x) * np.sum(y * y))
    return float(np.clip(correlation, -1.0, 1.0))


def ranks(values: ArrayLike) -> NDArray[np.float64]:
    """Returns the ranks of the values, starting at 1; equal values share their mean rank."""
    _, inverse, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[inverse], np.float64)


def spearman_correlation(predictions: ArrayLike, label_ids: ArrayLike) -> float:
    """Returns the Spearman correlation in [-1, 1]; NaN if either argument is constant."""
    return pearson_correlation(ranks(predictions), ranks(label_ids))


def losses_of_examples(
    logits: NDArray[np.floating], label_ids: NDArray[np.number]
) -> NDArray[np.float64]:
    """Returns the loss of each example, float64 [N].

    Args:
        logits: [N, K] for the cross-entropy, or scores [N] for the squared error.
        label_ids: true ids or scores, [N]; or 0 or 1 for each label, [N, K], for the mean binary
            cross-entropy.
    """
    precise = np.asarray(logits, np.float64)
    if precise.ndim == 1:
        return np.asarray((precise - label_ids) ** 2)
    if label_ids.ndim == 2:
        return np.asarray((np.logaddexp(0, precise) - precise * label_ids).mean(axis=1))
    shifted = precise - precise.max(axis=1, keepdims=True)
    log_sums = np.log(np.exp(shifted).sum(axis=1))
    return np.asarray(log_sums - shifted[np.arange(len(shifted)), label_ids], np.float64)


def loss_metrics(losses: NDArray[np.float64], batch_size: int) -> dict[str, float]:
    """Returns the two losses that Google's programs report.

    Args:
        losses: [N], in the order of the file.
        batch_size: `--eval_batch_size`.

    Returns:
        `eval_loss`, the mean over examples, and `loss`, the mean over batches of each batch's mean.
        They differ if the last batch is smaller.
    """
    means = [np.mean(losses[at : at + batch_size]) for at in range(0, len(losses), batch_size)]
    return {"eval_loss": float(np.mean(losses)), "loss": float(np.mean(means))}


Metric = Callable[[ArrayLike, ArrayLike], float]

# Key in eval_results.txt → function of (predictions, label_ids).
METRICS: dict[str, Metric] = {
    "eval_accuracy": accuracy,
    "f1": f1_score,
    "macro_f1": macro_f1_score,
    "matthew_corr": matthews_correlation,
    "MSE": mean_squared_error,
    "pearson": pearson_correlation,
    "spearman": spearman_correlation,
}

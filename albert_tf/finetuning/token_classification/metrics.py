"""Metrics of the spans that labels mark, as conlleval computes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from albert_tf.finetuning.token_classification.spans import find_spans


def span_metrics(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], is_raw: bool = False
) -> dict[str, float]:
    """Returns precision, recall and F1 of spans, and the accuracy of labels, all in [0, 1].

    As in conlleval, a span is correct if its type and both ends are, and 0/0 counts as 0.
    `precision_PER` etc. are the metrics of the spans of a type.

    Args:
        gold: the true labels of each sentence.
        predicted: the predicted labels of each sentence.
        is_raw: see `find_spans`.
    """
    num_gold: Counter[str] = Counter()
    num_predicted: Counter[str] = Counter()
    num_right: Counter[str] = Counter()
    hits = 0
    for labels, guesses in zip(gold, predicted, strict=True):
        spans = set(find_spans(labels, is_raw))
        guessed = set(find_spans(guesses, is_raw))
        num_gold.update(kind for kind, _, _ in spans)
        num_predicted.update(kind for kind, _, _ in guessed)
        num_right.update(kind for kind, _, _ in spans & guessed)
        hits += sum(label == guess for label, guess in zip(labels, guesses, strict=True))
    metrics = _ratios(num_right.total(), num_predicted.total(), num_gold.total())
    metrics["accuracy"] = hits / sum(map(len, gold))
    for kind in sorted({*num_gold, *num_predicted} - {""}):
        ratios = _ratios(num_right[kind], num_predicted[kind], num_gold[kind])
        metrics.update({f"{name}_{kind}": value for name, value in ratios.items()})
    return metrics


def _ratios(num_right: int, num_predicted: int, num_gold: int) -> dict[str, float]:
    """Returns precision, recall and F1."""
    return {
        "precision": num_right / num_predicted if num_predicted else 0.0,
        "recall": num_right / num_gold if num_gold else 0.0,
        "f1": 2 * num_right / (num_predicted + num_gold) if num_predicted + num_gold else 0.0,
    }

"""Tagging schemes: the spans that the labels of tokens mark, and their metrics, as conlleval's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

OUTSIDE = "O"  # the label of tokens outside of spans
# The first letters of all other labels in the schemes IOB1, IOB2, BIOES (also called IOBES), BILOU
# (BIOUL, BILUO), BMES and BMEWO.
LETTERS = set("BIESMLUW")
# A span goes on if one of the first letters is followed by one of the second.
_INSIDE = set("BIM")
_CONTINUING = set("IMEL")


Span = tuple[str, int, int]  # type, first token, last token + 1


def marks_spans(label: str) -> bool:
    """Returns whether a label is one of a tagging scheme."""
    return label == OUTSIDE or label.partition("-")[0] in LETTERS


def find_spans(labels: Sequence[str | None], is_raw: bool = False) -> list[Span]:
    """Returns the spans of a sentence by the rules of conlleval, which cover all schemes.

    After B, I or M, a span is continued by I, M, E or L of the same type. Any other label but O
    starts a new span, so that invalid label sequences also define spans.

    Args:
        labels: the label of each token.
        is_raw: whether every token with a label other than O is a span, as with `conlleval -r`.

    >>> find_spans(["B-PER", "I-PER", "O", "I-LOC", "B-LOC"])
    [('PER', 0, 2), ('LOC', 3, 4), ('LOC', 4, 5)]
    """
    spans = []
    begin = 0
    last_letter = OUTSIDE
    last_kind = ""
    for place, label in enumerate([*labels, OUTSIDE]):
        letter, _, kind = str(label).partition("-")
        if is_raw and label != OUTSIDE:
            letter = "S"
            kind = str(label)
        is_continued = last_letter in _INSIDE and letter in _CONTINUING and kind == last_kind
        if not is_continued:
            if last_letter != OUTSIDE:
                spans.append((last_kind, begin, place))
            begin = place
        last_letter = letter
        last_kind = kind
    return spans


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

"""Tagging schemes: the spans that the labels of tokens mark."""

from __future__ import annotations

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

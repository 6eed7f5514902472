"""Finds the columns of rows: by index, by the names in a header, or by the keys of JSON objects.

Training and prediction of all tasks ask here. Names are compared in lower case and without spaces
around them; if several columns have a name, it means the first. Of columns that have different
usual names of a text, none is preferred: `find_texts` refuses to guess.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping

from albert_tf.finetuning.rows import BadRowError, Column, NumberedRow, Row
from albert_tf.tables.row import name_cells, normalized

# Usual names of columns, in lower case.
TEXT_A = ("text_a", "sentence1", "sentence", "text")
TEXT_B = ("text_b", "sentence2")
# Pairs of other names: of QQP, QNLI, MNLI, XNLI (of the Hub, of CLUE), LCQMC and its copies.
PAIRS = (
    ("question1", "question2"),
    ("question", "sentence"),
    ("premise", "hypothesis"),
    ("premise", "hypo"),
    ("text1", "text2"),
    ("query", "title"),
)
# The first one found is used.
LABEL = ("label", "labels", "score", "gold_label", "is_duplicate")
GUID = ("guid", "id", "index", "idx", "qid", "uid", "example_id", "pairid")
QUESTION = ("question",)
CONTEXT = ("context", "passage")
TOKENS = ("tokens", "words")

# Names that make the first row of a file with labeled examples a header.
_NAMES_IN_PAIRS = tuple(itertools.chain.from_iterable(PAIRS))
NAMES_OF_EXAMPLES = frozenset((*TEXT_A, *TEXT_B, *_NAMES_IN_PAIRS, *LABEL, *GUID))
# Those for a file to predict, in which "label" or "id" may as well be a text.
NAMES_OF_INPUTS = frozenset((*TEXT_A, *_NAMES_IN_PAIRS, *QUESTION, *CONTEXT, *TOKENS))


def is_header(row: Row | BadRowError, names: Collection[str]) -> bool:
    """Returns whether the first row of a file is a header: whether it has one of `names`.

    Args:
        row: the row.
        names: the names, in lower case, by which a header is recognized.
    """
    return not isinstance(row, (dict, BadRowError)) and not set(names).isdisjoint(places_of(row))


def places_of(row: Row) -> dict[str, Column]:
    """Returns where columns are: name in lower case → index of the cell, or key of the JSON object.

    Args:
        row: a header or a JSON object.
    """
    keys: Iterable[Column] = row if isinstance(row, dict) else itertools.count()
    places: dict[str, Column] = {}
    for name, key in zip(row, keys, strict=False):
        places.setdefault(normalized(name), key)
    return places


def find_column(names: Iterable[str], places: Mapping[str, Column]) -> Column | None:
    """Returns where the first existing column of some names is; None if there is none.

    Args:
        names: the names, in upper or lower case.
        places: see `places_of`.
    """
    return next((places[n] for n in map(normalized, names) if n in places), None)


def find_texts(places: Mapping[str, Column]) -> tuple[Column, Column | None] | None:
    """Returns where the text, or the two texts, of a row are; None if no column has a usual name.

    Args:
        places: see `places_of`.

    Returns:
        The column of the first or only text, and that of the second text or None.

    Raises:
        BadRowError: several columns might be the text, or the pair.
    """
    singles = [name for name in TEXT_A if name in places]
    seconds = [name for name in TEXT_B if name in places]
    if "text_a" in singles:  # these names mean nothing else
        singles = ["text_a"]
        seconds = seconds[:1]
    pairs = [pair for pair in PAIRS if places.keys() >= set(pair)]
    if "sentence1" in singles and "sentence2" in seconds:
        pairs.append(("sentence1", "sentence2"))
    elif len(singles) == len(seconds) == 1:
        pairs.append((singles[0], seconds[0]))
    in_pairs = set(itertools.chain.from_iterable(pairs))
    candidates = [*pairs, *((name, "") for name in singles if name not in in_pairs)]
    if not candidates:
        return None
    if len(candidates) > 1:
        named = [" and ".join(filter(None, pair)) for pair in candidates]
        raise BadRowError(f"several columns may be the text: {', or '.join(named)}")
    ((first, second),) = candidates
    return places[first], places[second] if second else None


def named_rows(numbered: Iterator[NumberedRow], names: Collection[str]) -> Iterator[NumberedRow]:
    """Yields rows as name in lower case → cell if the first one is a header, or else as they are.

    Args:
        numbered: rows of cells with their line numbers.
        names: see `is_header`.

    Yields:
        The line number, and the row, or an error if its width is not that of the header.
    """
    first = next(numbered, None)
    if first is None:
        return
    numbered = itertools.chain([first], numbered)
    yield from name_cells(numbered) if is_header(first[1], names) else numbered

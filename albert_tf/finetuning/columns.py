"""Finds the columns of rows: by index, by the names in a header, or by the keys of JSON objects.

Training and prediction of all tasks ask here. Names are compared in lower case and without spaces
around them; if several columns have a name, it means the first.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping

from albert_tf.finetuning.rows import BadRowError, Column, NumberedRow, Row
from albert_tf.tables.row import name_cells, normalized

# Usual names of columns, in lower case; the first one found is used.
TEXT_A = ("text_a", "sentence1", "sentence", "text")
TEXT_B = ("text_b", "sentence2")
LABEL = ("label", "labels")
GUID = ("guid", "id", "index", "qid")
QUESTION = ("question",)
CONTEXT = ("context", "passage")
TOKENS = ("tokens",)

# Names that make the first row of a file with labeled examples a header.
NAMES_OF_EXAMPLES = frozenset((*TEXT_A, *TEXT_B, *LABEL, *GUID))
# Those for a file to predict, in which "label" or "id" may as well be a text.
NAMES_OF_INPUTS = frozenset((*TEXT_A, *QUESTION, *CONTEXT, *TOKENS))


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

"""Finds the columns of a file with examples of a classification or regression task."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from albert_tf import files
from albert_tf.finetuning.cells import cell
from albert_tf.finetuning.classification.labels import parse_label
from albert_tf.finetuning.classification.tasks import ClassificationTask, Columns, Source
from albert_tf.finetuning.columns import TEXT_A, TEXT_B, find_header, normalized
from albert_tf.finetuning.rows import BadRowError, Column, Row

# Default names of the columns of a custom task, in lower case; the first one found is used.
USUAL_NAMES = {
    "text_a": TEXT_A,
    "text_b": TEXT_B,
    "label": ("label", "labels"),
    "guid": ("guid", "id", "index", "qid"),
}
ALL_NAMES = frozenset().union(*USUAL_NAMES.values())


def is_header(row: Row, source: Source) -> bool:
    """Returns whether the first row of a file is a header."""
    if isinstance(row, dict):
        return False
    if source.has_header is not None:
        return source.has_header
    asked = [name for x in dataclasses.astuple(source.columns) for name in as_tuple(x)]
    names = {name.lower() for name in asked if isinstance(name, str)}
    return bool(find_header(row, names | ALL_NAMES))


def refuse_example(header: Row, column: Any, task: ClassificationTask) -> None:
    """Raises BadRowError if the header has a label of the task in the column of the labels."""
    if isinstance(column, tuple) or column is None or not (task.labels or task.is_regression):
        return
    try:
        parse_label(cell(header, column), task)
    except BadRowError:
        return
    raise BadRowError(
        "expected a header, but this looks like an example, which would be left out. Add a header "
        "line before it"
    )


def find_columns(source: Source, row: Row, is_header: bool, is_test: bool) -> Columns:
    """Returns the columns of a file, as indices or as keys of JSON objects.

    Those of a custom task have the names in the settings, or else usual names. Those of other tasks
    are where the table of tasks says, unless files exist with several headers and without one, and
    this header has their usual names.

    Args:
        source: the columns in the settings or in the table.
        row: the first row.
        is_header: whether it is a header.
        is_test: whether the label column may be missing.

    Raises:
        BadRowError: a column does not exist, or two columns would be the same.
    """
    if not source.is_custom and (source.has_header is not None or not is_header):
        return source.columns
    names: Iterable[str] = row if isinstance(row, dict) or is_header else ()
    keys: Iterable[Column] = row if isinstance(row, dict) else itertools.count()
    places: dict[str, Column] = {}
    for name, key in zip(normalized(names), keys, strict=False):
        places.setdefault(name, key)
    found: dict[str, Any] = {}
    if not source.is_custom:
        for field, column in vars(source.columns).items():
            place = _place_of(USUAL_NAMES[field], places)
            found[field] = column if place is None or column is None else place
        used = [place for place in found.values() if place is not None]
        if len(set(used)) < len(used):
            raise BadRowError(
                f"the header {files.quote_all(row)} does not tell which columns have the texts and "
                "the label. Name them text_a, text_b and label"
            )
        return Columns(**found)
    for field, usual in USUAL_NAMES.items():
        asked = getattr(source.columns, field)
        wanted = [usual] if asked is None else [(name,) for name in as_tuple(asked)]
        columns = [_place_of(names, places) for names in wanted]
        is_optional = is_test if field == "label" else asked is None and field != "text_a"
        if None not in columns:
            found[field] = tuple(columns) if isinstance(asked, tuple) else columns[0]
        elif not is_optional:
            missing = " or ".join(map(repr, wanted[columns.index(None)]))
            raise BadRowError(
                f"no column {missing} among {files.quote_all(row)}. "
                f"Set --{field}_column to its name, or to its index, starting at 0."
            )
    return Columns(**found)


def as_tuple(columns: Any) -> tuple[Any, ...]:
    """Returns a column or a tuple of columns as a tuple; () for None."""
    return columns if isinstance(columns, tuple) else tuple(c for c in [columns] if c is not None)


def _place_of(names: Sequence[Column], places: dict[str, Column]) -> Column | None:
    """Returns where the first existing column of some names is, or an index itself."""
    if isinstance(names[0], int):
        return names[0]
    return next((places[n] for n in normalized(map(str, names)) if n in places), None)

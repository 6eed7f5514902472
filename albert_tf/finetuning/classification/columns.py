"""Finds the columns of a file with examples of a classification or regression task."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from albert_tf import files
from albert_tf.finetuning import columns
from albert_tf.finetuning.classification.labels import parse_label
from albert_tf.finetuning.classification.tasks import ClassificationTask, Columns, SplitSource
from albert_tf.finetuning.columns import (
    GUID,
    LABEL,
    TEXT_A,
    TEXT_B,
    Field,
    find_texts,
    places_of,
)
from albert_tf.finetuning.rows import BadRowError, Column, Row, cell


def is_header(row: Row, source: SplitSource) -> bool:
    """Returns whether the first row of a file is a header."""
    if isinstance(row, dict):
        return False
    if source.has_header is not None:
        return source.has_header
    names = {name.lower() for name in source.columns.used if isinstance(name, str)}
    return columns.is_header(row, names | columns.NAMES_OF_EXAMPLES)


def refuse_example(header: Row, found: Columns, task: ClassificationTask) -> None:
    """Raises BadRowError if the header has a label of the task in the column of the labels."""
    column = found.label
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


def find_columns(source: SplitSource, row: Row, has_header: bool, is_test: bool) -> Columns:
    """Returns the columns of a file, as indices or as keys of JSON objects.

    Those of a custom task have the names in the settings, or else usual names. Those of other tasks
    are where the table of tasks says, unless files exist with several headers and without one, and
    this header has their usual names.

    Args:
        source: the columns in the settings or in the table.
        row: the first row.
        has_header: whether it is a header.
        is_test: whether the label column may be missing.

    Raises:
        BadRowError: a column does not exist, or two columns would be the same.
    """
    if source.is_custom:
        return _custom_columns(source.columns, row, has_header, is_test)
    if source.has_header is None and has_header:
        return _columns_in_header(source.columns, row)
    if not isinstance(row, dict):
        return source.columns
    texts = {source.columns.text_a, source.columns.text_b} - {None}
    if source.expand is None and not texts <= row.keys():  # a copy with other names
        return _custom_columns(Columns(), row, has_header, is_test)
    if source.columns.guid not in row:
        return dataclasses.replace(source.columns, guid=GUID.find(places_of(row)))
    return source.columns


def is_named_otherwise(source: SplitSource, row: Row, is_test: bool) -> bool:
    """Returns whether a file of a task has a header that names other columns than the task's.

    Such a file has the name of one of the task's archive, but was written from another table. In
    the headers of the archives, texts have the usual names at the task's columns, or none.

    Args:
        source: the columns in the table of tasks.
        row: the first row.
        is_test: whether the label column may be missing.
    """
    if isinstance(row, dict) or source.has_header is None or source.is_custom:
        return False
    places = places_of(row)
    try:
        found = find_texts(places)
        has_label = is_test or LABEL.find(places) is not None
    except BadRowError:
        return False
    return has_label and found not in (None, (source.columns.text_a, source.columns.text_b))


def has_usual_names(columns: Columns) -> bool:
    """Returns whether files with the columns of a task may as well have other usual names."""
    if not isinstance(columns.text_a, str):
        return True
    names = [name for name in (columns.text_a, columns.text_b) if isinstance(name, str)]
    return find_texts(places_of(names)) is not None


def _columns_in_header(known: Columns, header: Row) -> Columns:
    """Returns the columns with usual names in a header; those without are where they are known."""
    places = places_of(header)

    def place(column: Column | None, field: Field) -> Column | None:
        named = field.find(places)
        return column if column is None or named is None else named

    text_a, text_b = known.text_a, known.text_b
    texts = find_texts(places)
    if texts is not None and (texts[1] is None) == (text_b is None):
        text_a, text_b = texts
    label = known.label if isinstance(known.label, tuple) else place(known.label, LABEL)
    guid = place(known.guid, GUID)
    used = [column for column in (text_a, text_b, label, guid) if column is not None]
    if len(set(used)) < len(used):
        raise BadRowError(
            f"the header {files.quote_all(header)} does not tell which columns have the texts and "
            "the label. Name them text_a, text_b and label"
        )
    return Columns(text_a, text_b, label, guid)


_TEXT_A = Field("text", TEXT_A, flag="text_a_column", takes_first=True)
_TEXT_B = Field("second text", TEXT_B, flag="text_b_column", takes_first=True)


def _custom_columns(asked: Columns, row: Row, has_header: bool, is_test: bool) -> Columns:
    """Returns the columns of a custom task; `asked` are those in the settings."""
    places: Mapping[str, Column] = {}
    if has_header or isinstance(row, dict):
        places = places_of(row)

    def place(field: Field, column: Column | None, is_optional: bool) -> Column | None:
        if isinstance(column, int):
            return column
        found = field.find(places, column)
        if found is None and not is_optional:
            raise BadRowError(f"{field.missing(row, column)}, or the index of the column, from 0")
        return found

    texts = None
    if asked.text_a is None and asked.text_b is None:  # those of a pair belong together
        try:
            texts = find_texts(places)
        except BadRowError as error:
            raise BadRowError(
                f"{error}. Pass --text_a_column, and --text_b_column for pairs"
            ) from None
    text_a, text_b = texts or (
        place(_TEXT_A, asked.text_a, is_optional=False),
        place(_TEXT_B, asked.text_b, is_optional=asked.text_b is None),
    )
    label: Column | tuple[Column, ...] | None
    if isinstance(asked.label, tuple):
        of_labels = [place(LABEL, name, is_test) for name in asked.label]
        label = tuple(column for column in of_labels if column is not None)
        label = label if len(label) == len(of_labels) else None
    else:
        label = place(LABEL, asked.label, is_optional=is_test)
    return Columns(text_a, text_b, label, GUID.find(places))

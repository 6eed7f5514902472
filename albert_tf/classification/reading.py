"""Reads the examples of classification and regression tasks; see `read_examples`."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
from collections.abc import Iterator, Sequence
from typing import Any, TypeGuard

from absl import logging

from albert_tf import files
from albert_tf.classification.tasks import ClassificationTask, Columns, Source
from albert_tf.finetuning import tables
from albert_tf.finetuning.examples import Examples
from albert_tf.finetuning.tables import BadRowError, Column, Row, RowReports, ShortRowError

# Default names of the columns of a custom task, in lower case; the first one found is used.
USUAL_NAMES = {
    "text_a": ("text_a", "sentence1", "sentence", "text"),
    "text_b": ("text_b", "sentence2"),
    "label": ("label",),
    "guid": ("guid", "id", "index"),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Example:
    """A text or a pair of texts, with its label.

    Attributes:
        guid: id of the example in submissions.
        text_a: the first or only text.
        text_b: the second text, or "".
        label: a label of the task, or a number in regression; None if unknown.
        line: line number in the file, starting at 1.
    """

    guid: str
    text_a: str
    text_b: str = ""
    label: str | None = None
    line: int = 0

    @property
    def is_labeled(self) -> bool:
        """Whether its label is known."""
        return self.label is not None

    @property
    def content(self) -> tuple[str | None, ...]:
        """All but the line, which a file with the same examples may place elsewhere."""
        return self.guid, self.text_a, self.text_b, self.label


def parse_label(value: Any, task: ClassificationTask) -> str:
    """Converts a cell or a JSON value to a label of the task.

    Raises:
        BadRowError: the value is not a label of the task or, in regression, not a finite number.
    """
    if isinstance(value, bool):
        value = str(value).lower()
    if not isinstance(value, (str, int, float)) or value == "":
        raise BadRowError(f"the label is {files.shown(value)}")
    label = tables.check_name(value, "the label")
    label = task.label_aliases.get(label, label)
    if task.is_regression:
        if not is_number(label):
            raise BadRowError(f"label {files.shown(label)}: expected a number")
        return label
    if not task.labels or label in task.labels or label in task.unlabeled:
        return label
    if label.lower() in task.labels:  # Google's program lower-cases labels along with texts
        return label.lower()
    raise BadRowError(f"unknown label {files.shown(label)}; expected {tables.few(task.labels)}")


def is_number(text: str) -> bool:
    """Returns whether `text` is a finite number."""
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


@dataclasses.dataclass
class _File:
    """A file that is being read, and the ids of its examples so far."""

    task: ClassificationTask
    split: str
    source: Source
    columns: Columns
    reports: RowReports
    header: Sequence[str] | None = None
    line_of_guid: dict[str, int] = dataclasses.field(default_factory=dict)

    def examples(self, numbered: Iterator[tuple[int, tuple[int, Any]]]) -> Iterator[Example]:
        """Yields the examples in rows given as (row index, (line number, row))."""
        for index, (line, row) in numbered:
            try:
                yield from self._examples_of_row(row, index, line)
            except (KeyError, TypeError, ValueError) as error:  # `Source.expand` raises others, too
                self._refuse(line, error)

    def _refuse(self, line: int, error: Exception) -> None:
        reason = f"no key {error}" if isinstance(error, KeyError) else str(error)
        is_skipped = self.task.skips_short_rows and isinstance(error, ShortRowError)
        if is_skipped and self.split != "test":
            self.reports.note(line, "too few columns, skipped as in Google's program")
        else:
            self.reports.bad(line, reason)

    def _examples_of_row(self, row: Row | BadRowError, index: int, line: int) -> Iterator[Example]:
        if isinstance(row, BadRowError):
            raise row
        # Only in custom tasks, because Google's program ignores further cells in its tasks.
        if self.source.is_custom and self.header and len(row) > len(self.header):
            expected = f"expected {len(self.header)} columns, as in the header, got {len(row)}"
            raise BadRowError(expected)
        if self.source.only and tables.cell(row, self.source.only[0]) != self.source.only[1]:
            return
        parts: Sequence[Row] = [row]
        if self.source.expand and isinstance(row, dict):
            parts = self.source.expand(row)
        for number, part in enumerate(parts):
            # Texts first, so that a row without its last column, the label, is reported as short.
            text_a, text_b = self._texts(part, line)
            label = self._label(part, line)
            if label in self.task.unlabeled:
                self.reports.note(line, f"label {label!r}, skipped")
                continue
            guid = self._guid(part, f"{self.split}-{index * len(parts) + number}", line)
            yield Example(guid, text_a, text_b, label, line)

    def _texts(self, row: Row, line: int) -> tuple[str, str]:
        columns = [c for c in (self.columns.text_a, self.columns.text_b) if c is not None]
        texts = [tables.text_cell(row, column) for column in columns]
        for text, column in zip(texts, columns, strict=True):
            if not text.strip():
                if self.split != "test" and not self.task.skips_short_rows:
                    raise BadRowError(f"the text in column {column!r} is empty")
                self.reports.note(line, f"the text in column {column!r} is empty, kept")
        return texts[0], "".join(texts[1:])

    def _label(self, row: Row, line: int) -> str | None:
        column = self.columns.label
        if column is None:
            return None
        try:
            label = parse_label(tables.cell(row, column), self.task)
            return None if self.split == "test" and label in self.task.unlabeled else label
        except BadRowError:
            if self.split != "test":
                raise
            # Test files have no labels, or placeholders.
            self.reports.note(line, "no known label, so the test split is not evaluated")
            return None

    def _guid(self, row: Row, default: str, line: int) -> str:
        column = self.columns.guid
        if column is None or (isinstance(row, dict) and column not in row):
            return default
        guid = " ".join(tables.check_text(str(tables.cell(row, column)), repr(column)).split())
        first = self.line_of_guid.setdefault(guid, line)
        if first != line:
            if self.split == "test":
                raise BadRowError(f"the id {files.shown(guid)} also occurs in line {first}")
            self.reports.note(line, "duplicate id")
        return guid


def _is_header(row: Row | BadRowError, source: Source) -> TypeGuard[Sequence[str]]:
    """Returns whether the first row of a file is a header."""
    if isinstance(row, (dict, BadRowError)):
        return False
    if source.has_header is not None:
        return source.has_header
    asked = (name for name in dataclasses.astuple(source.columns) if isinstance(name, str))
    names = {name.lower() for name in asked}.union(*USUAL_NAMES.values())
    return bool(tables.find_header(row, names))


def _refuse_example(
    header: Sequence[str], columns: Columns, task: ClassificationTask, path: str
) -> None:
    """Raises a ValueError if the header looks like an example: its label column has a label."""
    if columns.label is None or not (task.labels or task.is_regression):
        return
    try:
        parse_label(tables.cell(header, columns.label), task)
    except BadRowError:
        return
    raise ValueError(
        f"{path}, line 1: expected a header, but this looks like an example. It would be skipped "
        "as a header: add a header line before it."
    )


def _find_columns(
    asked: Columns, row: Row, header: Sequence[str] | None, path: str, is_test: bool
) -> Columns:
    """Returns the columns of a custom task, as indices or as keys of JSON objects.

    Args:
        asked: the columns in the settings.
        row: the first row.
        header: the first row if it is a header, else None.
        path: the file, for error messages.
        is_test: whether the label column may be missing.

    Raises:
        ValueError: a column does not exist.
    """
    places: dict[str, Column] = {}
    if isinstance(row, dict):
        places = dict(zip(tables.normalized(row), row, strict=True))
    elif header:
        places = {name: place for place, name in reversed([*enumerate(tables.normalized(header))])}
    columns: dict[str, Column | None] = {}
    for field, usual in USUAL_NAMES.items():
        column: Column | None = getattr(asked, field)
        if isinstance(column, int):
            columns[field] = column
            continue
        names = usual if column is None else (column,)
        columns[field] = next((places[n] for n in tables.normalized(names) if n in places), None)
        is_optional = is_test if field == "label" else column is None and field != "text_a"
        if columns[field] is None and not is_optional:
            raise ValueError(
                f"{path}, line 1: no column {' or '.join(map(repr, names))} among "
                f"{files.listed(row)}. Set --{field}_column to its name, or to its index, "
                "starting at 0."
            )
    return Columns(**columns)


def find_file(task: ClassificationTask, data_dir: str, split: str) -> tuple[Source, str]:
    """Returns the file of a split, in the task's folder in `data_dir` or in `data_dir` itself.

    Raises:
        FileNotFoundError: the file does not exist; the message says where it was looked for.
        ValueError: the task does not have this split.
    """
    sources = task.splits.get(split, ())
    if not sources:
        raise ValueError(f"task {task.name} has no {split} data, only {', '.join(task.splits)}")
    folders = (os.path.join(data_dir, task.folder), data_dir) if task.folder else (data_dir,)
    tried = [(source, os.path.join(f, source.file)) for source in sources for f in folders]
    for source, path in tried:
        if files.is_file(path):
            return source, path
    raise FileNotFoundError(
        f"no {split} data of {task.name}: none of {', '.join(path for _, path in tried)} exists. "
        f"--data_dir must be the folder that contains {task.folder or 'the files'}."
    )


def read_examples(
    task: ClassificationTask,
    data_dir: str,
    split: str,
    max_bad_rows: int = 0,
    is_logged: bool = True,
    quoting: bool = False,
) -> Examples[Example]:
    """Reads the examples of a split.

    Args:
        task: a task of the table, or a custom task.
        data_dir: parent of the task's folder, or that folder.
        split: "train", "dev" or "test".
        max_bad_rows: number of bad rows that may be skipped in train and dev: rows with too few
            columns (in custom tasks also too many), an unknown label, an empty text, invalid JSON,
            or a carriage return inside.
        is_logged: whether remarks about rows are logged.
        quoting: see `tables.read_rows`.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: there are too many bad rows, a bad row in a test file, a wrong header, or no
            example; the message names the file and the line.
    """
    source, path = find_file(task, data_dir, split)
    reports = RowReports(path, max_bad_rows, needs_all=split == "test")
    if is_logged and not quoting and tables.looks_quoted(path):
        logging.warning(
            "%s has cells in quotation marks, as written by pandas and Excel. They are read as "
            "text; pass --quoting to parse them",
            path,
        )
    numbered = enumerate(tables.read_rows(path, quoting))
    first = next(numbered, None)
    if first is None:
        raise ValueError(f"{path}: the file is empty")
    _, (line, row) = first
    columns = source.columns
    header = row if _is_header(row, source) else None
    if source.is_custom:
        if isinstance(row, BadRowError):
            raise ValueError(f"{path}, line {line}: {row}")
        columns = _find_columns(columns, row, header, path, split == "test")
        if is_logged:
            logging.info("%s: reading the columns %s", path, columns)
    if header:
        _refuse_example(header, columns, task, path)
        rows: Iterator[tuple[int, tuple[int, Row | BadRowError]]] = numbered
    else:
        rows = itertools.chain([first], numbered)
    examples = list(_File(task, split, source, columns, reports, header).examples(rows))
    if is_logged:
        reports.log()
    if not examples:
        raise ValueError(f"{path}: contains no usable example")
    return Examples(path, split, examples, task)

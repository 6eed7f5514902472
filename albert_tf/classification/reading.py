"""Reads the examples of classification and regression tasks; see `read_examples`."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeGuard, cast

from absl import logging

from albert_tf import files
from albert_tf.classification.tasks import ClassificationTask, Columns, Source
from albert_tf.finetuning import tables
from albert_tf.finetuning.examples import Examples
from albert_tf.finetuning.tables import BadRowError, Column, Row, RowReports, ShortRowError
from albert_tf.tokenization import find_words

# Default names of the columns of a custom task, in lower case; the first one found is used.
USUAL_NAMES = {
    "text_a": ("text_a", "sentence1", "sentence", "text"),
    "text_b": ("text_b", "sentence2"),
    "label": ("label", "labels"),
    "guid": ("guid", "id", "index", "qid"),
}


# Cells of a column that belongs to a label, in lower case.
_TRUE = {"1", "1.0", "true"}
_FALSE = {"0", "0.0", "false"}


@dataclasses.dataclass(frozen=True, slots=True)
class Example:
    """A text or a pair of texts, with its label.

    Attributes:
        guid: id of the example in submissions.
        text_a: the first or only text.
        text_b: the second text, or "".
        label: a label of the task, a number in regression, or the labels in a multi-label task;
            None if unknown.
        line: line number in the file, starting at 1.
    """

    guid: str
    text_a: str
    text_b: str = ""
    label: str | tuple[str, ...] | None = None
    line: int = 0

    @property
    def is_labeled(self) -> bool:
        """Whether its label is known."""
        return self.label is not None

    @property
    def labels(self) -> tuple[str, ...]:
        """The known labels."""
        return self.label if isinstance(self.label, tuple) else tuple(filter(None, [self.label]))

    @property
    def content(self) -> tuple[Any, ...]:
        """All but the line, which a file with the same examples may place elsewhere."""
        return self.guid, self.text_a, self.text_b, self.label


def parse_label(value: Any, task: ClassificationTask) -> str:
    """Converts a cell or a JSON value to a label of the task.

    Raises:
        BadRowError: the value is not a label of the task or, in regression, not a finite number.
    """
    if isinstance(value, bool):
        value = str(value).lower()
    if isinstance(value, list) and not task.is_multi_label:
        raise BadRowError(
            f"the label is {files.quote(value)}. If texts have any number of labels, pass "
            "--is_multi_label"
        )
    if not isinstance(value, (str, int, float)) or value == "":
        raise BadRowError(f"the label is {files.quote(value)}")
    label = tables.check_name(value, "the label")
    label = task.label_aliases.get(label, label)
    if task.is_regression:
        if not is_number(label):
            raise BadRowError(f"label {files.quote(label)}: expected a number")
        return label
    if not task.labels or label in task.labels or label in task.unlabeled:
        return label
    if label.lower() in task.labels:  # Google's program lower-cases labels along with texts
        return label.lower()
    raise BadRowError(
        f"unknown label {files.quote(label)}; expected {tables.abbreviate(task.labels)}"
    )


def parse_labels(value: Any, task: ClassificationTask) -> tuple[str, ...]:
    """Converts a JSON list to labels of a multi-label task.

    Raises:
        BadRowError: the value is not a list of labels of the task, or one occurs twice.
    """
    if not isinstance(value, list):
        raise BadRowError(
            f"the labels are {files.quote(value)}, expected a list of labels in a line of JSON. If "
            "each label has a column with 0 or 1, name all of them in --label_column"
        )
    labels = tuple(parse_label(label, task) for label in value)
    if len(set(labels)) < len(labels):
        raise BadRowError(
            f"the labels {files.quote(value)} have one of them twice: expected the names of the "
            "labels, not 0 or 1 for each"
        )
    return labels


def _is_true(value: Any, column: Column) -> bool:
    """Returns whether the cell of a label is 1."""
    text = str(value).strip().lower()
    if text not in _TRUE | _FALSE:
        raise BadRowError(f"column {column!r} is {files.quote(value)}, expected 0 or 1")
    return text in _TRUE


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
            if label is not None and label in self.task.unlabeled:
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

    def _label(self, row: Row, line: int) -> str | tuple[str, ...] | None:
        column = self.columns.label
        if column is None:
            return None
        try:
            if isinstance(column, tuple):
                return self._labels_of_columns(row, column)
            value = tables.cell(row, column)
            if self.task.is_multi_label:
                return parse_labels(value, self.task)
            label = parse_label(value, self.task)
            return None if self.split == "test" and label in self.task.unlabeled else label
        except BadRowError:
            if self.split != "test":
                raise
            # Test files have no labels, or placeholders.
            self.reports.note(line, "no known label, so the test split is not evaluated")
            return None

    def _labels_of_columns(self, row: Row, columns: Sequence[Column]) -> tuple[str, ...]:
        names = cast(Sequence[str], self.source.columns.label)
        cells = [tables.cell(row, column) for column in columns]
        pairs = zip(names, cells, strict=True)
        return tuple(parse_label(name, self.task) for name, cell in pairs if _is_true(cell, name))

    def _guid(self, row: Row, default: str, line: int) -> str:
        column = self.columns.guid
        if column is None or (isinstance(row, dict) and column not in row):
            return default
        guid = " ".join(tables.check_text(str(tables.cell(row, column)), repr(column)).split())
        first = self.line_of_guid.setdefault(guid, line)
        if first != line:
            if self.split == "test":
                raise BadRowError(f"the id {files.quote(guid)} also occurs in line {first}")
            self.reports.note(line, "duplicate id")
        return guid


def _is_header(row: Row | BadRowError, source: Source) -> TypeGuard[Sequence[str]]:
    """Returns whether the first row of a file is a header."""
    if isinstance(row, (dict, BadRowError)):
        return False
    if source.has_header is not None:
        return source.has_header
    columns = dataclasses.astuple(source.columns)
    asked = itertools.chain.from_iterable(x if isinstance(x, tuple) else [x] for x in columns)
    names = {name.lower() for name in asked if isinstance(name, str)}.union(*USUAL_NAMES.values())
    return bool(tables.find_header(row, names))


def _refuse_example(
    header: Sequence[str], columns: Columns, task: ClassificationTask, path: str
) -> None:
    """Raises a ValueError if the header looks like an example: its label column has a label."""
    if isinstance(columns.label, tuple) or columns.label is None:
        return
    if not (task.labels or task.is_regression):
        return
    try:
        parse_label(tables.cell(header, columns.label), task)
    except BadRowError:
        return
    raise ValueError(
        f"{path}, line 1: expected a header, but this looks like an example. It would be skipped "
        "as a header: add a header line before it."
    )


def _columns_of(
    source: Source,
    path: str,
    line: int,
    row: Row | BadRowError,
    header: Sequence[str] | None,
    is_test: bool,
) -> Columns:
    """Returns the columns of a file, given its first row and that row again if it is a header.

    Raises:
        ValueError: a column of a custom task does not exist, or the header is ambiguous.
    """
    if not source.is_custom:
        by_name = header is not None and source.has_header is None
        return _columns_of_header(source.columns, header, path) if by_name else source.columns
    if isinstance(row, BadRowError):
        raise ValueError(f"{path}, line {line}: {row}")
    return _find_columns(source.columns, row, header, path, is_test)


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
    columns: dict[str, Any] = {}
    for field, usual in USUAL_NAMES.items():
        column: Column | tuple[Column, ...] | None = getattr(asked, field)
        wanted = column if isinstance(column, tuple) else (column,)
        found = [_place_of(usual if name is None else (name,), places) for name in wanted]
        is_optional = is_test if field == "label" else column is None and field != "text_a"
        if None in found and not is_optional:
            name = wanted[found.index(None)]
            names = usual if name is None else (name,)
            raise ValueError(
                f"{path}, line 1: no column {' or '.join(map(repr, names))} among "
                f"{files.quote_all(row)}. Set --{field}_column to its name, or to its index, "
                "starting at 0."
            )
        is_one = not isinstance(column, tuple)
        columns[field] = found[0] if is_one else None if None in found else tuple(found)
    return Columns(**columns)


def _place_of(names: Sequence[Column], places: Mapping[str, Column]) -> Column | None:
    """Returns where the first existing column of some names is, or an index itself."""
    if isinstance(names[0], int):
        return names[0]
    return next((places[n] for n in tables.normalized(map(str, names)) if n in places), None)


def _columns_of_header(columns: Columns, header: Sequence[str] | None, path: str) -> Columns:
    """Returns the columns of a task whose files exist with several headers and without one.

    Columns that the header names as usual are where it says, others where the task has them.

    Raises:
        ValueError: two columns would be the same.
    """
    header = header or ()
    places = {name: place for place, name in reversed([*enumerate(tables.normalized(header))])}
    found: dict[str, Any] = {}
    for field, usual in USUAL_NAMES.items():
        place, default = _place_of(usual, places), getattr(columns, field)
        found[field] = default if place is None or default is None else place
    used = [place for place in found.values() if place is not None]
    if len(set(used)) < len(used):
        raise ValueError(
            f"{path}, line 1: the header {files.quote_all(header)} does not tell which columns "
            "have the texts and the label. Name them text_a, text_b and label"
        )
    return Columns(**found)


def _warn_of_unread_text(
    path: str, asked: Columns, columns: Columns, header: Sequence[str] | None, row: Any
) -> None:
    """Logs a warning if a single text is read and another column of the row has text, too.

    Args:
        path: the file.
        asked: the columns in the settings; whoever names a text knows the columns.
        columns: the columns that are read.
        header: the header, or None.
        row: the first row, or an error.
    """
    is_asked = any(column is not None for column in (asked.text_a, asked.text_b))
    if isinstance(row, BadRowError) or columns.text_b is not None or is_asked:
        return
    named = row if isinstance(row, dict) else dict(enumerate(row))
    read = {columns.text_a, columns.guid}
    read |= set(columns.label) if isinstance(columns.label, tuple) else {columns.label}
    unread = [
        name if header is None or not isinstance(name, int) else header[name]
        for name in unread_texts(named, read)
    ]
    if unread:
        logging.warning(
            "%s: only one column is read as text, and there is text in %s, too. For pairs of "
            "texts, pass --text_b_column=%s",
            path,
            files.quote_all(unread),
            unread[0],
        )


def unread_texts(row: Mapping[Any, Any], read: Collection[Any]) -> list[Any]:
    """Returns the columns of a row that have several words and are not among those in `read`."""
    return [
        name
        for name, cell in row.items()
        if name not in read and isinstance(cell, str) and len(find_words(cell)) > 1
    ]


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
    is_logged: bool = True,
    quoting: bool = False,
) -> Examples[Example]:
    """Reads the examples of a split.

    Args:
        task: a task of the table, or a custom task.
        data_dir: parent of the task's folder, or that folder.
        split: "train", "dev" or "test".
        is_logged: whether remarks about rows are logged.
        quoting: see `tables.read_rows`.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: there is a wrong header, no example, or a bad row: with too few columns (in
            custom tasks also too many), an unknown label, an empty text, invalid JSON, or a
            carriage return inside. The message names the file and the lines.
    """
    source, path = find_file(task, data_dir, split)
    reports = RowReports(path)
    numbered = enumerate(tables.read_rows(path, quoting))
    first = next(numbered, None)
    if first is None:
        raise ValueError(f"{path}: the file is empty")
    _, (line, row) = first
    header = row if _is_header(row, source) else None
    columns = _columns_of(source, path, line, row, header, split == "test")
    if header:
        _refuse_example(header, columns, task, path)
    head = [*itertools.islice(numbered, 1)] if header else [first]
    if source.is_custom and is_logged:
        logging.info("%s: reading the columns %s", path, columns)
        for _, (_, row) in head:
            _warn_of_unread_text(path, source.columns, columns, header, row)
    rows = itertools.chain(head, numbered)
    examples = list(_File(task, split, source, columns, reports, header).examples(rows))
    reports.check()
    if is_logged:
        reports.log()
    if not examples:
        raise ValueError(f"{path}: contains no usable example")
    return Examples(path, split, examples, task)

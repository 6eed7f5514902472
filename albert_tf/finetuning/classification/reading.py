"""Reads the examples of classification and regression tasks; see `read_data`."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
from collections.abc import Iterable, Sequence
from typing import Any

from absl import logging

from albert_tf import files
from albert_tf.checkpoints import huggingface, run_record
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.run_record import CLASSIFICATION, MULTI_LABEL, REGRESSION, RunRecord
from albert_tf.finetuning import rows
from albert_tf.finetuning.classification import Settings, tasks
from albert_tf.finetuning.classification.tasks import (
    ACCURACY,
    CUSTOM_TASK,
    MICRO_F1,
    ClassificationTask,
    Columns,
    Source,
)
from albert_tf.finetuning.rows import (
    TEXT_A,
    TEXT_B,
    BadRowError,
    Column,
    Examples,
    Row,
    ShortRowError,
)

# Default names of the columns of a custom task, in lower case; the first one found is used.
USUAL_NAMES = {
    "text_a": TEXT_A,
    "text_b": TEXT_B,
    "label": ("label", "labels"),
    "guid": ("guid", "id", "index", "qid"),
}
ALL_NAMES = frozenset().union(*USUAL_NAMES.values())

# Cells of a column that belongs to a label, in lower case.
_TRUE = {"1", "1.0", "true"}
_FALSE = {"0", "0.0", "false"}

Label = str | tuple[str, ...] | None


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
    label: Label = None
    line: int = dataclasses.field(default=0, repr=False)

    @property
    def labels(self) -> tuple[str, ...]:
        """The known labels."""
        return self.label if isinstance(self.label, tuple) else tuple(filter(None, [self.label]))


# Labels


def parse_label(value: Any, task: ClassificationTask) -> str:
    """Converts a cell or a JSON value to a label of the task.

    Raises:
        BadRowError: the value is not a label of the task or, in regression, not a finite number.
    """
    if isinstance(value, bool):
        value = str(value).lower()
    if not isinstance(value, (str, int, float)) or value == "":
        raise BadRowError(
            f"the label is {files.quote(value)}, expected text or a number; for lists of labels, "
            "pass --is_multi_label"
        )
    label = rows.check_name(value, "the label")
    label = task.label_aliases.get(label, label)
    if task.is_regression:
        if not _is_number(label):
            raise BadRowError(f"label {files.quote(label)}: expected a number")
        return label
    if not task.labels or label in task.labels or label in task.unlabeled:
        return label
    if label.lower() in task.labels:  # Google's program lower-cases labels along with texts
        return label.lower()
    raise BadRowError(
        f"unknown label {files.quote(label)}; expected {rows.abbreviate(task.labels)}"
    )


def _parse_labels(value: Any, task: ClassificationTask) -> tuple[str, ...]:
    """Converts a JSON list to labels of a multi-label task.

    Raises:
        BadRowError: the value is not a list of labels of the task, or one occurs twice.
    """
    labels = [parse_label(label, task) for label in value] if isinstance(value, list) else None
    if labels is None or len(set(labels)) < len(labels):
        raise BadRowError(
            f"the labels are {files.quote(value)}, expected a list of different labels in a line "
            "of JSON. If each label has a column with 0 or 1, name all of them in --label_column"
        )
    return tuple(labels)


def _is_true(value: Any, column: Column) -> bool:
    """Returns whether the cell of a label is 1."""
    text = str(value).strip().lower()
    if text not in _TRUE | _FALSE:
        raise BadRowError(f"column {column!r} is {files.quote(value)}, expected 0 or 1")
    return text in _TRUE


def _is_number(text: str) -> bool:
    """Returns whether `text` is a finite number."""
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


# Rows


@dataclasses.dataclass
class _Parser:
    """Converts the rows of a file to examples.

    Attributes:
        task: the task.
        split: the split.
        source: the file and its columns in the settings.
        columns: the columns as indices, or as keys of JSON objects.
        width: the number of columns in the header, if rows may not have more.
        num_rows: the number of rows before this one, including the header.
        num_skipped: the number of rows that Google's programs skip.
    """

    task: ClassificationTask
    split: str
    source: Source
    columns: Columns
    width: int | None
    num_rows: int
    num_skipped: int = 0

    def parse(self, row: Row, line: int) -> list[Example]:
        """Returns the examples in the next row."""
        index = self.num_rows
        self.num_rows += 1
        if self.width is not None and len(row) > self.width:
            raise BadRowError(f"expected {self.width} columns, as in the header, got {len(row)}")
        try:
            if self.source.only and rows.cell(row, self.source.only[0]) != self.source.only[1]:
                return []
            parts = self._expand(row)
            examples = [
                self._example(part, f"{self.split}-{index * len(parts) + number}", line)
                for number, part in enumerate(parts)
            ]
        except ShortRowError:
            if not self.task.skips_short_rows or self.split == "test":
                raise
            self.num_skipped += 1
            return []
        labeled = [x for x in examples if x.label is None or x.label not in self.task.unlabeled]
        self.num_skipped += len(examples) - len(labeled)
        return labeled

    def _expand(self, row: Row) -> Sequence[Row]:
        """Returns the rows that a row of the file stands for."""
        if self.source.expand is None or not isinstance(row, dict):
            return [row]
        try:
            return self.source.expand(row)
        except KeyError as error:
            raise BadRowError(f"no key {error}") from None
        except (TypeError, ValueError) as error:
            raise BadRowError(str(error)) from None

    def _example(self, row: Row, default_guid: str, line: int) -> Example:
        # Texts first, so that a row without its last column, the label, is reported as short.
        columns = [c for c in (self.columns.text_a, self.columns.text_b) if c is not None]
        texts = [rows.text_cell(row, column) for column in columns]
        for text, column in zip(texts, columns, strict=True):
            if not (text.strip() or self.split == "test" or self.task.skips_short_rows):
                raise BadRowError(f"the text in column {column!r} is empty")
        label = self._label(row)
        return Example(self._guid(row, default_guid), texts[0], "".join(texts[1:]), label, line)

    def _label(self, row: Row) -> Label:
        if self.columns.label is None:
            return None
        try:
            label = self._known_label(row, self.columns.label)
        except BadRowError:
            if self.split == "test":  # without labels, or with placeholders
                return None
            raise
        return None if self.split == "test" and label in self.task.unlabeled else label

    def _known_label(self, row: Row, column: Column | tuple[Column, ...]) -> Label:
        if not isinstance(column, tuple):
            parse = _parse_labels if self.task.is_multi_label else parse_label
            return parse(rows.cell(row, column), self.task)
        names = _as_tuple(self.source.columns.label)
        cells = [rows.cell(row, place) for place in column]
        pairs = zip(names, cells, strict=True)
        return tuple(parse_label(name, self.task) for name, cell in pairs if _is_true(cell, name))

    def _guid(self, row: Row, default: str) -> str:
        column = self.columns.guid
        if column is None or (isinstance(row, dict) and column not in row):
            return default
        return " ".join(rows.check_text(str(rows.cell(row, column)), repr(column)).split())


# Columns


def _is_header(row: Row, source: Source) -> bool:
    """Returns whether the first row of a file is a header."""
    if isinstance(row, dict):
        return False
    if source.has_header is not None:
        return source.has_header
    asked = [name for x in dataclasses.astuple(source.columns) for name in _as_tuple(x)]
    names = {name.lower() for name in asked if isinstance(name, str)}
    return bool(rows.find_header(row, names | ALL_NAMES))


def _refuse_example(header: Row, column: Any, task: ClassificationTask) -> None:
    """Raises BadRowError if the header has a label of the task in the column of the labels."""
    if isinstance(column, tuple) or column is None or not (task.labels or task.is_regression):
        return
    try:
        parse_label(rows.cell(header, column), task)
    except BadRowError:
        return
    raise BadRowError(
        "expected a header, but this looks like an example, which would be left out. Add a header "
        "line before it"
    )


def _find_columns(source: Source, row: Row, is_header: bool, is_test: bool) -> Columns:
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
    for name, key in zip(rows.normalized(names), keys, strict=False):
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
        wanted = [usual] if asked is None else [(name,) for name in _as_tuple(asked)]
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


def _as_tuple(columns: Any) -> tuple[Any, ...]:
    """Returns a column or a tuple of columns as a tuple; () for None."""
    return columns if isinstance(columns, tuple) else tuple(c for c in [columns] if c is not None)


def _place_of(names: Sequence[Column], places: dict[str, Column]) -> Column | None:
    """Returns where the first existing column of some names is, or an index itself."""
    if isinstance(names[0], int):
        return names[0]
    return next((places[n] for n in rows.normalized(map(str, names)) if n in places), None)


# Files


def _find_file(task: ClassificationTask, data_dir: str, split: str) -> tuple[Source, str]:
    """Returns the file of a split, in the task's folder in `data_dir` or in `data_dir` itself.

    Raises:
        FileNotFoundError: the file does not exist; the message says where it was looked for.
        ValueError: the task does not have this split, or a custom task has two files.
    """
    sources = task.splits.get(split, ())
    if not sources:
        raise ValueError(f"task {task.name} has no {split} data, only {', '.join(task.splits)}")
    folders = (os.path.join(data_dir, task.folder), data_dir) if task.folder else (data_dir,)
    tried = [(source, os.path.join(f, source.file)) for source in sources for f in folders]
    existing = [(source, path) for source, path in tried if files.is_file(path)]
    if not existing:
        raise FileNotFoundError(
            f"no {split} data of {task.name}: none of {', '.join(path for _, path in tried)} "
            f"exists. --data_dir must be the folder that contains {task.folder or 'the files'}."
        )
    if sources[0].is_custom and len(existing) > 1:
        names = " and ".join(source.file for source, _ in existing)
        raise ValueError(f"{data_dir} contains {names}: keep only one of them")
    return existing[0]


def read_examples(
    task: ClassificationTask, data_dir: str, split: str, quoting: bool = False
) -> Examples[Example]:
    """Reads the examples of a split.

    Args:
        task: a task of the table, or a custom task.
        data_dir: parent of the task's folder, or that folder.
        split: "train", "dev" or "test".
        quoting: see `rows.read`.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: there is no example, or a bad row: with too few columns (in custom tasks also
            too many), an unknown label, an empty text, or invalid JSON. The message names the file
            and the lines.
    """
    source, path = _find_file(task, data_dir, split)
    numbered = rows.read(path, quoting=quoting)
    first = next(numbered, None)
    if first is None:
        raise ValueError(f"{path}: the file is empty")
    line, row = first
    try:
        if isinstance(row, BadRowError):
            raise row
        is_header = _is_header(row, source)
        columns = _find_columns(source, row, is_header, split == "test")
        if is_header:
            _refuse_example(row, columns.label, task)
    except BadRowError as error:
        raise ValueError(f"{path}, line {line}: {error}") from None
    if source.is_custom:
        logging.info("%s: the first row is %s; reading %s", path, files.quote_all(row), columns)
    # Only in custom tasks, because Google's program ignores further cells in its tasks.
    width = len(row) if source.is_custom and is_header else None
    parser = _Parser(task, split, source, columns, width, num_rows=int(is_header))
    remaining = numbered if is_header else itertools.chain([first], numbered)
    examples = [x for _, found in rows.parse_rows(path, remaining, parser.parse) for x in found]
    if parser.num_skipped:
        logging.warning(
            "%s: %d rows are skipped, as in Google's program: too few columns, or no label",
            path,
            parser.num_skipped,
        )
    return Examples(path, examples, all(example.label is not None for example in examples))


# Custom tasks
#
# A custom task is a folder with train, dev and test files: tab-separated, comma-separated or JSON
# lines. Columns are found by name or index, and labels are read from the training data.

EXTENSIONS = (".tsv", ".csv", ".jsonl", ".json", ".txt")
_CLASSIFIERS = ("", CLASSIFICATION, MULTI_LABEL, REGRESSION)  # "": not recorded


def _labels_of(train: Examples[Example]) -> tuple[str, ...]:
    """Returns the labels of training data, in numerical order if they are integers, else sorted.

    Raises:
        ValueError: there are fewer than two labels or too many, or labels are fractions, which
            means a regression task.
    """
    lines = {label: row.line for row in reversed(train.examples) for label in row.labels}
    labels = sorted(lines)
    rows.check_number_of_labels(labels, train.path)
    fraction = next((label for label in labels if _is_number(label) and float(label) % 1), None)
    if fraction is not None:
        raise ValueError(
            f"{train.path}, line {lines[fraction]}: label {files.quote(fraction)} is a fraction. "
            "To predict numbers, pass --is_regression; to predict one of these classes, list all "
            "of them in --labels. Is --label_column right?"
        )
    if all(label.removeprefix("-").isdecimal() for label in labels):
        labels.sort(key=int)
    return tuple(labels)


def _parse_column(text: str | None) -> Column | None:
    if not text:
        return None
    return int(text) if text.removeprefix("-").isdecimal() else text


def _parse_label_column(settings: Settings) -> Column | tuple[str, ...] | None:
    """Returns the label column, or the columns of the labels of a multi-label task.

    Raises:
        ValueError: columns of labels are given by number, without names.
    """
    given = settings.label_column or ""
    if not settings.is_multi_label or "," not in given:
        return _parse_column(given)
    names = tuple(name.strip() for name in given.split(",") if name.strip())
    if not all(isinstance(_parse_column(name), str) for name in names):
        raise ValueError(
            f"--label_column={given}: labels are named by the columns' names, not by numbers. Add "
            "a header line to the files"
        )
    return names


def _custom_task(settings: Settings, labels: tuple[str, ...]) -> ClassificationTask:
    """Returns a custom task, without labels if only the training data tells them."""
    columns = Columns(
        _parse_column(settings.text_a_column),
        _parse_column(settings.text_b_column),
        _parse_label_column(settings),
    )
    named = columns.label if isinstance(columns.label, tuple) else ()
    if named and labels and set(named) != set(labels):
        raise ValueError(
            f"--label_column={settings.label_column}: expected the columns of the labels "
            f"{', '.join(labels)}"
        )
    is_unnamed = huggingface.are_default(list(labels))
    aliases = {str(number): label for number, label in enumerate(labels) if is_unnamed}
    metrics: tuple[str, ...] = (ACCURACY, "macro_f1")
    selection_metric = ACCURACY
    if settings.is_regression:
        metrics = ("MSE", "pearson", "spearman")
        selection_metric = "pearson"
    elif settings.is_multi_label:
        metrics = ()  # all of `multi_label_metrics`
        selection_metric = MICRO_F1
    splits = {
        split: tuple(
            Source(split + extension, columns, settings.has_header, is_custom=True)
            for extension in EXTENSIONS
        )
        for split in ("train", "dev", "test")
    }
    return ClassificationTask(
        CUSTOM_TASK,
        "",
        splits,
        labels or named,
        settings.is_regression,
        metrics,
        selection_metric,
        label_aliases=aliases,
        is_multi_label=settings.is_multi_label,
    )


def _find_task(settings: Settings, trained: RunFolder | None) -> ClassificationTask:
    """Returns the task of the settings, without labels if only the training data tells them."""
    name = settings.task_name
    if name.strip().lower() != CUSTOM_TASK:
        for flag in ("is_regression", "is_multi_label"):
            if getattr(settings, flag):
                raise ValueError(f"--{flag} is for --task_name={CUSTOM_TASK}, not for {name}")
        return tasks.find_task(name)
    if settings.is_regression and settings.is_multi_label:
        raise ValueError("--is_regression and --is_multi_label exclude each other: pass one")
    labels = settings.labels
    if not labels and trained is not None and not settings.do_train:
        labels = recorded_labels(trained.record)
    for label in labels:
        rows.check_name(label, f"a label of --labels or {run_record.FILE}")
    return _custom_task(settings, labels)


def read_data(
    settings: Settings, trained: RunFolder | None = None
) -> tuple[ClassificationTask, dict[str, Examples[Example]]]:
    """Returns the task with the name `--task_name`, and the examples of each split.

    The labels of a custom task are those of the settings, or else those of the trained model unless
    it is trained now, or else those of the training data.

    Args:
        settings: the task, its data and, for a custom task, its columns and labels. The files
            train, dev and test of a custom task end in one of EXTENSIONS.
        trained: the folder of a trained model; None if there is none.

    Raises:
        FileNotFoundError: there is no file of a split, or no training data to read the labels from.
        ValueError: the task does not exist, or a file is invalid; see `read_examples`.
    """
    task = _find_task(settings, trained)
    folder, quoting = settings.data_dir, settings.quoting
    data = {}
    if not (task.labels or task.is_regression):
        try:
            data["train"] = read_examples(task, folder, "train", quoting)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{error} It is needed for the labels.") from None
        task = dataclasses.replace(task, labels=_labels_of(data["train"]))
    for split in settings.splits:
        if split not in data:
            data[split] = read_examples(task, folder, split, quoting)
    return task, data


def recorded_labels(record: RunRecord) -> tuple[str, ...]:
    """Returns the labels that a classifier was trained with; () if none are recorded."""
    return record.labels if record.task_name in _CLASSIFIERS else ()

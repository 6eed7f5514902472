"""Converts the values in the label columns of a file to labels of a classification task."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Sequence

from absl import logging

from albert_tf import files
from albert_tf.checkpoints import tasks
from albert_tf.finetuning.classification.tasks import CUSTOM_TASK, ClassificationTask
from albert_tf.finetuning.examples import Unlabeled, is_none
from albert_tf.finetuning.rows import (
    BadRowError,
    Column,
    Row,
    ShortRowError,
    abbreviate,
    cell,
    check_name,
)
from albert_tf.tables import LabelNames, Table

# Cells of a column that belongs to a label, in lower case.
_TRUE = {"1", "1.0", "true"}
_FALSE = {"0", "0.0", "false"}

Label = str | tuple[str, ...] | None


def parse_label(value: object, task: ClassificationTask) -> str:
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
    label = check_name(value, "the label")
    label = sys.intern(task.label_aliases.get(label, label))  # held once for all examples
    if task.is_regression:
        if not is_number(label):
            raise BadRowError(f"label {files.quote(label)}: expected a number")
        return label
    if label in task.labels:
        return label
    if not task.labels:
        if label.startswith("[") and label.endswith("]"):
            raise BadRowError(
                f"label {files.quote(label)} seems to be a list: pass --is_multi_label for any "
                "number of labels, in JSON lines, Parquet or Arrow; or list all labels in --labels"
            )
        return label
    same = [known for known in task.labels if known.lower() == label.lower()]
    if len(same) == 1:  # Google's program lower-cases labels along with texts
        return same[0]
    if isinstance(value, float) and value.is_integer():  # pandas has such a column for null
        return parse_label(int(value), task)
    raise BadRowError(
        f"unknown label {files.quote(label)}; expected {abbreviate(task.labels)}"
        f"{_about_ids(label, task)}"
    )


def _about_ids(label: str, task: ClassificationTask) -> str:
    """Returns what to do if a label seems to be the id of one; or ""."""
    if not label.isdecimal() or int(label) >= len(task.labels):
        return ""
    return (
        ". If it is an id, the order of the ids is not known: write the names of the labels, or "
        "read Parquet or Arrow files that have them"
    )


def is_unknown(value: object, task: ClassificationTask) -> bool:
    """Returns whether a value stands for a label that is not known.

    What the task has as a label is known, even "-1"; and so is it before the labels are known.
    """
    if not is_none(value):
        return False
    text = "" if value is None or value != value else str(value).strip()
    if task.is_regression:
        return text in ("", "-") or task.name != CUSTOM_TASK
    return not text or (bool(task.labels) and text not in task.labels)


def parse_labels(value: object, task: ClassificationTask) -> tuple[str, ...]:
    """Converts a JSON list to labels of a multi-label task.

    Raises:
        BadRowError: the value is not a list of labels of the task, or one occurs twice.
    """
    value = _parse_list(value)
    labels = [parse_label(label, task) for label in value] if isinstance(value, list) else None
    if labels is None or len(set(labels)) < len(labels):
        raise BadRowError(
            f"the labels are {files.quote(value)}, expected a list of different labels in a line "
            "of JSON. If each label has a column with 0 or 1, name all of them in --label_column"
        )
    return tuple(labels)


def _parse_list(value: object) -> object:
    """Returns the list in a cell with JSON; other values unchanged."""
    if not isinstance(value, str) or not value.startswith("["):
        return value
    try:
        return files.load_json(value)
    except ValueError:
        return value


def is_true(value: object, column: Column) -> bool:
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


_NUMBER = re.compile(r"-?[0-9]{1,9}")


class ClassNames:
    """The names of the labels of a column, as labels of a task.

    Names that are labels of the task are these labels. Other names say what "0", "1" and so on
    mean, if these are the labels of the task, and there are as many: "acceptable" of CoLA is "1".

    Args:
        names: the names, in the order of the ids.
        task: the task.
        path: the file that has the names, for messages.

    Raises:
        ValueError: the names are neither.
    """

    def __init__(self, names: LabelNames, task: ClassificationTask, path: str) -> None:
        self._names = names
        self._task = task
        self._are_positions = False
        labels = task.labels
        if task.is_regression or any(_is_label(name, task) for name in names.names):
            return
        if len(labels) != len(names.names) or not _are_ids(labels):
            raise ValueError(
                f"{path}: the labels are named {files.quote_all(names.names)}; expected those of "
                f"the task, {files.quote_all(labels)}"
            )
        self._are_positions = True

    def decode(self, value: files.Json) -> files.Json:
        """Returns the labels, or what else can be parsed, for the ids in a cell.

        Raises:
            BadRowError: an id has no name.
        """
        if self._task.is_regression:
            return value
        if isinstance(value, list):
            return [self.decode(item) for item in value]
        if isinstance(value, str):  # in files of cells, ids are text as well
            value = self._id_of(value)
        if not isinstance(value, int) or isinstance(value, bool) or value == -1:
            return None if value == -1 else value
        if not 0 <= value < len(self._names.names):
            raise BadRowError(f"label {value}: expected an id below {len(self._names.names)}")
        return self._task.labels[value] if self._are_positions else self._names.names[value]

    def _id_of(self, text: str) -> int | str:
        """Returns the id that a name, or else a number, means; other texts unchanged."""
        if text in self._names.names:
            return self._names.names.index(text)
        return int(text) if _NUMBER.fullmatch(text.strip()) else text


def _is_label(name: str, task: ClassificationTask) -> bool:
    try:
        parse_label(name, task)
    except BadRowError:
        return False
    return True


def _are_ids(labels: Sequence[str]) -> bool:
    """Returns whether labels are numbers from 0, or the default names of transformers."""
    are_numbers = tuple(labels) == tuple(map(str, range(len(labels))))
    return are_numbers or tasks.are_default(list(labels))


class LabelReader:
    """Reads the labels of rows.

    Args:
        task: the task.
        table: the rows.
        is_test: whether the split is for prediction, where other values than labels are unknown.
        column: the column of the label, or of each label of a multi-label task; None if there is
            none.
        names: the labels of these columns, in the latter case.
        class_names: the names of the class ids in the column; None if there are none.
    """

    def __init__(
        self,
        task: ClassificationTask,
        table: Table,
        is_test: bool,
        column: Column | tuple[Column, ...] | None,
        names: Sequence[Column],
        class_names: ClassNames | None = None,
    ) -> None:
        self._unlabeled = Unlabeled(table.path, is_test)
        self._table = table
        self._task = task
        self._is_test = is_test
        self._column = column
        self._names = [str(name) for name in names]
        self._class_names = class_names
        self._strange = ""  # the first value of a test split that is no label
        self._exact: set[str] = set()
        self._spellings: dict[str, str] = {}  # label → how else it is spelled

    def read(self, row: Row, number: int) -> Label:
        """Returns the label, or the labels in a multi-label task; None if it is not known.

        Args:
            row: the row.
            number: its number.

        Raises:
            BadRowError: the row has another value than a label.
        """
        label = None
        if self._column is not None:
            try:
                label = self._label(row, self._column)
            except ShortRowError:
                if not self._is_test:
                    raise
            except BadRowError as error:
                if not self._is_test:
                    raise
                if not isinstance(row, dict) or self._column in row:
                    self._strange = self._strange or str(error)
        if label is None:
            self._unlabeled.add(self._table.place(number))
        return label

    def _label(self, row: Row, column: Column | tuple[Column, ...]) -> Label:
        if isinstance(column, tuple):
            values = [cell(row, place) for place in column]
            if any(is_unknown(value, self._task) for value in values):
                return None
            pairs = zip(self._names, values, strict=True)
            return tuple(
                parse_label(name, self._task) for name, value in pairs if is_true(value, name)
            )
        value = cell(row, column)
        if self._class_names is not None:
            value = self._class_names.decode(value)
        if is_unknown(value, self._task):
            return None
        if self._task.is_multi_label:
            labels = parse_labels(value, self._task)
            if isinstance(value, list):
                for spelling, label in zip(value, labels, strict=True):
                    self._note(spelling, label)
            return labels
        label = parse_label(value, self._task)
        self._note(value, label)
        return label

    def _note(self, value: object, label: str) -> None:
        """Remembers how a label is spelled."""
        spelling = str(value).strip()
        if spelling == label:
            self._exact.add(label)
        elif spelling.lower() == label.lower() and not isinstance(value, bool):
            self._spellings[label] = spelling

    def _check_spellings(self, path: str) -> None:
        """Logs labels that are spelled otherwise than those of the task; see `report`."""
        for label, spelling in self._spellings.items():
            names = f"{files.quote(spelling)} and {files.quote(label)}"
            if label in self._exact:
                raise ValueError(
                    f"{path}: {names} are both labels here, but the task has only the latter. Use "
                    "one spelling, or list all labels in --labels"
                )
            logging.warning("%s: %s are taken as the same label", path, names)

    def report(self, num_examples: int) -> None:
        """Logs how many rows have no known label, and what else labels are spelled.

        Args:
            num_examples: the number of examples that are used.

        Raises:
            ValueError: the file has two spellings of a label, so that they may be two labels.
        """
        self._check_spellings(self._table.path)
        self._unlabeled.report(num_examples)
        if self._is_test and self._strange and len(self._unlabeled) == num_examples:
            logging.warning("%s: predicted, but not evaluated: %s", self._table.path, self._strange)

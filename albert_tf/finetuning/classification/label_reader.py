"""Reads the labels of a split's rows, and notes those that are not known or spelled otherwise."""

from __future__ import annotations

from collections.abc import Sequence

from absl import logging

from albert_tf import files
from albert_tf.finetuning.cells import cell
from albert_tf.finetuning.classification.class_names import ClassNames
from albert_tf.finetuning.classification.labels import (
    Label,
    is_true,
    is_unknown,
    parse_label,
    parse_labels,
)
from albert_tf.finetuning.classification.tasks import ClassificationTask
from albert_tf.finetuning.labels import report_skipped, report_unlabeled
from albert_tf.finetuning.rows import BadRowError, Column, Row, ShortRowError
from albert_tf.tables import Table


class LabelReader:
    """Reads the labels of rows.

    Args:
        task: the task.
        is_test: whether the split is for prediction, where other values than labels are unknown.
        column: the column of the label, or of each label of a multi-label task; None if there is
            none.
        names: the labels of these columns, in the latter case.
        class_names: the names of the class ids in the column; None if there are none.
    """

    def __init__(
        self,
        task: ClassificationTask,
        is_test: bool,
        column: Column | tuple[Column, ...] | None,
        names: Sequence[Column],
        class_names: ClassNames | None = None,
    ) -> None:
        self._unlabeled: list[int] = []
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
            self._unlabeled.append(number)
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

    def report(self, table: Table, num_examples: int) -> None:
        """Logs how many rows have no known label, and what else labels are spelled.

        Args:
            table: the rows.
            num_examples: the number of examples that are used.

        Raises:
            ValueError: the file has two spellings of a label, so that they may be two labels.
        """
        self._check_spellings(table.path)
        places = [table.place(number) for number in self._unlabeled]
        if not self._is_test:
            report_skipped(table.path, places, num_examples + len(places))
            return
        report_unlabeled(table.path, places, num_examples)
        if self._strange and len(places) == num_examples:
            logging.warning("%s: predicted, but not evaluated: %s", table.path, self._strange)

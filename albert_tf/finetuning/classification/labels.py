"""Converts the values in the label columns of a file to labels of a classification task."""

from __future__ import annotations

import math

from albert_tf import files
from albert_tf.finetuning.cells import check_name
from albert_tf.finetuning.classification.tasks import ClassificationTask
from albert_tf.finetuning.rows import BadRowError, Column, abbreviate

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
    label = task.label_aliases.get(label, label)
    if task.is_regression:
        if not is_number(label):
            raise BadRowError(f"label {files.quote(label)}: expected a number")
        return label
    if not task.labels or label in task.labels or label in task.unlabeled:
        return label
    if label.lower() in task.labels:  # Google's program lower-cases labels along with texts
        return label.lower()
    raise BadRowError(f"unknown label {files.quote(label)}; expected {abbreviate(task.labels)}")


def parse_labels(value: object, task: ClassificationTask) -> tuple[str, ...]:
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

"""What a value in a label column stands for: a label of the task, several, a number, or none.

`meaning` decides first what all values of a column have in common.
"""

from __future__ import annotations

import math
import re
import sys
import unicodedata

from albert_tf import files
from albert_tf.finetuning.classification.tasks import CUSTOM_TASK, ClassificationTask
from albert_tf.finetuning.examples import is_none
from albert_tf.finetuning.rows import BadRowError, abbreviate, check_name

# Cells of a column that belongs to a label, in lower case.
_TRUE = {"1", "1.0", "true"}
_FALSE = {"0", "0.0", "false"}

Label = str | tuple[str, ...] | None


def parse_label(value: object, task: ClassificationTask) -> str:
    """Converts a cell or a JSON value to a label of the task.

    A label may be spelled otherwise, see `folded`, if only one label of the task is alike.

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
    same = [known for known in task.labels if folded(known) == folded(label)]
    if len(same) == 1:  # Google's program lower-cases labels along with texts
        return same[0]
    if without_point(label) != label:  # pandas has such a column for null
        return parse_label(without_point(label), task)
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


def is_blank(value: object) -> bool:
    """Returns whether there is nothing in place of a label: null, NaN or no text."""
    return is_none(value) and (value is None or value != value or not str(value).strip())


def is_unknown(value: object, task: ClassificationTask) -> bool:
    """Returns whether a value stands for a label that is not known.

    What the task has as a label is known, even "-1"; and so is it before the labels are known.
    """
    if not is_none(value):
        return False
    text = "" if is_blank(value) else str(value).strip()
    if task.is_regression:
        return text in ("", "-") or task.name != CUSTOM_TASK
    return not text or (bool(task.labels) and text not in task.labels)


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


def list_in(value: object) -> object:
    """Returns the list in a cell with JSON; other values unchanged."""
    if not isinstance(value, str) or not value.startswith("["):
        return value
    try:
        return files.load_json(value)
    except ValueError:
        return value


def indicator(value: object) -> bool | None:
    """Returns whether a value that says whether a text has a label is 1; None if it is no such."""
    text = str(value).strip().lower()
    return text in _TRUE if text in _TRUE | _FALSE else None


def is_number(text: str) -> bool:
    """Returns whether `text` is a finite number."""
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


_INTEGER = re.compile(r"(-?(?:0|[1-9][0-9]{0,17}))(?:\.0+)?")


def without_point(text: str) -> str:
    """Returns "1" for "1.0", as pandas writes integers in a column with null; others unchanged."""
    found = _INTEGER.fullmatch(text)
    return text if found is None else found[1]


def is_integer(text: str) -> bool:
    """Returns whether `text` is an integer, perhaps with a point and zeros."""
    return _INTEGER.fullmatch(text) is not None


def folded(label: str) -> str:
    """Returns what labels have in common that are alike.

    They differ in case, in the Unicode form of characters, in spaces or in invisible characters; or
    one has a point and zeros.
    """
    visible = "".join(c for c in label if unicodedata.category(c) != "Cf")
    return " ".join(unicodedata.normalize("NFKC", without_point(visible)).casefold().split())

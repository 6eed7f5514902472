"""Checks the labels that the data of a split has."""

from __future__ import annotations

import math
from collections.abc import Sequence

from absl import logging

from albert_tf.finetuning.rows import abbreviate

MAX_LABELS = 1000  # more indicate a wrong column
_NONE = ("", "-", "-1", "-1.0")  # see `is_none`


def is_none(value: object) -> bool:
    """Returns whether a value is what data sets have in place of a label that is not known.

    This is null or NaN, nothing, -1 (test data of the Hub) or "-" (annotators did not agree). A
    task may have one of them as a label, which is for the caller to know.
    """
    is_nan = isinstance(value, float) and math.isnan(value)
    return value is None or is_nan or str(value).strip() in _NONE


def check_number_of_labels(labels: Sequence[str], path: str, otherwise: str = "") -> None:
    """Raises ValueError if a file has fewer than two labels, or more than MAX_LABELS.

    Args:
        labels: the labels.
        path: the file.
        otherwise: what to do if the label column is right and there are more labels; "" if nothing
            can be done.
    """
    if not 2 <= len(labels) <= MAX_LABELS:
        raise ValueError(
            f"{path}: {len(labels)} different labels ({abbreviate(labels)}), expected 2 to "
            f"{MAX_LABELS}. Is --label_column right?{otherwise if len(labels) > 1 else ''}"
        )


def report_unlabeled(path: str, places: Sequence[str], total: int) -> None:
    """Logs that a split cannot be evaluated, because some of it has no known label.

    Nothing is logged if nothing has one, as in most test files.

    Args:
        path: the file.
        places: where what has no known label is: the file, and the line or row.
        total: the number of tokens or examples.
    """
    if 0 < len(places) < total:
        logging.warning(
            "%s: predicted, but not evaluated: %d of %d have no known label; the first is %s",
            path,
            len(places),
            total,
            places[0].removeprefix(f"{path}, "),
        )


def report_skipped(path: str, places: Sequence[str], total: int) -> None:
    """Logs how many rows have no label, and are left out of training or evaluation.

    Args:
        path: the file.
        places: where these rows are: the file, and the line or row.
        total: the number of rows of the file.
    """
    if places:
        logging.warning(
            "%s: %d of %d rows are skipped, because they have no label; the first is %s",
            path,
            len(places),
            total,
            places[0].removeprefix(f"{path}, "),
        )

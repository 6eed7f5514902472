"""Checks the labels that the data of a split has."""

from __future__ import annotations

from collections.abc import Sequence

from absl import logging

from albert_tf.finetuning.rows import abbreviate

MAX_LABELS = 1000  # more indicate a wrong column


def check_number_of_labels(labels: Sequence[str], path: str) -> None:
    """Raises ValueError if a file has fewer than two labels, or more than MAX_LABELS."""
    if not 2 <= len(labels) <= MAX_LABELS:
        raise ValueError(
            f"{path}: {len(labels)} different labels ({abbreviate(labels)}), expected 2 to "
            f"{MAX_LABELS}. Is --label_column right?"
        )


def report_unlabeled(path: str, lines: Sequence[int], total: int) -> None:
    """Logs that a split cannot be evaluated, because some of it has no known label.

    Nothing is logged if nothing has one, as in most test files.

    Args:
        path: the file.
        lines: the line numbers of what has no known label.
        total: the number of tokens or examples.
    """
    if 0 < len(lines) < total:
        logging.warning(
            "%s: predicted, but not evaluated: %d of %d have no known label; the first is in line "
            "%d",
            path,
            len(lines),
            total,
            lines[0],
        )

"""Checks the labels that training data has."""

from __future__ import annotations

from collections.abc import Sequence

from albert_tf.finetuning.rows import abbreviate

MAX_LABELS = 1000  # more indicate a wrong column


def check_number_of_labels(labels: Sequence[str], path: str) -> None:
    """Raises ValueError if a file has fewer than two labels, or more than MAX_LABELS."""
    if not 2 <= len(labels) <= MAX_LABELS:
        raise ValueError(
            f"{path}: {len(labels)} different labels ({abbreviate(labels)}), expected 2 to "
            f"{MAX_LABELS}. Is --label_column right?"
        )

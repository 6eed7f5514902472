"""Reads the texts in rows of files, requests and flags, for predictions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from albert_tf import files
from albert_tf.finetuning import rows
from albert_tf.finetuning.rows import BadRowError, Row

# Usual names of the columns with the texts, in lower case; the first one found is used.
TEXT_A = ("text_a", "sentence1", "sentence", "text")
TEXT_B = ("text_b", "sentence2")


def parse_pair(row: Row) -> tuple[str, str]:
    """Returns the two texts of a pair; the second is "" if the row has one text."""
    if not isinstance(row, dict):
        first, second = [*unnamed_texts(row, 2), ""][:2]
        return first, second
    return named_text(row, TEXT_A), named_text(row, TEXT_B, "")


def parse_text(row: Row) -> str:
    """Returns the text of a row."""
    return named_text(row, TEXT_A) if isinstance(row, dict) else unnamed_texts(row, 1)[0]


def unnamed_texts(row: Sequence[str], most: int) -> Sequence[str]:
    """Returns the cells of a row of a file without a header.

    Raises:
        BadRowError: there are more than `most`, the number of texts that the task takes; or one
            contains a lone surrogate.
    """
    if len(row) > most:
        raise BadRowError(
            f"expected {most} or fewer columns, got {len(row)}. Remove the tabs, or name the "
            "columns in the first line of a .tsv or .csv file"
        )
    return [rows.check_text(cell, "the text") for cell in row]


def named_text(row: dict[str, Any], names: Sequence[str], default: str | None = None) -> str:
    """Returns the text in the column with the first of `names` that the row contains.

    Raises:
        BadRowError: there is no such column, and no default.
    """
    name = next((name for name in names if name in row), None)
    if name is not None:
        return rows.text_cell(row, name)
    if default is None:
        expected = " or ".join(map(repr, names))
        raise BadRowError(f"expected {expected}, found {files.quote_all(row)}")
    return default

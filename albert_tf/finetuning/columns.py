"""Finds the columns of rows by their usual names, and the texts in them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from albert_tf import files
from albert_tf.finetuning.cells import check_text, text_cell
from albert_tf.finetuning.rows import BadRowError, Row

# Usual names of the columns with the texts, in lower case; the first one found is used.
TEXT_A = ("text_a", "sentence1", "sentence", "text")
TEXT_B = ("text_b", "sentence2")


def normalized(names: Iterable[str]) -> list[str]:
    """Returns names of columns as they are compared."""
    return [name.strip().lower() for name in names]


def find_header(row: Row | BadRowError, names: Collection[str]) -> list[str]:
    """Returns the names of the columns if the first row is a header: if it has one of `names`.

    Args:
        row: the first row of a file.
        names: the names, in lower case, by which a header is recognized.

    Returns:
        The cells in lower case; [] if the row is not a header.
    """
    cells = [] if isinstance(row, (dict, BadRowError)) else normalized(row)
    return [] if set(names).isdisjoint(cells) else cells


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
    return [check_text(cell, "the text") for cell in row]


def named_text(row: dict[str, Any], names: Sequence[str], default: str | None = None) -> str:
    """Returns the text in the column with the first of `names` that the row contains.

    Raises:
        BadRowError: there is no such column, and no default.
    """
    name = next((name for name in names if name in row), None)
    if name is not None:
        return text_cell(row, name)
    if default is None:
        expected = " or ".join(map(repr, names))
        raise BadRowError(f"expected {expected}, found {files.quote_all(row)}")
    return default

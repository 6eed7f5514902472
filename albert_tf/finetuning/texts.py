"""Returns the text, or the pair of texts, in a row to predict."""

from __future__ import annotations

from collections.abc import Sequence

from albert_tf import files
from albert_tf.finetuning.cells import check_text, text_cell
from albert_tf.finetuning.columns import TEXT_A, find_texts, places_of
from albert_tf.finetuning.rows import BadRowError, Column, Row


def parse_pair(row: Row) -> tuple[str, str]:
    """Returns the two texts of a pair; the second is "" if the row has one text."""
    if not isinstance(row, dict):
        first, second = [*unnamed_texts(row, 2), ""][:2]
        return first, second
    column_a, column_b = _text_columns(row)
    return text_cell(row, column_a), "" if column_b is None else text_cell(row, column_b)


def parse_text(row: Row) -> str:
    """Returns the text of a row."""
    if not isinstance(row, dict):
        return unnamed_texts(row, 1)[0]
    return text_cell(row, _text_columns(row)[0])


def _text_columns(row: files.JsonObject) -> tuple[Column, Column | None]:
    """Returns the columns of the texts with usual names; None for the second if there is none.

    Raises:
        BadRowError: there are no such columns, or several may be meant.
    """
    found = find_texts(places_of(row))
    if found is None:
        expected = " or ".join(map(repr, TEXT_A))
        raise BadRowError(f"expected {expected}, found {files.quote_all(row)}")
    return found


def unnamed_texts(row: Sequence[str], most: int) -> Sequence[str]:
    """Returns the cells of a row of a file without a header.

    Raises:
        BadRowError: there are more than `most`, the number of texts that the task takes; or one
            contains a lone surrogate.
    """
    if len(row) > most:
        raise BadRowError(
            f"expected {most} or fewer columns, got {len(row)}: {files.quote_all(row)}. Leave out "
            "the others, or name the columns in the first line of a .tsv or .csv file, such as "
            "text and text_b"
        )
    return [check_text(cell, "the text") for cell in row]


def named_text(row: files.JsonObject, names: Sequence[str]) -> str:
    """Returns the text in the column that has one of `names`.

    Raises:
        BadRowError: there is no such column, or several.
    """
    places = places_of(row)
    columns = [places[name] for name in names if name in places]
    if len(columns) > 1:
        raise BadRowError(
            f"{files.quote_all(columns)} may each be the {names[0]}: keep one, or rename the others"
        )
    if not columns:
        expected = " or ".join(map(repr, names))
        raise BadRowError(f"expected {expected}, found {files.quote_all(row)}")
    return text_cell(row, columns[0])

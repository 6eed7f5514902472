"""Returns the values in the cells of a row, and checks them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from albert_tf import files
from albert_tf.finetuning.rows import BadRowError, Column, Row, ShortRowError

_SURROGATE = re.compile("[\ud800-\udfff]")  # JSON can encode a lone surrogate


def cells_of(row: Row) -> Sequence[str]:
    """Returns the cells of a row.

    Raises:
        BadRowError: the row is a JSON object.
    """
    if isinstance(row, dict):
        raise BadRowError(f"expected columns, got a JSON object with {files.quote_all(row)}")
    return row


def cell(row: Row, column: Column) -> object:
    """Returns the value in a column of a row.

    Args:
        row: cells or a JSON object.
        column: index of the cell (counted from the end if negative), or JSON key.

    Raises:
        ShortRowError: the row has too few columns.
        BadRowError: the JSON object does not have the key.
    """
    if isinstance(row, dict):
        if column not in row:
            raise BadRowError(f"no key {column!r} among {files.quote_all(row)}")
        return row[str(column)]
    index = int(column)
    needed = index + 1 if index >= 0 else -index + 1  # the only cell does not count as the last
    if len(row) < needed:
        raise ShortRowError(
            f"expected {needed} or more columns, got {len(row)}. Tabs separate them, in .csv files "
            "commas; if cells are quoted, pass --quoting"
        )
    return row[index]


def text_cell(row: Row, column: Column) -> str:
    """Returns the text in a column of a row; a JSON list of strings is joined with spaces.

    Raises:
        BadRowError: see `cell`; or the value is not text.
    """
    value = cell(row, column)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        value = " ".join(value)
    return check_text(value, repr(column))


def check_name(value: object, what: str) -> str:
    """Returns the value as stripped text that fits into a cell of a tab-separated file.

    Raises:
        BadRowError: the text is empty, contains a tab or a line break, or is not valid Unicode; the
            message starts with `what`.
    """
    name = check_text(str(value), what).strip()
    if not name or "\t" in name or len(name.splitlines()) > 1:
        raise BadRowError(
            f"{what} is {files.quote(name)}, expected text without tabs and line breaks"
        )
    return name


def check_text(value: object, what: str) -> str:
    """Returns the value if it is text that can be encoded as UTF-8.

    Raises:
        BadRowError: the value is not such text; the message starts with `what`.
    """
    if not isinstance(value, str):
        raise BadRowError(f"{what} is {json.dumps(value, default=repr)[:50]}, expected text")
    if _SURROGATE.search(value):
        raise BadRowError(f"{what} contains a lone surrogate, which is not a character")
    return value

"""The rows of a file: the values in their cells, and a report of those that cannot be used."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from albert_tf import files
from albert_tf.tables import BadRowError as BadRowError
from albert_tf.tables import Column as Column
from albert_tf.tables import NumberedRow as NumberedRow
from albert_tf.tables import Row as Row
from albert_tf.tables import ShortRowError as ShortRowError

MAX_BAD = 10  # bad rows in an error
MAX_NAMED = 10  # labels in a message
_QUOTED = re.compile("'[^']*'")

PlaceType = TypeVar("PlaceType", int, str)  # the number of a row, or words that say where it is
T = TypeVar("T")


class NoGoodRowError(ValueError):
    """All rows that were read are bad for the same reason: the file is another one than meant."""


def parse_rows(
    where: str | Callable[[PlaceType], str],
    rows: Iterable[tuple[PlaceType, Any]],
    parse: Callable[[Any, PlaceType], T],
) -> Iterator[tuple[PlaceType, T]]:
    """Yields (place, `parse(row, place)`) of good rows, and then raises an error about bad ones.

    Args:
        where: the file, or what names the file and the place of a row: `Table.place`.
        rows: pairs of a place and a row, or what else `parse` takes; or of a place and a
            BadRowError. The place is the number of the row, or says where the row is.
        parse: converts a row; raises BadRowError if it cannot be used.

    Raises:
        NoGoodRowError: the first rows, or all of fewer, are bad for the same reason.
        ValueError: there is a bad row; the message names the file, the place and the reason of the
            first ones.
    """
    bad: list[tuple[str, str]] = []
    has_good = False
    for place, row in rows:
        try:
            if isinstance(row, BadRowError):
                raise row
            value = parse(row, place)
        except BadRowError as error:
            bad.append((_name_place(where, place), str(error)))
            if len(bad) == MAX_BAD:
                break
        else:
            has_good = True
            yield place, value
    if bad:
        raise refusal_of(bad, has_good)


def refusal_of(bad: Sequence[tuple[str, str]], has_good: bool) -> ValueError:
    """Returns the error about bad rows.

    Args:
        bad: place and reason of the first ones; MAX_BAD of them if there may be more.
        has_good: whether another row is good.
    """
    kinds: dict[str, list[tuple[str, str]]] = {}
    for place, reason in bad:
        # Values in quotes, such as labels, differ from row to row.
        kinds.setdefault(_QUOTED.sub("''", reason), []).append((place, reason))
    lines = [f"{alike[0][0]}: {alike[0][1]}{_likewise(alike[1:])}" for alike in kinds.values()]
    if len(kinds) > 1 or has_good:
        return ValueError("\n".join(lines))
    others = f"so are the next {MAX_BAD - 1} rows, and none is good"
    if len(bad) < MAX_BAD:
        others = f"so are the other {len(bad) - 1} rows, and none is good"
    if len(bad) <= 2:
        others = "so is the other row, and none is good" if bad[1:] else "there is no other row"
    return NoGoodRowError(f"{bad[0][0]}: {bad[0][1]}; {others}")


def _likewise(others: Sequence[tuple[str, str]]) -> str:
    """Returns the places, without the file, of rows that are bad like the first one."""
    places = [place.rpartition(", ")[2] for place, _ in others]
    return f"; likewise {', '.join(places)}" if places else ""


def abbreviate(names: Sequence[str], most: int = MAX_NAMED) -> str:
    """Returns the first of several labels or ids, for a message."""
    shown = list(names[:most])
    return ", ".join([*shown, "…"] if len(names) > most else shown)


def _name_place(where: str | Callable[[PlaceType], str], place: PlaceType) -> str:
    if not isinstance(where, str):
        return where(place)
    return f"{where}, line {place}" if isinstance(place, int) else f"{where}, {place}"


_SURROGATE = re.compile("[\ud800-\udfff]")  # JSON can encode a lone surrogate


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


def is_text(value: object) -> bool:
    """Returns whether a value is text that is not blank, and can be encoded as UTF-8."""
    if not isinstance(value, str) or not value or value.isspace():
        return False
    return value.isascii() or _SURROGATE.search(value) is None


def check_text(value: object, what: str) -> str:
    """Returns the value if it is text that can be encoded as UTF-8.

    Raises:
        BadRowError: the value is not such text; the message starts with `what`.
    """
    if not isinstance(value, str):
        raise BadRowError(f"{what} is {json.dumps(value, default=repr)[:50]}, expected text")
    if not value.isascii() and _SURROGATE.search(value):
        raise BadRowError(f"{what} contains a lone surrogate, which is not a character")
    return value

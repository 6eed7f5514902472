"""Parses rows, and reports those that cannot be used, with the file and their places."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from albert_tf.tables import BadRowError, Column, NumberedRow, Row, ShortRowError

__all__ = [
    "BadRowError",
    "Column",
    "NumberedRow",
    "Row",
    "ShortRowError",
    "abbreviate",
    "parse_rows",
]

MAX_BAD = 10  # bad rows in an error
MAX_NAMED = 10  # labels in a message

PlaceType = TypeVar("PlaceType", int, str)  # the number of a row, or words that say where it is
T = TypeVar("T")


def parse_rows(
    where: str | Callable[[PlaceType], str],
    rows: Iterable[tuple[PlaceType, Row | BadRowError]],
    parse: Callable[[Row, PlaceType], T],
) -> Iterator[tuple[PlaceType, T]]:
    """Yields (place, `parse(row, place)`) of good rows, and then raises an error about bad ones.

    Args:
        where: the file, or what names the file and the place of a row: `Table.place`.
        rows: pairs of a place and a row, or of a place and a BadRowError. The place is the number
            of the row, or says where the row is.
        parse: converts a row; raises BadRowError if it cannot be used.

    Raises:
        ValueError: there is a bad row; the message names the file, the place and the reason of the
            first ones.
    """
    bad = []
    for place, row in rows:
        try:
            if isinstance(row, BadRowError):
                raise row
            value = parse(row, place)
        except BadRowError as error:
            bad.append(f"{_name_place(where, place)}: {error}")
            if len(bad) == MAX_BAD:
                break
        else:
            yield place, value
    if bad:
        raise ValueError("\n".join(bad))


def abbreviate(names: Sequence[str], most: int = MAX_NAMED) -> str:
    """Returns the first of several labels or ids, for a message."""
    shown = list(names[:most])
    return ", ".join([*shown, "…"] if len(names) > most else shown)


def _name_place(where: str | Callable[[PlaceType], str], place: PlaceType) -> str:
    if not isinstance(where, str):
        return where(place)
    return f"{where}, line {place}" if isinstance(place, int) else f"{where}, {place}"

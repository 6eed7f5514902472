"""What a row is: cells or a JSON object, or why it cannot be used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from albert_tf import files

Column = int | str
Row = Sequence[str] | files.JsonObject


class BadRowError(ValueError):
    """A row cannot be used; the message says why."""


class ShortRowError(BadRowError):
    """A row has too few columns."""


NumberedRow = tuple[int, Row | BadRowError]


def name_cells(numbered: Iterator[NumberedRow]) -> Iterator[NumberedRow]:
    """Yields rows of cells as name → cell; the first row is a header with the names.

    Names are in lower case and without spaces around them. Several columns may be without a name.

    Yields:
        The number, and the row, or an error if its width is not that of the header; or instead of
        all rows an error if several columns have a name.
    """
    first, header = next(numbered, (0, ()))
    if isinstance(header, (dict, BadRowError)):
        raise TypeError(f"expected a header with cells, got {header!r}")
    try:
        places = unique_places(map(normalized, header))
    except BadRowError as error:
        yield first, error
        return
    for number, row in numbered:
        if isinstance(row, (dict, BadRowError)):
            yield number, row
        elif len(row) == len(header):
            yield number, {name: row[place] for name, place in places.items()}
        else:
            yield number, width_error(row, len(header))


def unique_places(names: Iterable[str]) -> dict[str, int]:
    """Returns name → index of its column.

    Raises:
        BadRowError: several columns have a name that is not blank.
    """
    places: dict[str, int] = {}
    for place, name in enumerate(names):
        if places.setdefault(name, place) != place and name:
            raise repeated_name(name)
    return places


def repeated_name(name: str) -> BadRowError:
    """Returns the error for a name that several columns have."""
    return BadRowError(f"several columns are called {files.quote(name)}: rename all but one")


def normalized(name: str) -> str:
    """Returns the name of a column as names are compared."""
    return name.strip().lower()


def width_error(row: Row, width: int) -> BadRowError:
    """Returns what is wrong with a row that has not as many cells as the header, `width`."""
    return BadRowError(f"expected {width} columns, as in the header, got {len(row)}")

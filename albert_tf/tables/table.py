"""A table: the rows of files or of Python objects, which are read one at a time.

table = open_table(["mrpc/train-00000-of-00002.parquet", "mrpc/train-00001-of-00002.parquet"])
for number, row in table:
    ...                                  # {"sentence1": …, "sentence2": …, "label": 1, "idx": 0}
table.labels["label"].decode(1)          # "equivalent"
table.place(number)                      # "mrpc/train-00001-of-00002.parquet, row 7"

A row is a list of cells or a JSON object, or an error that says why it cannot be used.
"""

from __future__ import annotations

import bisect
import copy
import dataclasses
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from albert_tf import files
from albert_tf.tables.label_names import LabelNames

if TYPE_CHECKING:
    from typing_extensions import Self

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


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of a table: a file, or a Python object.

    Attributes:
        path: the file, or what the object is called.
        rows: yields number, starting at 1, and row, or an error that says what is wrong with it.
        unit: what the numbers of its rows count: "line", "row" or "item".
        labels: column → names of its labels, if they are known.
        has_cells: whether its rows are lists of cells, of which the first may be a header.
    """

    path: str
    rows: Callable[[], Iterator[NumberedRow]]
    unit: str = "row"
    labels: Mapping[str, LabelNames] = dataclasses.field(default_factory=dict)
    has_cells: bool = False


class Table:
    """The rows of one or several parts, in order.

    A row is a list of cells, in tab- and comma-separated files, where the first one may be a
    header; or a dict, in JSON, Parquet, Arrow and Python; or a `BadRowError` that says what is
    wrong with it. An iteration yields pairs (number, row) with increasing numbers, and reads the
    files anew. A header that all files repeat is only in the first one.

    Args:
        parts: one or more parts.

    Attributes:
        path: the files, for messages.
        labels: column → names of its labels, if the metadata of the files have some.
        labels_path: the file that has these names, for messages.
        has_cells: whether rows are lists of cells.
        unit: what the numbers of rows count: "line", "row" or "item".

    Raises:
        ValueError: only some of the parts have cells, or their names of labels differ.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        first, *others = self._parts = list(parts)
        self.labels = first.labels
        self.has_cells = first.has_cells
        self.unit = first.unit
        for other in others:
            if (other.has_cells, other.labels) != (first.has_cells, first.labels):
                raise ValueError(
                    f"{other.path}: expected the format and the names of labels of {first.path}"
                )
        self.path = f"{first.path} … {os.path.basename(others[-1].path)}" if others else first.path
        self.labels_path = self.path
        self._offsets = [0]  # which are added to the numbers of each part, as far as it was read

    def with_labels(self, labels: Mapping[str, LabelNames], path: str) -> Self:
        """Returns the table with names of labels that another file describes."""
        other = copy.copy(self)
        other.labels = labels
        other.labels_path = path
        return other

    def __iter__(self) -> Iterator[NumberedRow]:
        repeats_header = self.has_cells and len(self._parts) > 1 and self._repeats_first_row()
        offset = 0
        for index, part in enumerate(self._parts):
            self._offsets[index:] = [offset]
            number = 0
            begin = int(repeats_header and offset > 0)  # the rows before have the header
            for number, row in itertools.islice(part.rows(), begin, None):
                yield offset + number, row
            offset += number

    def _repeats_first_row(self) -> bool:
        """Returns whether all parts begin with the same row, which is a header.

        Parts without rows do not count: Spark writes one where a partition is empty.
        """
        rows = [row for part in self._parts for _, row in itertools.islice(part.rows(), 1)]
        return len(rows) > 1 and isinstance(rows[0], list) and all(row == rows[0] for row in rows)

    def place(self, number: int) -> str:
        """Returns where a row is that an iteration has yielded: the file and its line or row."""
        index = bisect.bisect_left(self._offsets, number) - 1
        part = self._parts[max(index, 0)]
        return f"{part.path}, {part.unit} {number - self._offsets[max(index, 0)]}"

    def objects(self) -> Iterator[NumberedRow]:
        """Yields all rows as dicts: of cells, the first row is the header that names them."""
        return name_cells(iter(self)) if self.has_cells else iter(self)

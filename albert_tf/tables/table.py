"""A table: the rows of files or of Python objects, which are read one at a time.

table = open_table(["mrpc/train-00000-of-00002.parquet", "mrpc/train-00001-of-00002.parquet"])
for number, row in table:
    ...                                  # {"sentence1": …, "sentence2": …, "label": 1, "idx": 0}
table.labels["label"].decode(1)          # "equivalent"
table.place(number)                      # "mrpc/train-00001-of-00002.parquet, row 7"
"""

from __future__ import annotations

import bisect
import copy
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from albert_tf.tables.label_names import LabelNames
from albert_tf.tables.row import NumberedRow, name_cells

if TYPE_CHECKING:
    from typing_extensions import Self


class TablePart(Protocol):
    """A part of a table: a file, or a Python object.

    Attributes:
        path: the file, or what the object is called.
        unit: what the numbers of its rows count: "line", "row" or "item".
        labels: column → names of its labels, if they are known.
        has_cells: whether its rows are lists of cells, of which the first may be a header.
    """

    path: str
    unit: str
    labels: Mapping[str, LabelNames]
    has_cells: bool

    def rows(self) -> Iterator[NumberedRow]:
        """Yields number, starting at 1, and row, or an error that says what is wrong with it."""


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

    def __init__(self, parts: Sequence[TablePart]) -> None:
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

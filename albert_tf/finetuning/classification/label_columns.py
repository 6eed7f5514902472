"""The values of the labels in a split: each distinct one once, however many rows have it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping

from albert_tf.finetuning.examples import is_none
from albert_tf.tables import LabelNames


@dataclasses.dataclass
class LabelColumn:
    """The values of the labels in a split, each distinct one once.

    Attributes:
        path: the file, for messages.
        place: returns where a row is, given its number.
        is_test: whether the split is for prediction, where other values than labels are unknown.
        names: the names of class ids that are declared for the column; None if there are none.
        declared_in: the file that has these names.
        parts: the labels of the columns of 0 and 1 whose cells are a value together, a tuple; () if
            a single column has the labels.
        has_cells: whether values are cells of text, in which numbers cannot be told from text.
        values: the values, in the order in which they occur.
        first_rows: the number of the first row of each.
    """

    path: str
    place: Callable[[int], str]
    is_test: bool = False
    names: LabelNames | None = None
    declared_in: str = ""
    parts: tuple[str, ...] = ()
    has_cells: bool = False
    values: list[object] = dataclasses.field(default_factory=list)
    first_rows: list[int] = dataclasses.field(default_factory=list)
    _indices: dict[object, int] = dataclasses.field(default_factory=dict)

    def index(self, value: object, number: int) -> int:
        """Returns the index of a value among the distinct ones, given the number of its row."""
        key = value if isinstance(value, str) else (type(value), repr(value))
        found = self._indices.setdefault(key, len(self.values))
        if found == len(self.values):
            self.values.append(value)
            self.first_rows.append(number)
        return found

    def without_values(self) -> LabelColumn:
        """Returns a column without values, to collect them again."""
        return dataclasses.replace(self, values=[], first_rows=[], _indices={})


Values = Mapping[str, list[object]]  # split → its distinct values, which are replaced


def elements(values: Iterable[object]) -> Iterator[object]:
    """Yields values, and those in lists, that are not blank."""
    for value in values:
        items = value if isinstance(value, list) else [value]
        yield from (item for item in items if not is_none(item))


def replace(values: list[object], change: Callable[[object], object]) -> None:
    """Replaces values, and those in lists."""
    values[:] = [[*map(change, x)] if isinstance(x, list) else change(x) for x in values]

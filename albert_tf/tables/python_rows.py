"""Rows of Python as a table: any iterable of dicts, a `datasets.Dataset`, or a DataFrame.

Neither `datasets` nor pandas is imported: what is passed has been made by one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from albert_tf import files
from albert_tf.tables import label_names
from albert_tf.tables.label_names import LabelNames
from albert_tf.tables.row import BadRowError, NumberedRow, unique_places
from albert_tf.tables.table import Table

_ROWS_AT_ONCE = 1024  # of a DataFrame that are Python objects


def tables_of(data: Mapping[str, object]) -> dict[str, Table]:
    """Returns split → table of rows of Python, such as those of a `datasets.DatasetDict`."""
    return {split: table_of(rows, f"data[{split!r}]") for split, rows in data.items()}


def table_of(rows: object, name: str) -> Table:
    """Returns rows of Python as a table.

    Args:
        rows: an iterable of dicts, column → value, such as a list or a `datasets.Dataset`, whose
            `features` tell the names of labels; or a DataFrame of pandas or Polars.
        name: what they are called in messages.

    Raises:
        ValueError: it is something else.
    """
    return Table([_PythonRows(rows, name)])


class _PythonRows:
    """Rows of Python as the only part of a table; see `table_of`."""

    unit = "row"
    has_cells = False

    def __init__(self, rows: object, name: str) -> None:
        self.path = name
        self._make = _dicts_of(rows, name)
        features = getattr(rows, "features", None)
        self.labels: Mapping[str, LabelNames] = (
            label_names.of_features(features) if isinstance(features, Mapping) else {}
        )

    def rows(self) -> Iterator[NumberedRow]:
        """Yields the rows with their numbers, values as JSON has them."""
        for number, row in enumerate(self._make, 1):
            if isinstance(row, Mapping):
                yield number, {str(key): _plain(value) for key, value in row.items()}
            else:
                yield number, BadRowError(f"expected a dict, got {files.quote(row)}")


def _dicts_of(rows: object, name: str) -> Iterable[object]:
    """Returns what yields the rows, each time that it is iterated."""
    if hasattr(rows, "iloc"):
        try:
            return _Frame(rows)
        except BadRowError as error:
            raise ValueError(f"{name}: {error}") from None
    if hasattr(rows, "iter_rows"):
        return _PolarsFrame(rows)
    if isinstance(rows, (str, bytes, Mapping)) or not isinstance(rows, Iterable):
        raise ValueError(
            f"{name}: expected an iterable of dicts, a datasets.Dataset or a DataFrame, got "
            f"{files.quote(rows)}. Files are named by train_file, dev_file and test_file"
        )
    return list(rows) if isinstance(rows, Iterator) else rows  # which can be read only once


class _Frame:
    """The rows of a DataFrame of pandas as dicts, a part at a time."""

    def __init__(self, frame: files.Json) -> None:
        self._frame = frame
        unique_places(map(str, frame.columns))

    def __iter__(self) -> Iterator[object]:
        for start in range(0, len(self._frame), _ROWS_AT_ONCE):
            yield from self._frame.iloc[start : start + _ROWS_AT_ONCE].to_dict("records")


class _PolarsFrame:
    """The rows of a DataFrame of Polars as dicts."""

    def __init__(self, frame: files.Json) -> None:
        self._frame = frame

    def __iter__(self) -> Iterator[object]:
        return iter(self._frame.iter_rows(named=True))


def _plain(value: files.Json) -> files.Json:
    """Returns a value as JSON has it: without NumPy, and None for what a DataFrame lacks."""
    if isinstance(value, str):
        return str(value)  # a NumPy string has another repr
    if isinstance(value, int) or value is None:
        return value
    if isinstance(value, float):  # a NumPy float as well
        return None if value != value else float(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, Sequence):
        return [_plain(inner) for inner in value]
    if hasattr(value, "tolist"):  # an array or a scalar of NumPy
        return _plain(value.tolist())
    return None if type(value).__name__ in ("NAType", "NaTType") else value

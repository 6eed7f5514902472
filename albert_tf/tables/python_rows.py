"""Rows of Python as a table: any iterable of dicts, a `datasets.Dataset`, or a DataFrame.

Neither `datasets` nor a package of DataFrames is imported: what is passed was made by one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from albert_tf import files
from albert_tf.tables import arrow, label_names
from albert_tf.tables.table import BadRowError, NumberedRow, Part, Table, unique_places

_ROWS_AT_ONCE = 1024  # of a DataFrame of pandas that are Python objects


def tables_of(data: Mapping[str, object]) -> dict[str, Table]:
    """Returns split → table of rows of Python, such as those of a `datasets.DatasetDict`.

    Raises:
        ValueError: they are not in a dict, or see `table_of`.
    """
    if not isinstance(data, Mapping):
        raise ValueError(
            f'data: expected a dict of splits, such as {{"train": rows, "dev": rows}}, got '
            f"{files.quote(data)}"
        )
    return {split: table_of(rows, f"data[{split!r}]") for split, rows in data.items()}


def table_of(rows: object, name: str) -> Table:
    """Returns rows of Python as a table.

    Args:
        rows: an iterable of dicts, column → value, such as a list or a `datasets.Dataset`, whose
            `features` tell the names of labels; or a DataFrame of pandas; or what has Arrow's C
            stream interface, such as a DataFrame of Polars or a table of DuckDB or pyarrow.
        name: what they are called in messages.

    Raises:
        ValueError: it is something else.
    """
    features = getattr(rows, "features", None)
    labels = label_names.of_features(features) if isinstance(features, Mapping) else {}
    make: Callable[[], Iterable[object]]
    if hasattr(rows, "iloc"):
        make = _rows_of_pandas(rows, name)
    elif hasattr(rows, "__arrow_c_stream__") and not labels:
        table = arrow.table_of_stream(rows, name)
        labels, make = label_names.of_schema(table.schema, name), table.rows
    elif isinstance(rows, (str, bytes, Mapping)) or not isinstance(rows, Iterable):
        raise ValueError(
            f"{name}: expected an iterable of dicts, a datasets.Dataset or a DataFrame, got "
            f"{files.quote(rows)}. Files are named by train_file, dev_file and test_file"
        )
    else:
        kept = list(rows) if isinstance(rows, Iterator) else rows  # which can be read only once

        def make() -> Iterable[object]:
            return kept

    return Table([Part(name, lambda: map(_checked, enumerate(make(), 1)), labels=labels)])


def _rows_of_pandas(frame: files.Json, name: str) -> Callable[[], Iterable[object]]:
    """Returns what yields the rows of a DataFrame as dicts, a part at a time.

    A column of it may have values of several types, and dicts of any keys, unlike one of Arrow.
    """
    try:
        unique_places(map(str, frame.columns))
    except BadRowError as error:
        raise ValueError(f"{name}: {error}") from None

    def rows() -> Iterator[object]:
        for start in range(0, len(frame), _ROWS_AT_ONCE):
            yield from frame.iloc[start : start + _ROWS_AT_ONCE].to_dict("records")

    return rows


def _checked(numbered: tuple[int, object]) -> NumberedRow:
    """Returns a number and its row, values as JSON has them."""
    number, row = numbered
    if isinstance(row, Mapping):
        return number, {str(key): _plain(value) for key, value in row.items()}
    return number, BadRowError(f"expected a dict, got {files.quote(row)}")


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

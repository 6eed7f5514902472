"""Reads the rows of Parquet and Arrow files as JSON lines.

A row becomes a line with all columns that contain text, so that the number of a line in a message
is that of the row.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING

from albert_tf.tables.arrow import ArrowTable

if TYPE_CHECKING:
    import pyarrow
    from _typeshed import WriteableBuffer


def lines_of(path: str, table: ArrowTable) -> IO[bytes]:
    """Returns the rows of a table as lines.

    Args:
        path: the file, for messages.
        table: the table.

    Raises:
        ValueError: no column contains text.
    """
    names = _text_columns(path, table.schema)
    return io.BufferedReader(_LineStream(table.batches(names)))


def _text_columns(path: str, schema: pyarrow.Schema) -> list[str]:
    """Returns the names of the columns that contain text."""
    kinds = ("string", "large_string", "string_view")
    names = [field.name for field in schema if str(field.type) in kinds]
    if not names:
        listed = ", ".join(f"{field.name} ({field.type})" for field in schema)
        raise ValueError(f"{path}: no column contains text; its columns: {listed}")
    return names


class _LineStream(io.RawIOBase):
    """The rows of record batches as JSON lines."""

    def __init__(self, batches: Iterator[pyarrow.RecordBatch]) -> None:
        super().__init__()
        self._batches = batches
        self._lines = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        while not self._lines:
            batch = next(self._batches, None)
            if batch is None:
                return 0
            rows = (json.dumps(row, ensure_ascii=False) + "\n" for row in batch.to_pylist())
            self._lines = memoryview("".join(rows).encode())
        target = memoryview(buffer)
        count = min(len(target), len(self._lines))
        target[:count] = self._lines[:count]
        self._lines = self._lines[count:]
        return count

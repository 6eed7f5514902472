"""Reads the rows of Parquet and Arrow files as JSON lines.

A row becomes a line with all columns that contain text, so that these files are read like those of
`input_format="jsonl"`, and the number of a line in a message is that of the row. Rows are read in
batches.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import IO, Any

PARQUET_MAGIC = b"PAR1"
ARROW_MAGIC = b"ARROW1"
ARROW_STREAM_MAGIC = b"\xff\xff\xff\xff"  # Hugging Face's datasets write streams
MAGICS = (PARQUET_MAGIC, ARROW_MAGIC, ARROW_STREAM_MAGIC)

_BATCH_ROWS = 256


def open_rows(path: str, raw: IO[bytes]) -> io.BufferedReader:
    """Returns the rows of a Parquet or Arrow file as a stream of JSON lines.

    Args:
        path: the file, for messages.
        raw: the file, at its start.

    Raises:
        ValueError: the file is damaged, or it has no column with text.
    """
    try:
        return io.BufferedReader(_LineStream(path, _batches(path, raw)))
    except _errors() as error:
        raise _damaged(path, error) from None


def _errors() -> tuple[type[Exception], ...]:
    """Returns what pyarrow raises for damaged files, which may claim any size."""
    import pyarrow

    return pyarrow.ArrowException, OSError, UnicodeDecodeError, MemoryError


def _damaged(path: str, error: Exception) -> Exception:
    if isinstance(error, OSError) and error.errno:  # an error of the system, not of the content
        return error
    return ValueError(f"{path}: corrupt Parquet or Arrow file: {error}")


def _batches(path: str, raw: IO[bytes]) -> Iterator[Any]:
    """Yields record batches with the columns that contain text."""
    from pyarrow import ipc, parquet

    magic = raw.read(len(ARROW_MAGIC))
    raw.seek(0)
    if magic.startswith(PARQUET_MAGIC):
        rows = parquet.ParquetFile(raw, buffer_size=1 << 20)
        names = _text_columns(path, rows.schema_arrow)
        batches: Iterator[Any] = rows.iter_batches(_BATCH_ROWS, columns=names)
        return batches
    if magic == ARROW_MAGIC:
        opened = ipc.open_file(raw)
        batches = (opened.get_batch(index) for index in range(opened.num_record_batches))
    else:
        opened = ipc.open_stream(raw)
        batches = iter(opened)
    names = _text_columns(path, opened.schema)
    return (
        batch.select(names).slice(start, _BATCH_ROWS)
        for batch in batches
        for start in range(0, batch.num_rows, _BATCH_ROWS)
    )


def _text_columns(path: str, schema: Any) -> list[str]:
    """Returns the names of the columns that contain text, each of which occurs once."""
    kinds = ("string", "large_string", "string_view")
    names = [field.name for field in schema if str(field.type) in kinds]
    if not names:
        listed = ", ".join(f"{field.name} ({field.type})" for field in schema)
        raise ValueError(f"{path}: no column contains text; its columns: {listed}")
    if twice := next((name for name in names if schema.names.count(name) > 1), None):
        raise ValueError(f"{path}: several columns are called {twice!r}. Rename all but one")
    return names


class _LineStream(io.RawIOBase):
    """The rows of record batches as JSON lines."""

    def __init__(self, path: str, batches: Iterator[Any]) -> None:
        super().__init__()
        self._path = path
        self._batches = batches
        self._lines = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._lines:
            batch = self._next_batch()
            if batch is None:
                return 0
            rows = (json.dumps(row, ensure_ascii=False) + "\n" for row in batch.to_pylist())
            self._lines = memoryview("".join(rows).encode())
        count = min(len(buffer), len(self._lines))
        buffer[:count] = self._lines[:count]
        self._lines = self._lines[count:]
        return count

    def _next_batch(self) -> Any:
        try:
            batch = next(self._batches, None)
            if batch is not None:
                batch.validate(full=True)  # damaged offsets would end the process
        except _errors() as error:
            raise _damaged(self._path, error) from None
        return batch

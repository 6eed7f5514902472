"""Reads Parquet and Arrow files as JSON lines.

A row becomes a line with all columns that contain text, so that the number of a line in a message
is that of the row.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow
    from _typeshed import WriteableBuffer

PARQUET_MAGIC = b"PAR1"
ARROW_MAGIC = b"ARROW1"
ARROW_STREAM_MAGIC = b"\xff\xff\xff\xff"  # Hugging Face's datasets write streams
MAGICS = (PARQUET_MAGIC, ARROW_MAGIC, ARROW_STREAM_MAGIC)
_BATCH_ROWS = 256


def open_parquet(path: str, raw: IO[bytes]) -> IO[bytes]:
    """Returns the rows of a Parquet file as lines; `path` names it in messages."""
    from pyarrow import parquet

    rows = parquet.ParquetFile(raw, buffer_size=1 << 20)
    names = _text_columns(path, rows.schema_arrow)
    return io.BufferedReader(_LineStream(rows.iter_batches(_BATCH_ROWS, columns=names)))


def open_arrow(path: str, raw: IO[bytes]) -> IO[bytes]:
    """Returns the rows of an Arrow file or stream as lines; `path` names it in messages."""
    from pyarrow import ipc

    if raw.read(len(ARROW_MAGIC)) == ARROW_MAGIC:
        opened = ipc.open_file(raw)
        batches = map(opened.get_batch, range(opened.num_record_batches))
    else:
        raw.seek(0)
        batches = opened = ipc.open_stream(raw)
    names = _text_columns(path, opened.schema)
    return io.BufferedReader(_LineStream(batch.select(names) for batch in batches))


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
            batch.validate(full=True)  # damaged offsets would end the process
            rows = (json.dumps(row, ensure_ascii=False) + "\n" for row in batch.to_pylist())
            self._lines = memoryview("".join(rows).encode())
        target = memoryview(buffer)
        count = min(len(target), len(self._lines))
        target[:count] = self._lines[:count]
        self._lines = self._lines[count:]
        return count

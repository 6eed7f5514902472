"""Reads Parquet files, Arrow files and Arrow streams, one batch of rows at a time."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import IO, TYPE_CHECKING

from albert_tf.tables.compression import naming_damage

if TYPE_CHECKING:
    import pyarrow

PARQUET_MAGIC = b"PAR1"
ARROW_MAGIC = b"ARROW1"
ARROW_STREAM_MAGIC = b"\xff\xff\xff\xff"  # Hugging Face's datasets write streams
MAGICS = (PARQUET_MAGIC, ARROW_MAGIC, ARROW_STREAM_MAGIC)
_BATCH_ROWS = 256


@dataclasses.dataclass(frozen=True)
class ArrowTable:
    """A Parquet or Arrow file that is open.

    Attributes:
        schema: the names and types of its columns, with its metadata.
        read: returns the batches of its rows, given the names of the columns to read, or None for
            all of them.
    """

    schema: pyarrow.Schema
    read: Callable[[Sequence[str] | None], Iterator[pyarrow.RecordBatch]]

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pyarrow.RecordBatch]:
        """Yields the rows in batches.

        Args:
            columns: the names of the columns; None for all of them.
        """
        for batch in self.read(columns):
            batch.validate(full=True)  # damaged offsets would end the process
            yield batch


@contextlib.contextmanager
def open_arrow_table(path: str, raw: IO[bytes]) -> Iterator[ArrowTable]:
    """Opens a Parquet or Arrow file.

    Args:
        path: the file, for messages.
        raw: the stream of its content, at its start. Only that of an Arrow stream need not be
            seekable to any place.

    Raises:
        ValueError: the file is damaged, which may only be seen where it is read; or pyarrow cannot
            be imported.
    """
    try:
        import pyarrow
    except ImportError as error:  # from 26 on, it refuses NumPy 1, which old TensorFlows require
        raise ValueError(f"{path}: {error}. Run: pip install 'pyarrow<26'") from None
    start = raw.read(max(map(len, MAGICS)))
    raw.seek(0)
    kind = "Parquet" if start.startswith(PARQUET_MAGIC) else "Arrow"
    with naming_damage(path, kind, (OSError, pyarrow.ArrowException)):
        if kind == "Parquet":
            yield _open_parquet(raw)
        elif start.startswith(ARROW_MAGIC):
            yield _open_arrow_file(raw)
        else:
            yield _open_arrow_stream(raw)


def _open_parquet(raw: IO[bytes]) -> ArrowTable:
    from pyarrow import parquet

    opened = parquet.ParquetFile(raw, buffer_size=1 << 20)
    return ArrowTable(
        opened.schema_arrow, lambda columns: opened.iter_batches(_BATCH_ROWS, columns=columns)
    )


def _open_arrow_file(raw: IO[bytes]) -> ArrowTable:
    from pyarrow import ipc

    opened = ipc.open_file(raw)

    def read(columns: Sequence[str] | None) -> Iterator[pyarrow.RecordBatch]:
        numbers = range(opened.num_record_batches)
        return _small_batches(map(opened.get_batch, numbers), columns)

    return ArrowTable(opened.schema, read)


def _open_arrow_stream(raw: IO[bytes]) -> ArrowTable:
    from pyarrow import ipc

    opened = ipc.open_stream(raw)
    return ArrowTable(opened.schema, lambda columns: _small_batches(opened, columns))


def _small_batches(
    batches: Iterator[pyarrow.RecordBatch], columns: Sequence[str] | None
) -> Iterator[pyarrow.RecordBatch]:
    """Yields some columns of batches in parts, because each part becomes Python objects."""
    for batch in batches:
        chosen = batch if columns is None else batch.select(columns)
        for start in range(0, chosen.num_rows, _BATCH_ROWS):
            yield chosen.slice(start, _BATCH_ROWS)

"""Reads Parquet files, Arrow files and Arrow streams, one batch of rows at a time.

Letters: R number of rows of a part of a file, S its size in bytes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import re
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import IO, TYPE_CHECKING

from albert_tf import files
from albert_tf.tables.compression import naming_damage
from albert_tf.tables.table import BadRowError, unique_places

if TYPE_CHECKING:
    import pyarrow

PARQUET_MAGIC = b"PAR1"
ARROW_MAGIC = b"ARROW1"
ARROW_STREAM_MAGIC = b"\xff\xff\xff\xff"  # Hugging Face's datasets write streams
MAGICS = (PARQUET_MAGIC, ARROW_MAGIC, ARROW_STREAM_MAGIC)
_BATCH_ROWS = 256
_BATCH_BYTES = 1 << 24  # of a batch with more than one row
_MOST_BYTES = 1 << 28  # that a batch may have where each row has the largest value
_DICTIONARY_PAGE = re.compile(rb"\x15\x04\x15([\x80-\xff]*[\x00-\x7f])")


@dataclasses.dataclass(frozen=True)
class ArrowTable:
    """A Parquet or Arrow file that is open.

    Attributes:
        path: the file, for messages.
        schema: the names and types of its columns, with its metadata.
        read: returns the batches of its rows, given the names of the columns to read, or None for
            all of them.
    """

    path: str
    schema: pyarrow.Schema
    read: Callable[[Sequence[str] | None], Iterator[pyarrow.RecordBatch]]

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pyarrow.RecordBatch]:
        """Yields the rows in batches, which become Python objects one after the other.

        Args:
            columns: the names of the columns; None for all of them.

        Raises:
            ValueError: the file is damaged, or a row is larger than `files.MAX_LINE`.
        """
        before = 0  # rows of the batches before
        for whole in self.read(columns):
            whole.validate(full=True)  # damaged offsets would end the process
            for batch in _light_parts(whole):
                if batch.num_rows == 1 and _weight(batch) > files.MAX_LINE:
                    raise ValueError(
                        f"{self.path}, row {before + 1}: larger than {files.MAX_LINE >> 20} MiB"
                    )
                yield batch
                before += batch.num_rows

    def rows(self, columns: Sequence[str] | None = None) -> Iterator[files.JsonObject]:
        """Yields the rows as column → value, with Python's objects as values.

        Args:
            columns: the names of the columns; None for all of them.

        Raises:
            ValueError: as in `batches`; or a value cannot be an object of Python, such as a date
                after the year 9999. The message names the row and the column.
        """
        before = 0
        for batch in self.batches(columns):
            try:
                rows = batch.to_pylist()
            except (ArithmeticError, LookupError, ValueError) as error:
                raise ValueError(self._name_value(batch, before) or str(error)) from None
            yield from rows
            before += batch.num_rows

    def _name_value(self, batch: pyarrow.RecordBatch, before: int) -> str:
        """Returns which value cannot be an object of Python, given the number of rows before."""
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            for number, cell in enumerate(column, before + 1):
                try:
                    cell.as_py()
                except (ArithmeticError, LookupError, ValueError) as error:
                    return (
                        f"{self.path}, row {number}: the value of {name!r} ({column.type}) is not "
                        f"one of Python: {error}. Correct it, or remove the column"
                    )
        return ""


@contextlib.contextmanager
def open_arrow_table(path: str, raw: IO[bytes]) -> Iterator[ArrowTable]:
    """Opens a Parquet or Arrow file.

    Args:
        path: the file, for messages.
        raw: the stream of its content, at its start. Only that of an Arrow stream need not be
            seekable to any place.

    Raises:
        ValueError: the file is damaged, which may only be seen where it is read; two columns have
            the same name; or pyarrow cannot be imported.
    """
    pyarrow = _import_pyarrow(path)
    start = raw.read(max(map(len, MAGICS)))
    raw.seek(0)
    kind = "Parquet" if start.startswith(PARQUET_MAGIC) else "Arrow"
    with naming_damage(path, kind, (OSError, pyarrow.ArrowException)):
        if kind == "Parquet":
            table = _open_parquet(path, raw)
        elif start.startswith(ARROW_MAGIC):
            table = _open_arrow_file(path, raw)
        else:
            table = _open_arrow_stream(path, raw)
        _check_names(table)
        yield table


def table_of_stream(rows: object, name: str) -> ArrowTable:
    """Returns a table in memory that has Arrow's C stream interface, such as a DataFrame.

    Args:
        rows: the table, of Polars, DuckDB, pyarrow or others.
        name: what it is called in messages.

    Raises:
        ValueError: two columns have the same name; or pyarrow cannot be imported.
    """
    table = _import_pyarrow(name).table(rows)
    found = ArrowTable(name, table.schema, lambda names: _chosen(iter(table.to_batches()), names))
    _check_names(found)
    return found


def _import_pyarrow(path: str) -> ModuleType:
    try:
        return importlib.import_module("pyarrow")
    except ImportError as error:  # from 26 on, it refuses NumPy 1, which old TensorFlows require
        raise ValueError(f"{path}: {error}. Run: pip install 'pyarrow<26'") from None


def _check_names(table: ArrowTable) -> None:
    try:
        unique_places(table.schema.names)
    except BadRowError as error:
        raise ValueError(f"{table.path}: {error}") from None


def _open_parquet(path: str, raw: IO[bytes]) -> ArrowTable:
    from pyarrow import parquet

    opened = parquet.ParquetFile(raw, buffer_size=1 << 20)

    def read(columns: Sequence[str] | None) -> Iterator[pyarrow.RecordBatch]:
        for number in range(opened.metadata.num_row_groups):
            rows = _rows_at_once(opened.metadata.row_group(number), raw)
            yield from opened.iter_batches(rows, row_groups=[number], columns=columns)

    return ArrowTable(path, opened.schema_arrow, read)


def _rows_at_once(group: pyarrow.parquet.RowGroupMetaData, raw: IO[bytes]) -> int:
    """Returns how many rows of a group are decoded together.

    That is what has `_BATCH_BYTES` on average, S / R bytes a row. A text that is repeated is stored
    once, in a dictionary, so that each value may be as large as that.
    """
    on_average: int = _BATCH_BYTES * group.num_rows // max(1, group.total_byte_size)
    columns = map(group.column, range(group.num_columns))
    largest: int = sum(
        _dictionary_bytes(column, raw) * -(-column.num_values // max(1, group.num_rows))
        for column in columns
        if column.has_dictionary_page and column.physical_type.endswith("BYTE_ARRAY")
    )
    return max(1, min(_BATCH_ROWS, on_average, _MOST_BYTES // max(1, largest)))


def _dictionary_bytes(column: pyarrow.parquet.ColumnChunkMetaData, raw: IO[bytes]) -> int:
    """Returns the size of the dictionary of a column, or of all of the column, which is more.

    The header of the dictionary's page has it in Thrift's compact protocol: after the kind of the
    page, both as integers that follow the byte 0x15.
    """
    whole = int(column.total_uncompressed_size)
    if whole * _BATCH_ROWS <= _MOST_BYTES or not column.dictionary_page_offset:
        return whole
    raw.seek(column.dictionary_page_offset)
    header = _DICTIONARY_PAGE.match(raw.read(16))
    if header is None:
        return whole
    # The last digit, to the base 128, is the first one, and the lowest bit is the sign.
    digits: bytes = header[1]
    return sum((byte & 127) << 7 * place for place, byte in enumerate(digits)) >> 1


def _open_arrow_file(path: str, raw: IO[bytes]) -> ArrowTable:
    from pyarrow import ipc

    opened = ipc.open_file(raw)

    def read(columns: Sequence[str] | None) -> Iterator[pyarrow.RecordBatch]:
        numbers = range(opened.num_record_batches)
        return _chosen(map(opened.get_batch, numbers), columns)

    return ArrowTable(path, opened.schema, read)


def _open_arrow_stream(path: str, raw: IO[bytes]) -> ArrowTable:
    from pyarrow import ipc

    opened = ipc.open_stream(raw)
    return ArrowTable(path, opened.schema, lambda columns: _chosen(opened, columns))


def _chosen(
    batches: Iterator[pyarrow.RecordBatch], columns: Sequence[str] | None
) -> Iterator[pyarrow.RecordBatch]:
    """Yields some columns of batches, or all of them."""
    return batches if columns is None else (batch.select(columns) for batch in batches)


def _light_parts(batch: pyarrow.RecordBatch) -> Iterator[pyarrow.RecordBatch]:
    """Yields a batch in parts of few rows and bytes, but one row at least."""
    rows = batch.num_rows
    if rows > 1 and (rows > _BATCH_ROWS or _weight(batch) > _BATCH_BYTES):
        for start, end in ((0, rows // 2), (rows // 2, rows)):
            yield from _light_parts(batch.slice(start, end - start))
    else:
        yield batch


def _weight(batch: pyarrow.RecordBatch) -> int:
    """Returns how many bytes a batch has at most when each row has its own values."""
    return sum(
        column.nbytes * (batch.num_rows if hasattr(column, "dictionary") else 1)
        for column in batch.columns
    )

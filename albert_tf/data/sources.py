"""Opens text files as streams of bytes: plain, compressed, or with rows that contain text.

Files may be compressed with gzip, bzip2, xz, zip or Zstandard; the rows of Arrow and Parquet files
are read as JSON lines. The first bytes of a file tell its kind.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO, TYPE_CHECKING, Protocol

from albert_tf import files
from albert_tf.tables import arrow, compression
from albert_tf.tables.compression import open_content
from albert_tf.tables.file_kinds import MAGIC_BYTES

if TYPE_CHECKING:
    import pyarrow

OPENED_AT_ONCE = 16  # because remote files answer slowly
COMPRESSION_RATIO = 4  # assumed for small compressed files
# What a file may be that has rows in place of lines of text.
ARROW_ROWS, JSON_ROWS, TABLE_ROWS = "a Parquet or Arrow file", "JSON lines", "a table"
_JSON_ENDINGS = (".json", ".jsonl", ".ndjson")
_TABLE_ENDINGS = (".csv", ".tsv")


class ByteStream(Protocol):
    """A stream of bytes, which is read from its start to its end."""

    def read(self, size: int = -1, /) -> bytes:
        """Returns the next bytes: at most `size`, or all that are left; b"" at the end."""


@dataclasses.dataclass(frozen=True)
class TextSource:
    """A text file, of which only the first and the last byte have been looked at.

    Attributes:
        number: its position in the list of files, starting at 0.
        path: the file.
        size: its size in bytes, as stored.
        is_compressed: whether its text is larger than it is: also of a Parquet or Arrow file.
        rows: what the file is if it has rows in place of lines of text, such as ARROW_ROWS; or "".
    """

    number: int
    path: str
    size: int
    is_compressed: bool = False
    rows: str = ""

    @property
    def text_bytes(self) -> int:
        """Size of its text in bytes, which is a guess if it is compressed."""
        return self.size * (COMPRESSION_RATIO if self.is_compressed else 1)


def find_sources(paths: Sequence[str]) -> list[TextSource]:
    """Returns the size and the kind of every file.

    Raises:
        FileNotFoundError: a file does not exist, or is a folder.
    """
    with ThreadPoolExecutor(OPENED_AT_ONCE) as pool:
        return list(pool.map(_inspect, range(len(paths)), paths))


def _inspect(number: int, path: str) -> TextSource:
    with files.open_binary(path) as stream:
        start = stream.read(MAGIC_BYTES)
        size = stream.seek(0, os.SEEK_END)
    rows = _rows_of(path, start)
    is_compressed = rows == ARROW_ROWS or start.startswith(compression.MAGICS)
    return TextSource(number, path, size, is_compressed, rows)


def _rows_of(path: str, start: bytes) -> str:
    """Returns `TextSource.rows` of a file that begins with some bytes."""
    if start.startswith(arrow.MAGICS):
        return ARROW_ROWS
    ending = compression.ending_of(path)
    if ending in _JSON_ENDINGS or start.startswith(b'{"'):  # WikiExtractor writes JSON to wiki_00
        return JSON_ROWS
    return TABLE_ROWS if ending in _TABLE_ENDINGS else ""


@contextlib.contextmanager
def open_source(path: str) -> Iterator[tuple[ByteStream, IO[bytes]]]:
    """Opens a text file.

    Yields:
        The stream of its text, and the stream of the bytes as stored, which tells the progress.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is compressed or has rows, and is damaged, which is raised where it is
            read; or it has no column with text.
    """
    with open_content(path) as (stream, raw):
        if stream is not raw:  # compressed: what is in it is text
            yield stream, raw
            return
        start = raw.read(MAGIC_BYTES)
        raw.seek(0)
        if not start.startswith(arrow.MAGICS):
            yield raw, raw
            return
        with arrow.open_arrow_table(path, raw) as table:
            yield _RowLines(table.batches(_text_columns(path, table.schema))), raw


def _text_columns(path: str, schema: pyarrow.Schema) -> list[str]:
    """Returns the names of the columns that contain text."""
    kinds = ("string", "large_string", "string_view")
    names = [field.name for field in schema if str(field.type) in kinds]
    if not names:
        listed = ", ".join(f"{field.name} ({field.type})" for field in schema)
        raise ValueError(f"{path}: no column contains text; its columns: {listed}")
    return names


class _RowLines:
    """The rows of record batches as a stream of JSON lines.

    The number of a line in a message is that of the row, and the place of a document in these lines
    its random seed, as in a file of JSON lines.
    """

    def __init__(self, batches: Iterator[pyarrow.RecordBatch]) -> None:
        self._batches = batches
        self._left = bytearray()

    def read(self, size: int = -1, /) -> bytes:
        """Returns the next bytes; see `ByteStream`."""
        while size < 0 or len(self._left) < size:
            batch = next(self._batches, None)
            if batch is None:
                break
            for row in batch.to_pylist():
                self._left += json.dumps(row, ensure_ascii=False).encode() + b"\n"
        found = bytes(self._left if size < 0 else self._left[:size])
        del self._left[: len(found)]
        return found

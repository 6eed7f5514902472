"""Reads the rows of Parquet and Arrow files as JSON lines, and finds the files of datasets.

A row becomes a line with all columns that contain text, so that these files are read like those of
`input_format="jsonl"`, and the number of a line in a message is that of the row. Rows are read in
batches.

A large Parquet file is divided into parts of consecutive row groups, which several processes read.
How long the text of a row group is, only reading tells: the text of a part is therefore addressed
as if it began at a multiple of PART_OFFSET, more than any part has.
"""

from __future__ import annotations

import io
import itertools
import json
import posixpath
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

from albert_tf import files

PARQUET_MAGIC = b"PAR1"
ARROW_MAGIC = b"ARROW1"
ARROW_STREAM_MAGIC = b"\xff\xff\xff\xff"  # of Hugging Face's datasets; no text starts like this
MAGICS = (PARQUET_MAGIC, ARROW_MAGIC, ARROW_STREAM_MAGIC)

PART_BYTES = 16 << 20  # at least, uncompressed; smaller files are one part
PART_OFFSET = 1 << 40
_BATCH_ROWS = 256
_STATE = "state.json"  # of a folder written by `Dataset.save_to_disk`
_SPLITS = "dataset_dict.json"  # of a folder written by `DatasetDict.save_to_disk`
_INFO = "dataset_info.json"


class Part(NamedTuple):
    """Consecutive row groups of a Parquet file.

    Attributes:
        first: index of the first row group, starting at 0.
        end: index after the last one.
        size: their size in the file, in bytes.
        first_row: index of the first row, starting at 0.
    """

    first: int
    end: int
    size: int
    first_row: int

    @property
    def offset(self) -> int:
        """The offset at which the text of the part begins."""
        return self.first * PART_OFFSET


def divide(raw: IO[bytes]) -> tuple[Part, ...]:
    """Divides a Parquet file into parts of at least PART_BYTES, reading only its end.

    Args:
        raw: the file, at any position.

    Returns:
        The parts; () if the file is damaged, which is an error later.
    """
    from pyarrow import parquet

    raw.seek(0)
    try:
        metadata = parquet.read_metadata(raw)
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        sizes = [
            sum(group.column(i).total_compressed_size for i in range(group.num_columns))
            for group in groups
        ]
    except _errors():
        return ()
    ends = []
    size = 0
    for number, group in enumerate(groups, 1):
        size += group.total_byte_size
        if size >= PART_BYTES:
            ends.append(number)
            size = 0
    ends = [*ends[:-1], len(groups)]  # the last part has what is left
    rows = [0, *itertools.accumulate(group.num_rows for group in groups)]
    return tuple(
        Part(first, end, sum(sizes[first:end]), rows[first])
        for first, end in itertools.pairwise([0, *ends])
    )


def find_files(folder: str) -> list[str]:
    """Returns the files of a folder of Hugging Face's datasets, in the order of the rows.

    Raises:
        FileNotFoundError: the folder does not contain a dataset.
        ValueError: it contains several splits, or a damaged description.
    """
    names = files.list_directory(folder)
    if _SPLITS in names:
        splits = ", ".join(map(str, files.read_json(posixpath.join(folder, _SPLITS))["splits"]))
        raise ValueError(f"{folder}: has the splits {splits}. Name the folder of one of them")
    paths: list[str] = []
    if _STATE in names:
        state = posixpath.join(folder, _STATE)
        try:
            paths = [entry["filename"] for entry in files.read_json(state)["_data_files"]]
        except (KeyError, TypeError):
            raise ValueError(f"{state}: lists no data files. Save the dataset again") from None
    elif _INFO in names:
        paths = [name for name in names if name.endswith((".parquet", ".arrow"))]
    if not paths:
        raise FileNotFoundError(
            f"{folder}: expected a file, but this is a directory without a Hugging Face dataset "
            f"({_STATE} or {_INFO})"
        )
    return [posixpath.join(folder, name) for name in paths]


def open_rows(path: str, raw: IO[bytes], part: Part | None = None) -> io.BufferedReader:
    """Returns the rows of a Parquet or Arrow file as a stream of JSON lines.

    Args:
        path: the file, for messages.
        raw: the file, at its start.
        part: the row groups of a Parquet file to read; None for all rows.

    Raises:
        ValueError: the file is damaged, or it has no column with text.
    """
    try:
        return io.BufferedReader(_LineStream(path, _batches(path, raw, part)))
    except _errors() as error:
        raise _damaged(path, error) from None


def _errors() -> tuple[type[Exception], ...]:
    """Returns what pyarrow raises for damaged files, which may claim any size."""
    import pyarrow

    return pyarrow.ArrowException, OSError, UnicodeDecodeError, MemoryError


def _damaged(path: str, error: Exception) -> Exception:
    if isinstance(error, OSError) and error.errno:  # not about the content
        return error
    return ValueError(f"{path}: corrupt Parquet or Arrow file: {error}")


def _batches(path: str, raw: IO[bytes], part: Part | None) -> Iterator[Any]:
    """Yields record batches with the columns that contain text."""
    from pyarrow import ipc, parquet

    magic = raw.read(len(ARROW_MAGIC))
    raw.seek(0)
    if magic.startswith(PARQUET_MAGIC):
        rows = parquet.ParquetFile(raw, buffer_size=1 << 20)
        names = _text_columns(path, rows.schema_arrow)
        groups = range(part.first, part.end) if part else range(rows.num_row_groups)
        batches: Iterator[Any] = rows.iter_batches(_BATCH_ROWS, groups, columns=names)
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

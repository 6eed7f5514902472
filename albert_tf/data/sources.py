"""Opens text files as streams of bytes: plain, compressed, or with rows that contain text.

Files may be compressed with gzip, bzip2 or Zstandard; the rows of Arrow and Parquet files are read
as JSON lines. The first bytes of a file tell its kind.
"""

from __future__ import annotations

import bz2
import contextlib
import dataclasses
import gzip
import importlib
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import IO, Protocol

from albert_tf import files
from albert_tf.data.table_rows import (
    ARROW_MAGIC,
    ARROW_STREAM_MAGIC,
    MAGICS,
    PARQUET_MAGIC,
    open_arrow,
    open_parquet,
)

OPENED_AT_ONCE = 16  # because remote files answer slowly
COMPRESSION_RATIO = 4  # assumed for small compressed files
_MAGIC_BYTES = 8
_ZSTANDARD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTANDARD_WINDOW_LOG = 31  # the largest window, which `zstd --long=31` writes


class ByteStream(Protocol):
    """A stream of bytes, which is read from its start to its end."""

    def read(self, size: int = -1, /) -> bytes:
        """Returns the next bytes: at most `size`, or all that are left; b"" at the end."""


@dataclasses.dataclass(frozen=True)
class Source:
    """A text file, of which only the first and the last byte have been looked at.

    Attributes:
        number: its position in the list of files, starting at 0.
        path: the file.
        size: its size in bytes, as stored.
        is_compressed: whether its text is larger than it is: also of a Parquet or Arrow file.
        has_rows: whether it is a Parquet or Arrow file.
    """

    number: int
    path: str
    size: int
    is_compressed: bool = False
    has_rows: bool = False

    @property
    def text_bytes(self) -> int:
        """Size of its text in bytes, which is a guess if it is compressed."""
        return self.size * (COMPRESSION_RATIO if self.is_compressed else 1)


def find_sources(paths: Sequence[str]) -> list[Source]:
    """Returns the size and the kind of every file.

    Raises:
        FileNotFoundError: a file does not exist, or is a folder.
    """
    with ThreadPoolExecutor(OPENED_AT_ONCE) as pool:
        return list(pool.map(_inspect, range(len(paths)), paths))


def _inspect(number: int, path: str) -> Source:
    with files.open_binary(path) as stream:
        start = stream.read(_MAGIC_BYTES)
        has_rows = start.startswith(MAGICS)
        is_compressed = start.startswith(tuple(_OPENERS))
        size = stream.seek(0, os.SEEK_END)
        return Source(number, path, size, is_compressed, has_rows)


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
    with files.open_binary(path) as raw:
        start = raw.read(_MAGIC_BYTES)
        raw.seek(0)
        magic = next((magic for magic in _OPENERS if start.startswith(magic)), None)
        if magic is None:
            yield raw, raw
            return
        name, open_text = _OPENERS[magic]
        damage = _damage_of(magic, path)
        try:
            yield open_text(path, raw), raw
        except damage as error:
            if isinstance(error, OSError) and error.errno:  # of the system, not of the content
                raise
            raise ValueError(f"{path}: corrupt {name} file: {error}") from None


def _damage_of(magic: bytes, path: str) -> tuple[type[Exception], ...]:
    """Returns what is raised for damaged content."""
    if magic in MAGICS:
        try:
            import pyarrow
        except (
            ImportError
        ) as error:  # from 26 on, it refuses NumPy 1, which old TensorFlows require
            raise ValueError(f"{path}: {error}. Run: pip install 'pyarrow<26'") from None
        return OSError, pyarrow.ArrowException
    if magic == _ZSTANDARD_MAGIC:
        return EOFError, OSError, _import_zstd(path).ZstdError
    return EOFError, OSError, zlib.error


def _import_zstd(path: str) -> ModuleType:
    """Returns the optional package that decompresses Zstandard.

    Raises:
        ValueError: it is not installed; the message names the file that requires it.
    """
    try:
        return importlib.import_module("backports.zstd")
    except ImportError:
        raise ValueError(
            f"{path}: reading Zstandard files requires backports.zstd: "
            "pip install 'albert-tf2[zstd]'"
        ) from None


def _open_zstandard(path: str, raw: IO[bytes]) -> ByteStream:
    zstd = _import_zstd(path)
    options = {zstd.DecompressionParameter.window_log_max: _ZSTANDARD_WINDOW_LOG}
    stream: ByteStream = zstd.ZstdFile(raw, options=options)
    return stream


# First bytes → name of the format, and what opens it.
_OPENERS: dict[bytes, tuple[str, Callable[[str, IO[bytes]], ByteStream]]] = {
    b"\x1f\x8b\x08": ("gzip", lambda path, raw: gzip.GzipFile(fileobj=raw)),
    b"BZh": ("bzip2", lambda path, raw: bz2.BZ2File(raw)),
    _ZSTANDARD_MAGIC: ("Zstandard", _open_zstandard),
    PARQUET_MAGIC: ("Parquet", open_parquet),
    ARROW_MAGIC: ("Arrow", open_arrow),
    ARROW_STREAM_MAGIC: ("Arrow", open_arrow),
}

"""Opens text files as streams of bytes: plain, compressed, or with rows that contain text.

A plain file can be read from any offset, so that several processes share it. Other files are
streams, which have to be read from their start, by one process: those compressed with gzip, bzip2
and Zstandard, and Arrow and Parquet files, whose rows are read as JSON lines. The first bytes of a
file tell its kind.
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
from typing import IO, Any, cast

from albert_tf import files
from albert_tf.data import row_files

try:
    zstd: Any = importlib.import_module("backports.zstd")
except ImportError:  # the extra `zstd` is not installed
    zstd = None

OPENED_AT_ONCE = 16  # because remote files answer slowly


@dataclasses.dataclass(frozen=True)
class Source:
    """A text file, of which only the first and the last byte have been looked at.

    Attributes:
        number: its position in the list of files, starting at 0.
        path: the file.
        size: its size in bytes, as stored.
        is_splittable: whether it can be read from any offset.
        has_rows: whether it is a Parquet or Arrow file.
    """

    number: int
    path: str
    size: int
    is_splittable: bool = True
    has_rows: bool = False


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
        has_rows = start.startswith(row_files.MAGICS)
        is_splittable = not (has_rows or start.startswith(tuple(_DECOMPRESSORS)))
        size = stream.seek(0, os.SEEK_END)
        return Source(number, path, size, is_splittable, has_rows)


def _open_gzip(path: str, raw: IO[bytes]) -> IO[bytes]:
    return cast("IO[bytes]", gzip.GzipFile(fileobj=raw))


def _open_bzip2(path: str, raw: IO[bytes]) -> IO[bytes]:
    return cast("IO[bytes]", bz2.BZ2File(raw))


def _open_zstandard(path: str, raw: IO[bytes]) -> IO[bytes]:
    if zstd is None:
        raise ValueError(
            f"{path}: reading Zstandard files requires backports.zstd: "
            "pip install 'albert-tf2[zstd]'"
        )
    options = {zstd.DecompressionParameter.window_log_max: _ZSTANDARD_WINDOW_LOG}
    return cast("IO[bytes]", zstd.ZstdFile(raw, options=options))


# First bytes → name of the format, and what opens it.
_DECOMPRESSORS: dict[bytes, tuple[str, Callable[[str, IO[bytes]], IO[bytes]]]] = {
    files.GZIP_MAGIC: ("gzip", _open_gzip),
    b"BZh": ("bzip2", _open_bzip2),
    b"\x28\xb5\x2f\xfd": ("Zstandard", _open_zstandard),
}
_MAGIC_BYTES = 8
_ZSTANDARD_WINDOW_LOG = 31  # the largest window, which `zstd --long=31` writes
_DAMAGED = (EOFError, OSError, zlib.error, *((zstd.ZstdError,) if zstd else ()))


@contextlib.contextmanager
def open_source(path: str) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Opens a text file.

    Yields:
        The stream of its text, and the stream of the bytes as stored, which tells the progress.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is compressed and damaged; raised where it is read.
    """
    with files.open_binary(path) as raw:
        start = raw.read(_MAGIC_BYTES)
        raw.seek(0)
        if start.startswith(row_files.MAGICS):
            yield row_files.open_rows(path, raw), raw
            return
        magic_number = next((magic for magic in _DECOMPRESSORS if start.startswith(magic)), None)
        if magic_number is None:
            yield raw, raw
            return
        name, open_compressed = _DECOMPRESSORS[magic_number]
        try:
            yield open_compressed(path, raw), raw
        except _DAMAGED as error:
            if (
                isinstance(error, OSError) and error.errno
            ):  # an error of the system, not of the content
                raise
            raise ValueError(f"{path}: corrupt {name} file: {error}") from None

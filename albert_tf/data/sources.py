"""Opens text files, plain or compressed, as streams of bytes.

A plain file can be read from any offset, so that several processes share it. A compressed file is a
stream: it has to be read from its start, by one process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import os
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO, cast

from albert_tf import files

OPENED_AT_ONCE = 16  # remote files answer slowly


@dataclasses.dataclass(frozen=True)
class Source:
    """A text file, of which only the first and the last byte have been looked at.

    Attributes:
        number: its position in the list of files, starting at 0.
        path: the file.
        size: its size in bytes, as stored.
        is_splittable: whether it can be read from any offset.
    """

    number: int
    path: str
    size: int
    is_splittable: bool = True


def find_sources(paths: Sequence[str]) -> list[Source]:
    """Returns the size and the kind of every file.

    Raises:
        FileNotFoundError: a file does not exist, or is not a file.
    """
    with ThreadPoolExecutor(OPENED_AT_ONCE) as pool:
        return list(pool.map(_inspect, range(len(paths)), paths))


def _inspect(number: int, path: str) -> Source:
    with files.open_binary(path) as stream:
        is_compressed = _is_compressed(stream)
        return Source(number, path, stream.seek(0, os.SEEK_END), not is_compressed)


def _is_compressed(stream: IO[bytes]) -> bool:
    """Returns whether a file that has just been opened is gzip-compressed."""
    return stream.read(len(files.GZIP_MAGIC)) == files.GZIP_MAGIC


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
        is_compressed = _is_compressed(raw)
        raw.seek(0)
        if not is_compressed:
            yield raw, raw
            return
        try:
            yield cast("IO[bytes]", gzip.GzipFile(fileobj=raw)), raw
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{path}: corrupt gzip file: {error}") from None

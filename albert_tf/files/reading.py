"""Reads local and remote files: bytes, and text in UTF-8."""

from __future__ import annotations

import codecs
import contextlib
import io
import itertools
import os
import tempfile
from collections.abc import Iterator
from typing import IO, cast

from albert_tf.files.messages import naming_file
from albert_tf.files.paths import (
    check_path,
    exists,
    file_system,
    is_directory,
    is_file,
    is_remote,
    looked_from,
)

MAX_WHOLE = 1 << 28  # bytes of a file that is read as a whole: configs, vocabularies, journals
MAX_LINE = 1 << 26  # bytes of a line, and of a value in JSON that is read value by value
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def open_binary(path: str) -> IO[bytes]:
    """Opens a file for reading bytes.

    Raises:
        FileNotFoundError: the file does not exist, or it is a directory, a pipe or a device.
    """
    require_file(path)
    if not is_remote(path):
        return open(path, "rb")
    system, name = file_system(path)
    return cast("IO[bytes]", system.open(name, "rb"))


def read_bytes(path: str) -> bytes:
    """Returns the content of a file that is not data of any size.

    Raises:
        FileNotFoundError: as in `open_binary`.
        ValueError: the file is larger than MAX_WHOLE.
    """
    with open_binary(path) as stream, naming_file(path):
        content = stream.read(MAX_WHOLE + 1)
    if len(content) > MAX_WHOLE:
        raise ValueError(f"{path}: larger than {MAX_WHOLE >> 20} MiB, expected a small file")
    return content


def read_lines(stream: IO[bytes], path: str) -> Iterator[bytes]:
    """Yields the lines of a stream with their line feeds.

    Args:
        stream: the content of a file, maybe unpacked: a small file can have any size then.
        path: the file, for messages.

    Raises:
        ValueError: a line is longer than MAX_LINE; the message names it.
    """
    if not isinstance(stream, io.BufferedIOBase):  # that of a store, whose lines have no limit
        stream = io.BufferedReader(cast("io.RawIOBase", stream))
    for number in itertools.count(1):
        line = stream.readline(MAX_LINE + 1)
        if len(line) > MAX_LINE:
            raise ValueError(
                f"{path}, line {number}: longer than {MAX_LINE >> 20} MiB. Is this a file of lines?"
            )
        if not line:
            return
        yield line


def read_text(path: str) -> str:
    r"""Returns the content of a UTF-8 file without its byte order mark.

    If its lines end in "\r" alone, as those of old Macs, "\n" takes its place.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is not UTF-8, and the message names the line; or see `read_bytes`.
    """
    text = decode_utf8(read_bytes(path), path).removeprefix("\ufeff")
    return text if "\n" in text else text.replace("\r", "\n")


def decode_utf8(data: bytes, path: str, first_line: int = 1) -> str:
    """Decodes `data`, a part of the file `path` that starts at line `first_line` (from 1).

    Raises:
        ValueError: the data are not UTF-8. The message names the file, the line and the byte.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = first_line + data.count(b"\n", 0, error.start)
        is_utf16 = first_line == 1 and data.startswith(_UTF16_MARKS)
        encoding = " UTF-16`" if is_utf16 else "` and its encoding"
        raise ValueError(
            f"{path}, line {line}: not UTF-8 (byte 0x{data[error.start]:02x}: {error.reason}). "
            f"Convert text with `iconv -t UTF-8 -f{encoding}"
        ) from None


def read_start(path: str, size: int) -> bytes:
    """Returns the first bytes of a file, by a single request if it is remote: at most `size`.

    Raises:
        FileNotFoundError: the file does not exist.
    """
    if not is_remote(path):
        with open_binary(path) as stream:
            return stream.read(size)
    system, name = file_system(path)
    return cast("bytes", system.cat_file(name, start=0, end=size))


def file_size(path: str) -> int:
    """Returns the size of a file in bytes."""
    require_file(path)
    system, name = file_system(path)
    return int(system.size(name))


@contextlib.contextmanager
def local_copy(path: str) -> Iterator[str]:
    """Yields the path of a local copy of a file or folder, for libraries that read local files.

    The copy of a remote path is removed at the end; a local path is yielded unchanged.
    """
    if not is_remote(path):
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        target = os.path.join(folder, os.path.basename(path.rstrip("/")))
        system, name = file_system(path)
        system.get(name, target, recursive=True)
        yield target


def require_file(path: str, begin: str = "") -> None:
    """Raises FileNotFoundError if `path` is not a file: pipes can be read only once."""
    if not is_file(path):
        if not exists(path):
            check_path(path, begin.removesuffix(": "))
        where = f"no such file{looked_from(path, 'file')}"
        found = "a directory" if is_directory(path) else "a pipe or a device"
        found = f"expected a file, but this is {found}" if exists(path) else where
        raise FileNotFoundError(f"{begin}{path}: {found}")

"""Opening, finding and safely writing files, local or remote.

Local paths need the standard library only. A path with a scheme (`gs://bucket/name`) goes through
`tf.io.gfile`, and TensorFlow is imported at that moment and not before.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import json
import os
import uuid
from collections.abc import Iterator, Mapping
from typing import IO, Any

GZIP_MAGIC = b"\x1f\x8b\x08"  # the first bytes of a file compressed with gzip
_FULL = (errno.ENOSPC, errno.EDQUOT)  # no space left on the disk, or of one's share of it


def is_remote(path: str) -> bool:
    """Whether `path` names a place that the standard library cannot open, such as `gs://…`."""
    return "://" in path


def _gfile() -> Any:
    import tensorflow as tf

    return tf.io.gfile


def open_binary(path: str) -> IO[bytes]:
    """Opens a file for reading bytes.

    Raises:
        FileNotFoundError: nothing is there, or it is a directory.
    """
    if is_remote(path):
        if not _gfile().exists(path):
            raise FileNotFoundError(f"{path}: no such file")
        stream: IO[bytes] = _gfile().GFile(path, "rb")
        return stream
    if os.path.isdir(path):
        raise FileNotFoundError(f"{path}: a file was expected, this is a directory")
    if not os.path.exists(path):
        raise FileNotFoundError(f"{path}: no such file (looked from {os.getcwd()})")
    return open(path, "rb")


def is_file(path: str) -> bool:
    """Whether there is a file of this name."""
    try:
        open_binary(path).close()
    except FileNotFoundError:
        return False
    return True


def file_size(path: str) -> int:
    """Size in bytes, as it is on disk."""
    with open_binary(path) as stream:
        stream.seek(0, os.SEEK_END)
        return stream.tell()


def read_text(path: str) -> str:
    """Reads a whole UTF-8 file, without its byte order mark if it has one.

    Raises:
        FileNotFoundError: nothing is there.
        ValueError: the file is not UTF-8; the text names the line.
    """
    with open_binary(path) as stream:
        return decode_utf8(stream.read(), path).removeprefix("\ufeff")


def read_json(path: str) -> dict[str, Any]:
    """Reads a file that is one JSON object.

    Raises:
        FileNotFoundError: nothing is there.
        ValueError: the file holds something else; names it.
    """
    try:
        values = json.loads(read_text(path))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path}: a JSON object was expected, {type(values).__name__} came")
    return values


def write_json(path: str, values: Mapping[str, Any]) -> None:
    """Writes a JSON object, indented and in the order of its keys, as Google's configs are."""
    with write_atomically(path) as stream:
        stream.write(json.dumps(values, indent=2, sort_keys=True) + "\n")


def decode_utf8(data: bytes, path: str, first_line: int = 1) -> str:
    """Decodes `data`, a piece of the file `path` that begins at line `first_line` (counted from 1).

    Raises:
        ValueError: not UTF-8; names the file, the line and the byte.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = first_line + data.count(b"\n", 0, error.start)
        raise ValueError(
            f"{path}, line {line}: not UTF-8 (byte 0x{data[error.start]:02x}: {error.reason}). "
            "Convert the file, for example with `iconv -f GB18030 -t UTF-8`."
        ) from None


def expand_patterns(patterns: str | list[str], what: str) -> list[str]:
    """Turns a comma list of file names and globs into the files that they match.

    Args:
        patterns: "a.txt,b/*.txt" or a list of such patterns.
        what: the flag or argument they came from, for the error.

    Returns:
        The files, sorted within a pattern, each once.

    Raises:
        ValueError: nothing was given, or a pattern matches no file.
    """
    if isinstance(patterns, str):
        patterns = patterns.split(",")
    patterns = [pattern.strip() for pattern in patterns if pattern.strip()]
    if not patterns:
        raise ValueError(f"{what}: at least one file name was expected, none came")
    found: dict[str, None] = {}
    for pattern in patterns:
        matches = _gfile().glob(pattern) if is_remote(pattern) else glob.glob(pattern)
        if not matches:
            raise ValueError(
                f"{what}: {pattern!r} matches no file (looked from {os.getcwd()}). "
                "Check the spelling, and quote globs so that the shell leaves them alone."
            )
        found.update(dict.fromkeys(sorted(matches)))
    return list(found)


def make_directory(path: str, what: str) -> None:
    """Makes `path` and its parents unless they exist, and checks that it can be written to.

    Raises:
        ValueError: it cannot be made or written to; names the flag or argument `what`.
    """
    if is_remote(path):
        _gfile().makedirs(path)
        return
    try:
        os.makedirs(path or ".", exist_ok=True)
        probe = os.path.join(path, f".probe-{uuid.uuid4().hex}")
        with open(probe, "wb"):
            pass
        os.remove(probe)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ValueError(f"{what}: cannot write into {path!r}: {reason}. Name another.") from None


@contextlib.contextmanager
def write_atomically(path: str, mode: str = "w") -> Iterator[IO[Any]]:
    """Opens a temporary file beside `path` and renames it to `path` once all is written.

    A reader sees the old content or the new, never half of it. When the body raises, the
    temporary file is removed and `path` stays as it was.

    Args:
        path: the final name; its directory must exist.
        mode: "w" for UTF-8 text or "wb" for bytes.
    """
    temporary = f"{path}.{uuid.uuid4().hex[:8]}.tmp"
    if is_remote(path):
        gfile = _gfile()
        with gfile.GFile(temporary, mode) as stream:
            yield stream
        gfile.rename(temporary, path, overwrite=True)
        return
    encoding = None if "b" in mode else "utf-8"
    try:
        with open(temporary, mode, encoding=encoding) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(FileNotFoundError):
            os.remove(temporary)
        if isinstance(error, OSError) and error.errno in _FULL and error.filename is None:
            advice = f"{error.strerror}; make room, then run the same command again"
            raise OSError(error.errno, advice, path) from None
        raise

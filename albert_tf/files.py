"""Opens, finds and safely writes local and remote files.

Local paths only need the standard library. Paths with a scheme (`gs://bucket/name`) are accessed
with `tf.io.gfile`; only then is TensorFlow imported. All failures, local and remote, raise OSError;
a scheme that TensorFlow does not support raises ValueError.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import glob
import io
import json
import os
import shutil
import sys
import tempfile
import threading
import types
import typing
import uuid
from collections.abc import Iterator, Mapping
from typing import IO, Any

BUILT_IN_SCHEMES = ("file", "gs", "ram")  # supported by TensorFlow without plugins
GZIP_MAGIC = b"\x1f\x8b\x08"  # the first bytes of a file compressed with gzip
_WITHOUT_NETWORK = ("file://", "ram://")
_ANSWER_SECONDS = 60
_READ_BYTES = 2**20  # buffer size for remote files
_FULL = (errno.ENOSPC, errno.EDQUOT)  # the disk is full or the quota is exceeded


def is_remote(path: str) -> bool:
    """Returns whether `path` has a scheme, such as `gs://…`."""
    return "://" in path


def check_scheme(path: str, what: str = "") -> None:
    """Checks that the scheme of a path is supported; local paths always pass.

    Args:
        path: a file, a folder or a pattern.
        what: the flag or argument with the path, for the message.

    Raises:
        ValueError: TensorFlow does not support the scheme. The message lists those it supports.
    """
    scheme = path.partition("://")[0]
    if not is_remote(path) or scheme in BUILT_IN_SCHEMES:
        return
    known = set(BUILT_IN_SCHEMES)
    if "tensorflow" in sys.modules:  # plugins register schemes with TensorFlow
        known |= set(sys.modules["tensorflow"].io.gfile.get_registered_schemes())
    if scheme not in known:
        # ram:// is only for tests: its files vanish with the process.
        listed = ", ".join(f"{name}://" for name in sorted(known - {"", "ram"}))
        raise ValueError(
            f"{what and what + ': '}{path}: {scheme}:// is not supported. Expected a local path or "
            f"one of {listed}. Schemes such as s3:// and hdfs:// need a plugin that registers them "
            "with TensorFlow, such as tensorflow-io."
        )


@functools.cache
def _await_answer(root: str) -> None:
    """Checks once for each `root` that its file system responds, even if with an error.

    TensorFlow silently repeats requests without a response for half an hour and more.

    Raises:
        OSError: there was no response in time.
    """
    import tensorflow as tf

    def ask() -> None:
        with contextlib.suppress(tf.errors.OpError):
            tf.io.gfile.exists(root)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_ANSWER_SECONDS)
    if thread.is_alive():
        reason = f"no response within {_ANSWER_SECONDS} seconds. Check the network and its proxy"
        raise OSError(errno.ETIMEDOUT, reason, root)


@contextlib.contextmanager
def _gfile(path: str) -> Iterator[Any]:
    """Yields `tf.io.gfile` for access to a remote path, and converts its errors to OSError.

    Raises:
        ValueError: the scheme is not supported.
    """
    check_scheme(path)
    if not path.startswith(_WITHOUT_NETWORK):
        scheme, _, rest = path.partition("://")
        _await_answer(f"{scheme}://{rest.split('/')[0]}")
    import tensorflow as tf

    numbers = {
        tf.errors.NotFoundError: errno.ENOENT,
        tf.errors.AlreadyExistsError: errno.EEXIST,
        tf.errors.PermissionDeniedError: errno.EACCES,
        tf.errors.UnauthenticatedError: errno.EACCES,
        tf.errors.ResourceExhaustedError: errno.ENOSPC,
    }
    try:
        yield tf.io.gfile
    except tf.errors.OpError as error:
        number = numbers.get(type(error), errno.EIO)
        reason = " ".join(error.message.split()) or os.strerror(number)
        if path.startswith("gs://") and number in (errno.EIO, errno.EACCES):
            reason += ". gs:// needs a network and `gcloud auth application-default login`"
        raise OSError(number, reason, path) from None


class _RemoteReader(io.RawIOBase):
    """A remote file as a binary Python stream, because GFile lacks some of a stream's methods."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        with _gfile(path) as gfile:
            self._stream = gfile.GFile(path, "rb")
            self._size = int(self._stream.size())

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with _gfile(self._path):
            data: bytes = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def tell(self) -> int:
        return int(self._stream.tell())

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self.tell(), os.SEEK_END: self._size}[whence]
        with _gfile(self._path):
            self._stream.seek(start + offset)
        return start + offset

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()


def open_binary(path: str) -> IO[bytes]:
    """Opens a file for reading bytes.

    Raises:
        FileNotFoundError: the file does not exist, or it is a directory, a pipe or a device.
    """
    if is_directory(path):
        raise FileNotFoundError(f"{path}: expected a file, but this is a directory")
    if not exists(path):
        looked = "" if is_remote(path) else f" (current directory: {os.getcwd()})"
        raise FileNotFoundError(f"{path}: no such file{looked}")
    if is_remote(path):
        return io.BufferedReader(_RemoteReader(path), _READ_BYTES)
    if not os.path.isfile(path):  # opening a pipe blocks, and files may be read more than once
        raise FileNotFoundError(
            f"{path}: expected a file, but this is a pipe or a device. Copy its content to a file"
        )
    return open(path, "rb")


def exists(path: str) -> bool:
    """Returns whether a file or directory exists."""
    if not is_remote(path):
        return os.path.exists(path)
    with _gfile(path) as gfile:
        return bool(gfile.exists(path))


def is_file(path: str) -> bool:
    """Returns whether `path` exists and is not a directory; pipes count, `open_binary` fails."""
    return exists(path) and not is_directory(path)


def is_directory(path: str) -> bool:
    """Returns whether `path` is an existing directory."""
    if not is_remote(path):
        return os.path.isdir(path)
    try:
        with _gfile(path) as gfile:
            # Unlike `isdir`, `stat` raises an error if the file system cannot be reached.
            return bool(gfile.stat(path).is_directory)
    except FileNotFoundError:
        return False


def list_directory(path: str) -> list[str]:
    """Returns the sorted names of the entries of a directory.

    Raises:
        FileNotFoundError: the directory does not exist.
    """
    if not is_remote(path):
        return sorted(os.listdir(path or "."))
    with _gfile(path) as gfile:
        return sorted(name.rstrip("/") for name in gfile.listdir(path))


def remove(path: str) -> None:
    """Removes a file."""
    if not is_remote(path):
        os.remove(path)
        return
    with _gfile(path) as gfile:
        gfile.remove(path)


def remove_tree(path: str) -> None:
    """Removes a directory and its contents."""
    if not is_remote(path):
        shutil.rmtree(path)
        return
    with _gfile(path) as gfile:
        gfile.rmtree(path)


def rename(source: str, target: str) -> None:
    """Renames a file, replacing `target` if that exists, or a directory."""
    if not is_remote(source):
        os.replace(source, target)
        return
    with _gfile(source) as gfile:
        gfile.rename(source, target, overwrite=True)


def copy(source: str, target: str) -> None:
    """Copies a file, replacing `target` if that exists. Either path may be remote."""
    if not (is_remote(source) or is_remote(target)):
        shutil.copyfile(source, target)
        return
    check_scheme(target)
    with _gfile(source if is_remote(source) else target) as gfile:
        gfile.copy(source, target, overwrite=True)


def join(directory: str, path: str) -> str:
    """Joins `directory` and a relative `path`; returns absolute and remote paths unchanged."""
    return path if is_remote(path) else os.path.join(directory, path)


def real_path(path: str) -> str:
    """Returns the canonical absolute path, without symbolic links; a remote path unchanged."""
    return path if is_remote(path) else os.path.realpath(path)


def file_size(path: str) -> int:
    """Returns the size of a file in bytes."""
    with open_binary(path) as stream:
        stream.seek(0, os.SEEK_END)
        return stream.tell()


def read_text(path: str) -> str:
    """Returns the content of a UTF-8 file without its byte order mark.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is not UTF-8. The message names the line.
    """
    with open_binary(path) as stream:
        return decode_utf8(stream.read(), path).removeprefix("\ufeff")


def read_json(path: str) -> dict[str, Any]:
    """Reads a file that contains one JSON object.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is not UTF-8, or `parse_json` rejects it.
    """
    return parse_json(read_text(path), path)


def parse_json(text: str, place: str) -> dict[str, Any]:
    """Parses a JSON object.

    Args:
        text: the JSON text.
        place: the file, or file and line, for the message.

    Raises:
        ValueError: the text is not a JSON object, a key occurs twice, or a string is not valid
            Unicode. The message names the place.
    """
    try:
        return _parse_object(text)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None


def read_own_json(path: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Reads a file with one JSON object written by a program of this package.

    Args:
        path: the file.
        fields: as in `parse_own_json`.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is damaged or was written by another program.
    """
    return parse_own_json(read_text(path), fields, path)


def read_own_json_lines(path: str, fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Reads a file with one JSON object per line written by a program of this package.

    Args:
        path: the file.
        fields: as in `parse_own_json`.

    Returns:
        The objects; [] if the file does not exist.

    Raises:
        ValueError: the file is damaged or was written by another program. The message names the
            line.
    """
    text = read_text(path) if exists(path) else ""
    lines = text.removesuffix("\n").split("\n") if text else []
    return [
        parse_own_json(line, fields, f"{path}, line {number}")
        for number, line in enumerate(lines, 1)
    ]


def parse_own_json(text: str, fields: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Parses a JSON object written by a program of this package.

    Args:
        text: the JSON text.
        fields: name → type of required values. Types are int, float, str, bool, dict, `list[…]` or
            `dict[str, …]` of these, or `… | None` for optional values. The object may contain
            other values.
        place: the file, or file and line, for the message.

    Raises:
        ValueError: the text is not such an object. The message says what was expected.
    """
    try:
        values = _parse_object(text)
        for name, kind in fields.items():
            if not _is_of(values.get(name), kind):
                found = repr(values[name])[:50] if name in values else "missing"
                expected = str(kind) if typing.get_origin(kind) else kind.__name__
                raise ValueError(f"{name!r} is {found}, expected {expected}")
    except ValueError as error:
        raise ValueError(
            f"{place}: not written by this program, or damaged since ({error}). Move the file "
            "away or restore it from a backup"
        ) from None
    return values


def _is_of(value: Any, kind: Any) -> bool:
    """Returns whether a value parsed from JSON has a type as described in `parse_own_json`."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        return any(_is_of(value, part) for part in parts)
    if origin is list:
        return isinstance(value, list) and all(_is_of(item, parts[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict) and all(_is_of(item, parts[1]) for item in value.values())
    if kind is float:
        return type(value) in (int, float)
    return type(value) is kind  # not isinstance, because bool is a subclass of int


def _parse_object(text: str) -> dict[str, Any]:
    try:
        values = json.loads(text, object_pairs_hook=_unique_keys)
        if "\\u" in text:
            json.dumps(values, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("an unpaired surrogate (\\ud8…), which is not a character") from None
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None
    if not isinstance(values, dict):
        raise ValueError(f"expected a JSON object, got {type(values).__name__}")
    return values


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns a dict of the pairs; `json.loads` by itself would silently accept duplicate keys."""
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} occurs twice; remove one of them")
    return values


def write_json(path: str, values: Mapping[str, Any]) -> None:
    """Writes a JSON object with indentation and sorted keys, like Google's configs."""
    with write_atomically(path) as stream:
        stream.write(json.dumps(values, indent=2, sort_keys=True) + "\n")


def decode_utf8(data: bytes, path: str, first_line: int = 1) -> str:
    """Decodes `data`, a part of the file `path` that starts at line `first_line` (from 1).

    Raises:
        ValueError: the data are not UTF-8. The message names the file, the line and the byte.
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
    """Returns the files that match a comma-separated list of file names and glob patterns.

    Args:
        patterns: "a.txt,b/*.txt" or a list of such patterns.
        what: the flag or argument with the patterns, for the message.

    Returns:
        The files without duplicates, sorted within each pattern.

    Raises:
        ValueError: there is no pattern, or a pattern matches no file.
    """
    if isinstance(patterns, str):
        patterns = patterns.split(",")
    patterns = [pattern.strip() for pattern in patterns if pattern.strip()]
    if not patterns:
        raise ValueError(f"{what}: expected at least one file name, got none")
    found: dict[str, None] = {}
    for pattern in patterns:
        check_scheme(pattern, what)
        matches = _glob_remote(pattern) if is_remote(pattern) else glob.glob(pattern)
        if not matches:
            looked = "" if is_remote(pattern) else f" (current directory: {os.getcwd()})"
            raise ValueError(
                f"{what}: {pattern!r} matches no file{looked}. "
                "Check the spelling, and quote glob patterns to keep the shell from expanding them."
            )
        found.update(dict.fromkeys(sorted(matches)))
    return list(found)


def _glob_remote(pattern: str) -> list[str]:
    try:
        with _gfile(pattern) as gfile:
            return list(gfile.glob(pattern))
    except FileNotFoundError:  # the folder does not exist
        return []


def make_directory(path: str, what: str) -> None:
    """Creates a directory and its parents unless they exist, and checks that it is writable.

    Raises:
        ValueError: the directory cannot be created or written to. The message names `what`, the
            flag or argument.
    """
    check_scheme(path, what)
    try:
        if is_remote(path):
            with _gfile(path) as gfile:
                gfile.makedirs(path)
        else:
            os.makedirs(path or ".", exist_ok=True)
        probe = os.path.join(path, f".probe-{uuid.uuid4().hex}")
        with write_atomically(probe):
            pass
        remove(probe)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ValueError(f"{what}: cannot write to {path!r}: {reason}. Choose another.") from None


@contextlib.contextmanager
def made_directory(path: str, what: str) -> Iterator[bool]:
    """Creates a directory like `make_directory`, and removes it if the block fails before using it.

    Yields:
        Whether the directory was created; False if it is remote, as these are never removed.
    """
    missing, folder = [], real_path(path)
    while not is_remote(folder) and not os.path.exists(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    try:
        make_directory(path, what)
        yield bool(missing)
    except BaseException:
        for folder in missing:  # the longest path first
            with contextlib.suppress(OSError):  # it is not empty
                os.rmdir(folder)
        raise


def check_file(path: str, what: str) -> None:
    """Raises FileNotFoundError, naming the flag or argument `what`, if `path` is not a file."""
    check_scheme(path, what)
    try:
        open_binary(path).close()
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{what}: {error}") from None


def check_directory(path: str, what: str) -> None:
    """Raises FileNotFoundError, naming the flag or argument `what`, if there is no directory."""
    check_scheme(path, what)
    if not is_directory(path):
        looked = "" if is_remote(path) else f" (current directory: {os.getcwd()})"
        raise FileNotFoundError(f"{what}: {path}: no such directory{looked}")


def check_writable(path: str, what: str) -> None:
    """Checks that a directory can probably be created and written to, without changing anything.

    Raises:
        ValueError: the directory cannot be created or written to, or its scheme is not supported.
    """
    check_scheme(path, what)
    if is_remote(path):
        return
    folder = os.path.abspath(path)
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    is_folder = os.path.isdir(folder)
    if not (is_folder and os.access(folder, os.W_OK | os.X_OK)):
        reason = os.strerror(errno.EACCES if is_folder else errno.ENOTDIR)
        raise ValueError(f"{what}: cannot write to {path!r}: {reason}. Choose another.")


def check_replaceable(path: str) -> None:
    """Raises ValueError if `path` is a directory, a pipe or a device, which no file may replace."""
    if not is_remote(path) and os.path.exists(path) and not os.path.isfile(path):
        kind = "directory" if os.path.isdir(path) else "pipe or a device"
        raise ValueError(f"{path}: cannot write a file here, this is a {kind}. Choose another name")


@contextlib.contextmanager
def write_atomically(path: str, mode: str = "w") -> Iterator[IO[Any]]:
    """Opens a temporary file for writing and renames it to `path` when the block succeeds.

    Readers see either the old or the new content, never a partial file. If the block raises an
    error, the temporary file is removed and `path` is unchanged.

    For a remote path the temporary file is local and copied at the end, because a remote stream
    lacks methods of Python's files, and closing it after an error would store a partial file.

    Args:
        path: the final name; its directory must exist.
        mode: "w" for UTF-8 text or "wb" for bytes.

    Raises:
        ValueError: `path` is a directory, a pipe or a device.
    """
    check_replaceable(path)
    if is_remote(path):
        check_scheme(path)
        with tempfile.TemporaryDirectory() as folder:
            local = os.path.join(folder, "content")
            with open(local, mode, encoding=None if "b" in mode else "utf-8") as stream:
                yield stream
            with _temporary_name(path) as temporary:
                copy(local, temporary)
        return
    with (
        _temporary_name(path) as temporary,
        open(temporary, mode, encoding=None if "b" in mode else "utf-8") as stream,
    ):
        yield stream
        stream.flush()
        os.fsync(stream.fileno())


@contextlib.contextmanager
def _temporary_name(path: str) -> Iterator[str]:
    """Yields a temporary name next to `path`, and renames the file written there to `path`."""
    temporary = f"{path}.{uuid.uuid4().hex[:8]}.tmp"
    try:
        yield temporary
        rename(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            remove(temporary)
        if isinstance(error, OSError) and error.errno in _FULL and error.filename is None:
            advice = f"{error.strerror}. Free some space and run the same command again"
            raise OSError(error.errno, advice, path) from None
        raise

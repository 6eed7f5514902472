"""Opening, finding and safely writing files, local or remote.

Local paths need the standard library only. A path with a scheme (`gs://bucket/name`) goes through
`tf.io.gfile`, and TensorFlow is imported at that moment and not before. Whatever goes wrong, local
or remote, is an OSError; a scheme that TensorFlow does not have is a ValueError.
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

BUILT_IN_SCHEMES = ("file", "gs", "ram")  # what TensorFlow opens without plugins
GZIP_MAGIC = b"\x1f\x8b\x08"  # the first bytes of a file compressed with gzip
_WITHOUT_NETWORK = ("file://", "ram://")
_ANSWER_SECONDS = 60
_READ_BYTES = 2**20  # of a remote file at a time
_FULL = (errno.ENOSPC, errno.EDQUOT)  # no space left on the disk, or of one's share of it


def is_remote(path: str) -> bool:
    """Whether `path` names a place that the standard library cannot open, such as `gs://…`."""
    return "://" in path


def check_scheme(path: str, what: str = "") -> None:
    """Checks that there is a file system for the scheme of a path; local paths pass.

    Args:
        path: a file, a folder or a pattern.
        what: the flag or argument it came from, for the error.

    Raises:
        ValueError: TensorFlow has none for it; says which schemes there are.
    """
    scheme = path.partition("://")[0]
    if not is_remote(path) or scheme in BUILT_IN_SCHEMES:
        return
    known = set(BUILT_IN_SCHEMES)
    if "tensorflow" in sys.modules:  # else no plugin can have registered others
        known |= set(sys.modules["tensorflow"].io.gfile.get_registered_schemes())
    if scheme not in known:
        # In ram:// files end with the process: for tests.
        listed = ", ".join(f"{name}://" for name in sorted(known - {"", "ram"}))
        raise ValueError(
            f"{what and what + ': '}{path}: {scheme}:// is not supported. Expected a local path or "
            f"one of {listed}. Schemes such as s3:// and hdfs:// need a plugin that registers them "
            "with TensorFlow, such as tensorflow-io."
        )


@functools.cache
def _await_answer(root: str) -> None:
    """Waits, once for each `root`, until its file system answers anything, be it an error.

    TensorFlow repeats requests that get no answer for half an hour and more, without a word.

    Raises:
        OSError: there was no answer in time.
    """
    import tensorflow as tf

    def ask() -> None:
        with contextlib.suppress(tf.errors.OpError):
            tf.io.gfile.exists(root)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_ANSWER_SECONDS)
    if thread.is_alive():
        reason = f"no answer within {_ANSWER_SECONDS} seconds. Check the network and its proxy"
        raise OSError(errno.ETIMEDOUT, reason, root)


@contextlib.contextmanager
def _gfile(path: str) -> Iterator[Any]:
    """Yields `tf.io.gfile` for work on a remote path, and raises its errors as OSError.

    Raises:
        ValueError: as `check_scheme`.
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
    """The bytes of a remote file, as a stream of Python: a GFile lacks some of its methods."""

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
        FileNotFoundError: nothing is there, or it is a directory, a pipe or a device.
    """
    if is_directory(path):
        raise FileNotFoundError(f"{path}: a file was expected, this is a directory")
    if not exists(path):
        looked = "" if is_remote(path) else f" (looked from {os.getcwd()})"
        raise FileNotFoundError(f"{path}: no such file{looked}")
    if is_remote(path):
        return io.BufferedReader(_RemoteReader(path), _READ_BYTES)
    if not os.path.isfile(path):  # opening a pipe waits for its writer, and files are read twice
        raise FileNotFoundError(
            f"{path}: a file was expected, this is a pipe or a device; copy its content into a file"
        )
    return open(path, "rb")


def exists(path: str) -> bool:
    """Whether there is a file or a directory of this name."""
    if not is_remote(path):
        return os.path.exists(path)
    with _gfile(path) as gfile:
        return bool(gfile.exists(path))


def is_file(path: str) -> bool:
    """Whether there is a file of this name; also for a pipe, so that `open_binary` names it."""
    return exists(path) and not is_directory(path)


def is_directory(path: str) -> bool:
    """Whether there is a directory of this name."""
    if not is_remote(path):
        return os.path.isdir(path)
    try:
        with _gfile(path) as gfile:
            # `isdir` answers False as well where the file system cannot be reached.
            return bool(gfile.stat(path).is_directory)
    except FileNotFoundError:
        return False


def list_directory(path: str) -> list[str]:
    """Returns the names in a directory, sorted.

    Raises:
        FileNotFoundError: there is no such directory.
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
    """Removes a directory with everything in it."""
    if not is_remote(path):
        shutil.rmtree(path)
        return
    with _gfile(path) as gfile:
        gfile.rmtree(path)


def rename(source: str, target: str) -> None:
    """Renames a file, in place of `target` if that exists, or a directory."""
    if not is_remote(source):
        os.replace(source, target)
        return
    with _gfile(source) as gfile:
        gfile.rename(source, target, overwrite=True)


def copy(source: str, target: str) -> None:
    """Copies the content of a file, in place of `target` if that exists; either may be remote."""
    if not (is_remote(source) or is_remote(target)):
        shutil.copyfile(source, target)
        return
    check_scheme(target)
    with _gfile(source if is_remote(source) else target) as gfile:
        gfile.copy(source, target, overwrite=True)


def join(directory: str, path: str) -> str:
    """Returns `path` as seen from `directory`; absolute and remote paths as they are."""
    return path if is_remote(path) else os.path.join(directory, path)


def real_path(path: str) -> str:
    """Returns a path's absolute form without links, to compare it; a remote path as it is."""
    return path if is_remote(path) else os.path.realpath(path)


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
        ValueError: not UTF-8, or as `parse_json`; names the file.
    """
    return parse_json(read_text(path), path)


def parse_json(text: str, place: str) -> dict[str, Any]:
    """Parses a JSON object.

    Args:
        text: the JSON.
        place: where it stands, for errors: a file, or a line of it.

    Raises:
        ValueError: it is something else, an object that has a key twice, or one with text that is
            no Unicode; names the place.
    """
    try:
        return _parse_object(text)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None


def read_own_json(path: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Reads a file that a program of this package has written: one JSON object.

    Args:
        path: the file.
        fields: as in `parse_own_json`.

    Raises:
        FileNotFoundError: nothing is there.
        ValueError: it is damaged, or somebody else's.
    """
    return parse_own_json(read_text(path), fields, path)


def read_own_json_lines(path: str, fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Reads a file that a program of this package has written: a JSON object a line.

    Args:
        path: the file.
        fields: as in `parse_own_json`.

    Returns:
        the objects; [] where there is no file.

    Raises:
        ValueError: it is damaged, or somebody else's; names the line.
    """
    text = read_text(path) if exists(path) else ""
    lines = text.removesuffix("\n").split("\n") if text else []
    return [
        parse_own_json(line, fields, f"{path}, line {number}")
        for number, line in enumerate(lines, 1)
    ]


def parse_own_json(text: str, fields: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Parses a JSON object that a program of this package has written.

    Args:
        text: the object.
        fields: name → type of the values that it must have, among others: int, float, str, bool,
            dict, `list[…]` or `dict[str, …]` of these, or `… | None` for a value that may be
            missing.
        place: the file, and the line if it has several; for the error.

    Raises:
        ValueError: it is something else; says what was expected.
    """
    try:
        values = _parse_object(text)
        for name, kind in fields.items():
            if not _is_of(values.get(name), kind):
                came = repr(values[name])[:50] if name in values else "missing"
                expected = str(kind) if typing.get_origin(kind) else kind.__name__
                raise ValueError(f"{name!r} is {came}, {expected} was expected")
    except ValueError as error:
        raise ValueError(
            f"{place}: not written by this program, or damaged since ({error}); move the file "
            "away, or bring it back from a copy"
        ) from None
    return values


def _is_of(value: Any, kind: Any) -> bool:
    """Whether a value that was read from JSON is of a type, as in `parse_own_json`."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        return any(_is_of(value, part) for part in parts)
    if origin is list:
        return isinstance(value, list) and all(_is_of(item, parts[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict) and all(_is_of(item, parts[1]) for item in value.values())
    if kind is float:
        return type(value) in (int, float)
    return type(value) is kind  # not isinstance: true and false are integers in Python


def _parse_object(text: str) -> dict[str, Any]:
    try:
        values = json.loads(text, object_pairs_hook=_unique_keys)
        if "\\u" in text:
            json.dumps(values, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("half a surrogate pair (\\ud8…), which is no character") from None
    except RecursionError:
        raise ValueError("JSON that is nested too deeply") from None
    if not isinstance(values, dict):
        raise ValueError(f"a JSON object was expected, {type(values).__name__} came")
    return values


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns a JSON object of its pairs, for `json.loads`, which would keep the last of equals."""
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} is there twice; remove one of them")
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
        check_scheme(pattern, what)
        matches = _glob_remote(pattern) if is_remote(pattern) else glob.glob(pattern)
        if not matches:
            looked = "" if is_remote(pattern) else f" (looked from {os.getcwd()})"
            raise ValueError(
                f"{what}: {pattern!r} matches no file{looked}. "
                "Check the spelling, and quote globs so that the shell leaves them alone."
            )
        found.update(dict.fromkeys(sorted(matches)))
    return list(found)


def _glob_remote(pattern: str) -> list[str]:
    try:
        with _gfile(pattern) as gfile:
            return list(gfile.glob(pattern))
    except FileNotFoundError:  # of the folder
        return []


def make_directory(path: str, what: str) -> None:
    """Makes `path` and its parents unless they exist, and checks that it can be written to.

    Raises:
        ValueError: it cannot be made or written to; names the flag or argument `what`.
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
        raise ValueError(f"{what}: cannot write into {path!r}: {reason}. Name another.") from None


@contextlib.contextmanager
def made_directory(path: str, what: str) -> Iterator[bool]:
    """Makes a directory as `make_directory`; where the block fails and left it empty, removes it.

    Yields:
        whether it did not exist before; False for a remote one, which is never removed.
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
            with contextlib.suppress(OSError):  # there is something in it
                os.rmdir(folder)
        raise


def check_file(path: str, what: str) -> None:
    """Raises FileNotFoundError that names the flag or argument `what` if `path` is no file."""
    check_scheme(path, what)
    try:
        open_binary(path).close()
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{what}: {error}") from None


def check_directory(path: str, what: str) -> None:
    """Raises FileNotFoundError that names the flag or argument `what` if `path` is no directory."""
    check_scheme(path, what)
    if not is_directory(path):
        looked = "" if is_remote(path) else f" (looked from {os.getcwd()})"
        raise FileNotFoundError(f"{what}: {path}: no such directory{looked}")


def check_writable(path: str, what: str) -> None:
    """Checks that a directory can be made and written to, as far as is known without doing so.

    Raises:
        ValueError: as `make_directory`, or as `check_scheme`.
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
        raise ValueError(f"{what}: cannot write into {path!r}: {reason}. Name another.")


def check_replaceable(path: str) -> None:
    """Raises ValueError if `path` is a directory, a pipe or a device: no file may replace it."""
    if not is_remote(path) and os.path.exists(path) and not os.path.isfile(path):
        kind = "directory" if os.path.isdir(path) else "pipe or a device"
        raise ValueError(f"{path}: a file is to be written here, this is a {kind}; name another")


@contextlib.contextmanager
def write_atomically(path: str, mode: str = "w") -> Iterator[IO[Any]]:
    """Opens a temporary file, and gives it the name `path` once all is written.

    A reader sees the old content or the new, never half of it. When the body raises, the
    temporary file is removed and `path` stays as it was.

    For a remote path the temporary file is a local one, which is copied at the end: a remote stream
    lacks methods of Python's files, and closing it after an error would store what is there so far.

    Args:
        path: the final name; its directory must exist.
        mode: "w" for UTF-8 text or "wb" for bytes.

    Raises:
        ValueError: as `check_replaceable`.
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
    """Yields a name beside `path`; the body writes that file, which then is renamed to `path`."""
    temporary = f"{path}.{uuid.uuid4().hex[:8]}.tmp"
    try:
        yield temporary
        rename(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            remove(temporary)
        if isinstance(error, OSError) and error.errno in _FULL and error.filename is None:
            advice = f"{error.strerror}; make room, then run the same command again"
            raise OSError(error.errno, advice, path) from None
        raise

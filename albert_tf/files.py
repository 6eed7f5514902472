"""Opens, finds and safely writes local and remote files.

Local paths only need the standard library. Paths with a scheme (`s3://bucket/name`) are accessed
with fsspec (see `remote`), which is only then imported. All failures, local and remote, raise
OSError; a scheme that is not supported raises ValueError.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import glob
import io
import itertools
import json
import os
import posixpath
import shutil
import tempfile
import types
import typing
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

from albert_tf import remote
from albert_tf.remote import is_remote as is_remote

GZIP_MAGIC = b"\x1f\x8b\x08"  # the first bytes of a file compressed with gzip
Paths = str | Iterable[str] | None
MAX_LISTED, MAX_SHOWN = 10, 50  # values in a message, and characters of each
_FULL = (errno.ENOSPC, errno.EDQUOT)  # the disk is full or the quota is exceeded


def open_binary(path: str) -> IO[bytes]:
    """Opens a file for reading bytes.

    Raises:
        FileNotFoundError: the file does not exist, or it is a directory, a pipe or a device.
    """
    _check_readable(path)
    return remote.open_binary(path) if is_remote(path) else open(path, "rb")


def open_unbuffered(path: str) -> io.RawIOBase:
    """Opens a file for reading parts of it; each `read` reads just as many bytes, if it has them.

    Raises:
        FileNotFoundError: as `open_binary`.
    """
    _check_readable(path)
    return remote.open_unbuffered(path) if is_remote(path) else open(path, "rb", buffering=0)


def read_ranges(path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
    """Returns the bytes of a file in each range, given by its begin and its end.

    Those of a remote file are requested at the same time.
    """
    if is_remote(path):
        return remote.read_ranges(path, ranges)
    found = []
    with open_unbuffered(path) as stream:
        for begin, end in ranges:
            stream.seek(begin)
            found.append(stream.read(end - begin) or b"")
    return found


def _check_readable(path: str) -> None:
    """Raises FileNotFoundError if `path` is not a file."""
    kind = _kind(path)
    if kind == "directory":
        raise FileNotFoundError(f"{path}: expected a file, but this is a directory")
    if not kind:
        looked = "" if is_remote(path) else f" (current directory: {os.getcwd()})"
        raise FileNotFoundError(f"{path}: no such file{looked}")
    # Opening a pipe blocks, and files may be read more than once.
    if not is_remote(path) and not os.path.isfile(path):
        raise FileNotFoundError(
            f"{path}: expected a file, but this is a pipe or a device. Copy its content to a file"
        )


def _kind(path: str) -> str:
    """Returns "file" or "directory", or "" if the path does not exist."""
    if is_remote(path):
        found = remote.describe(path)
        return str(found["type"]) if found else ""
    if os.path.isdir(path):
        return "directory"
    return "file" if os.path.exists(path) else ""


def exists(path: str) -> bool:
    """Returns whether a file or directory exists."""
    return bool(_kind(path))


def is_file(path: str) -> bool:
    """Returns whether `path` exists and is not a directory; pipes count, `open_binary` fails."""
    return _kind(path) not in ("", "directory")


def is_directory(path: str) -> bool:
    """Returns whether `path` is an existing directory; on an object store, whether it has files."""
    return _kind(path) == "directory"


def list_directory(path: str) -> list[str]:
    """Returns the sorted names of the entries of a directory.

    Raises:
        FileNotFoundError: the directory does not exist.
    """
    if not is_remote(path):
        return sorted(os.listdir(path or "."))
    return remote.list_directory(path)


def remove(path: str) -> None:
    """Removes a file."""
    if is_remote(path):
        remote.remove(path)
    else:
        os.remove(path)


def remove_tree(path: str) -> None:
    """Removes a directory and its contents."""
    if is_remote(path):
        remote.remove_tree(path)
    else:
        shutil.rmtree(path)


def rename(source: str, target: str) -> None:
    """Renames a file, replacing `target` if that exists, or a local directory."""
    if is_remote(source):
        remote.rename(source, target)
    else:
        os.replace(source, target)


def copy(source: str, target: str) -> None:
    """Copies a file, replacing `target` if that exists. Either path may be remote.

    A remote `target` is never seen incomplete.
    """
    if not is_remote(target):
        copy_local = remote.download if is_remote(source) else shutil.copyfile
        copy_local(source, target)
    elif not is_remote(source):
        remote.upload(source, target)
    elif remote.scheme_of(source) == remote.scheme_of(target):
        remote.copy(source, target)
    else:
        with tempfile.TemporaryDirectory() as folder:
            local = os.path.join(folder, "content")
            remote.download(source, local)
            remote.upload(local, target)


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
        _download_tree(path, target)
        yield target


def _download_tree(source: str, target: str) -> None:
    if not is_directory(source):
        remote.download(source, target)
        return
    os.mkdir(target)
    for name in remote.list_directory(source):
        _download_tree(f"{source.rstrip('/')}/{name}", os.path.join(target, name))


@contextlib.contextmanager
def new_directory(path: str, what: str) -> Iterator[str]:
    """Yields an empty local directory, which becomes `path` when the block succeeds.

    If the block fails, the directory is removed. A remote `path` is uploaded file by file, those
    in the directory itself last, because they tell readers that it is complete.

    Args:
        path: the final name, which must not exist.
        what: the flag or argument with the path, for the message.

    Raises:
        ValueError: the directory cannot be created.
    """
    if is_remote(path):
        with tempfile.TemporaryDirectory() as folder:
            yield folder
            _upload_tree(folder, path, what)
        return
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}-{uuid.uuid4().hex[:8]}.tmp")
    make_directory(temporary, what)
    try:
        yield temporary
        rename(temporary, path)
    finally:
        with contextlib.suppress(OSError):  # the directory was renamed
            remove_tree(temporary)


def _upload_tree(source: str, target: str, what: str) -> None:
    make_directory(target, what)
    names = sorted(os.listdir(source))
    for name in sorted(names, key=lambda name: os.path.isfile(os.path.join(source, name))):
        local, path = os.path.join(source, name), f"{target}/{name}"
        if os.path.isdir(local):
            _upload_tree(local, path, what)
        else:
            remote.upload(local, path)


def join(directory: str, path: str) -> str:
    """Joins `directory` and a relative `path`; returns absolute and remote paths unchanged."""
    return path if is_remote(path) else os.path.join(directory, path)


def real_path(path: str) -> str:
    """Returns the canonical absolute path, without symbolic links; a remote path unchanged."""
    return path if is_remote(path) else os.path.realpath(path)


def file_size(path: str) -> int:
    """Returns the size of a file in bytes."""
    if is_remote(path) and (found := remote.describe(path)) and found["type"] == "file":
        return int(found["size"])
    with open_binary(path) as stream:
        stream.seek(0, os.SEEK_END)
        return stream.tell()


def version(path: str) -> int | str:
    """Returns a value that changes when a file is replaced.

    For a local file it is the modification time in nanoseconds. It is "" if a remote file system
    does not tell.
    """
    return remote.version(path) if is_remote(path) else os.stat(path).st_mtime_ns


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


def shown(value: object) -> str:
    """Returns the `repr` of a value found in a file, shortened for a message."""
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "…"


def listed(values: Collection[object]) -> str:
    """Returns the first of several values found in a file, for a message; "none" without values."""
    first = [shown(value) for value in itertools.islice(values, MAX_LISTED)]
    return ", ".join(first + ["…"] * (len(values) > MAX_LISTED)) or "none"


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


def read_own_json_lines(
    path: str, fields: Mapping[str, Any], is_appended_to: bool = False
) -> list[dict[str, Any]]:
    """Reads a file with one JSON object per line written by a program of this package.

    Args:
        path: the file.
        fields: as in `parse_own_json`.
        is_appended_to: whether the program appends lines, so that a kill may leave a part of the
            last one. It is ignored then.

    Returns:
        The objects; [] if the file does not exist.

    Raises:
        ValueError: the file is damaged or was written by another program. The message names the
            line.
    """
    text = read_text(path) if exists(path) else ""
    lines = text.removesuffix("\n").split("\n") if text else []
    # A line ends with a brace, and no part of it is an object.
    if is_appended_to and lines and not text.endswith(("}", "\n")):
        del lines[-1]
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
                found = shown(values[name]) if name in values else "missing"
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
        counts = collections.Counter(key for key, _ in pairs)
        twice = next(key for key, count in counts.items() if count > 1)
        raise ValueError(f"the key {shown(twice)} occurs twice; remove one of them")
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
        check_path(pattern, what)
        matches = (remote.expand_pattern if is_remote(pattern) else glob.glob)(pattern)
        if not matches:
            looked = f" (current directory: {os.getcwd()})"
            if is_remote(pattern):
                root = remote.root(pattern)
                looked = "" if exists(root) else f" ({root} does not exist)"
            raise ValueError(
                f"{what}: {pattern!r} matches no file{looked}. "
                "Check the spelling, and quote glob patterns to keep the shell from expanding them."
            )
        found.update(dict.fromkeys(sorted(matches)))
    return list(found)


def create_directory(path: str) -> None:
    """Creates a directory and its parents unless they exist."""
    if is_remote(path):
        remote.make_directory(path)
        return
    try:
        os.makedirs(path or ".", exist_ok=True)
    except RecursionError:  # it calls itself for each of a thousand parents
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), path) from None


def make_directory(path: str, what: str) -> None:
    """Creates a directory and its parents unless they exist, and checks that it is writable.

    Raises:
        ValueError: the directory cannot be created or written to. The message names `what`, the
            flag or argument.
    """
    check_path(path, what)
    try:
        create_directory(path)
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


def check_path(path: str, what: str = "") -> None:
    """Checks that a path means what it says: its scheme is supported, and no `~` is left in it.

    A shell replaces `~` only at the start of a word, and not in `--output_dir=~/run`.

    Args:
        path: a file, a folder or a pattern.
        what: the flag or argument with the path, for the message.

    Raises:
        ValueError: the scheme is not supported, its package is not installed, or the path begins
            with the home directory of a user, as `~` or `~name`.
    """
    remote.check_scheme(path, what)
    if path.startswith("~") and (expanded := os.path.expanduser(path)) != path:
        begin = what and what + ": "
        raise ValueError(
            f"{begin}{path}: the shell has not replaced ~. Write {expanded}, or ./{path} for a "
            "name that begins with ~"
        )


def check_file(path: str, what: str) -> None:
    """Raises FileNotFoundError, naming the flag or argument `what`, if `path` is not a file."""
    check_path(path, what)
    try:
        open_binary(path).close()
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{what}: {error}") from None


def check_directory(path: str, what: str) -> None:
    """Raises FileNotFoundError, naming the flag or argument `what`, if there is no directory."""
    check_path(path, what)
    if not is_directory(path):
        looked = "" if is_remote(path) else f" (current directory: {os.getcwd()})"
        raise FileNotFoundError(f"{what}: {path}: no such directory{looked}")


def check_writable(path: str, what: str) -> None:
    """Checks that a directory can probably be created and written to, without changing anything.

    Raises:
        ValueError: the directory cannot be created or written to, or `check_path` refuses it.
    """
    check_path(path, what)
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
    """Raises ValueError if `path` is a directory, a pipe or a device, which no file may replace.

    Also checks the path as `check_path` does.
    """
    check_path(path)
    if not is_remote(path) and os.path.exists(path) and not os.path.isfile(path):
        kind = "directory" if os.path.isdir(path) else "pipe or a device"
        raise ValueError(f"{path}: cannot write a file here, this is a {kind}. Choose another name")


def check_outputs(outputs: Mapping[str, Paths], inputs: Mapping[str, Paths]) -> None:
    """Checks, before any work, that files to write replace no input, whatever its name there.

    Args:
        outputs: flag → file or files to write.
        inputs: flag → file or files to read, or folders, all of whose files count.

    Raises:
        ValueError: a file to write is an input, or cannot be replaced (see `check_replaceable`).
            The message names both flags.
    """
    read = {_identity(path): flag for flag, paths in inputs.items() for path in _listed(paths)}
    for flag, paths in outputs.items():
        for path in _listed(paths):
            place, above = "", path if is_remote(path) else os.path.abspath(path)
            while place != above:  # the file, its folder, the folder of that, …
                place, above = above, os.path.dirname(above)
                if (other := read.get(_identity(place))) and exists(path):
                    raise ValueError(
                        f"{flag}: {path} is an input, {other}, and would be replaced. Choose "
                        "another name"
                    )
            check_replaceable(path)


def _listed(paths: Paths) -> Iterable[str]:
    return [paths] if paths and isinstance(paths, str) else paths or ()


def _identity(path: str) -> tuple[int, int] | str:
    """Returns what is equal for two names of one file or folder: links, `a/../b`, `file://`."""
    path = path.removeprefix("file://")
    if is_remote(path):
        scheme, _, name = path.partition("://")
        return f"{scheme}://{posixpath.normpath(name)}"
    try:
        found = os.stat(path)
    except OSError:
        return os.path.realpath(path)
    return found.st_dev, found.st_ino


@contextlib.contextmanager
def write_atomically(path: str, mode: str = "w") -> Iterator[IO[Any]]:
    """Opens a temporary file for writing and renames it to `path` when the block succeeds.

    Readers see either the old or the new content, never a partial file. If the block raises an
    error, the temporary file is removed and `path` is unchanged.

    For a remote path the temporary file is local and uploaded at the end, because a remote stream
    lacks methods of Python's files, and closing it after an error would store a partial file.

    Args:
        path: the final name; its directory must exist.
        mode: "w" for UTF-8 text or "wb" for bytes.

    Raises:
        ValueError: `check_replaceable` refuses the path.
    """
    check_replaceable(path)
    if is_remote(path):
        with tempfile.TemporaryDirectory() as folder:
            local = os.path.join(folder, "content")
            with open(local, mode, encoding=None if "b" in mode else "utf-8") as stream:
                yield stream
            remote.upload(local, path)
        return
    with (
        _temporary_name(path) as temporary,
        open(temporary, mode, encoding=None if "b" in mode else "utf-8") as stream,
    ):
        yield stream
        stream.flush()
        os.fsync(stream.fileno())


def append_text(path: str, text: str) -> None:
    """Appends text to a local file, which is created if needed, and flushes it to disk.

    If this fails, the file is as it was. A kill may leave a part of the text.

    Raises:
        OSError: the disk is full or cannot be written to.
    """
    data = memoryview(text.encode("utf-8"))
    with open(path, "ab", buffering=0) as stream:
        size = stream.tell()
        try:
            while data:
                data = data[stream.write(data) :]
            os.fsync(stream.fileno())
        except OSError as error:
            stream.truncate(size)
            _advise_if_full(error, path)
            raise


def _advise_if_full(error: BaseException, path: str) -> None:
    """Raises an OSError with the path and advice if the disk is full."""
    if isinstance(error, OSError) and error.errno in _FULL and error.filename is None:
        advice = f"{error.strerror}. Free some space and run the same command again"
        raise OSError(error.errno, advice, path) from None


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
        _advise_if_full(error, path)
        raise

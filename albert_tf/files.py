"""Opens, finds and safely writes local and remote files.

A path with a scheme, such as `gs://bucket/name`, belongs to a file system of fsspec, which is
imported on first use with the package that the scheme needs (an extra). Credentials, time limits
and errors are those of that package. Local files are opened, renamed and matched by Python itself:
fsspec moves files by copying them, and its patterns match hidden files.

Object stores have no directories, only names with slashes, and an object appears whole or not at
all, when its upload is complete.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import itertools
import json
import os
import re
import tempfile
import types
import typing
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import IO, Any, cast

from absl import logging

Paths = str | Iterable[str] | None
MAX_QUOTED = 10  # maximum number of values in a message
MAX_QUOTED_LENGTH = 50  # maximum length of a value in a message
HALF_WRITTEN = r"\.[0-9a-f]{8}\.tmp"  # what `write_atomically` appends to a name
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)  # the disk is full or the quota is exceeded


def is_remote(path: str) -> bool:
    """Returns whether `path` has a scheme, such as `gs://…`."""
    return "://" in path


def _file_system(path: str) -> tuple[Any, str]:
    """Returns the file system of a path, and the path in it.

    It is not kept, because a forked process must not use that of its parent; fsspec has a cache
    that knows.

    Raises:
        ValueError: the scheme is unknown, or its package is not installed.
    """
    from fsspec.core import url_to_fs
    from fsspec.implementations.local import LocalFileSystem

    if not is_remote(path):  # `url_to_fs` would expand "~" and "file:", which may be names
        return LocalFileSystem(), os.path.join(os.getcwd(), path)
    try:
        system, name = url_to_fs(path, use_listings_cache=False)  # other processes add files
    except (ImportError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None
    return system, name


def open_binary(path: str) -> IO[bytes]:
    """Opens a file for reading bytes.

    Raises:
        FileNotFoundError: the file does not exist, or it is a directory, a pipe or a device.
    """
    _require_file(path)
    if not is_remote(path):
        return open(path, "rb")
    system, name = _file_system(path)
    return cast("IO[bytes]", system.open(name, "rb"))


def read_bytes(path: str) -> bytes:
    """Returns the content of a file; errors as in `open_binary`."""
    with open_binary(path) as stream:
        return stream.read()


def _require_file(path: str, begin: str = "") -> None:
    """Raises FileNotFoundError if `path` is not a file: pipes can be read only once."""
    if not is_file(path):
        where = f"no such file (current directory: {os.getcwd()})"
        found = "a directory" if is_directory(path) else "a pipe or a device"
        found = f"expected a file, but this is {found}" if exists(path) else where
        raise FileNotFoundError(f"{begin}{path}: {found}")


def _type_of(path: str) -> str:
    """Returns fsspec's type of a remote path: "file" or "directory"; "" if it does not exist."""
    system, name = _file_system(path)
    try:
        return str(system.info(name)["type"])
    except FileNotFoundError:
        return ""


def exists(path: str) -> bool:
    """Returns whether a file or directory exists."""
    return bool(_type_of(path)) if is_remote(path) else os.path.exists(path)


def is_file(path: str) -> bool:
    """Returns whether a file exists; a pipe or a device is not a file."""
    return _type_of(path) == "file" if is_remote(path) else os.path.isfile(path)


def is_directory(path: str) -> bool:
    """Returns whether `path` is an existing directory; on an object store, whether it has files."""
    return _type_of(path) == "directory" if is_remote(path) else os.path.isdir(path)


def list_directory(path: str) -> list[str]:
    """Returns the sorted names of the entries of a directory.

    Raises:
        FileNotFoundError: the directory does not exist.
    """
    system, name = _file_system(path)
    entries = [entry.rstrip("/") for entry in system.ls(name, detail=False)]
    # An object may have the name of the directory itself with a slash.
    return sorted(os.path.basename(entry) for entry in entries if entry != name.rstrip("/"))


def remove(path: str) -> None:
    """Removes a file."""
    system, name = _file_system(path)
    system.rm_file(name)


def remove_tree(path: str) -> None:
    """Removes a directory and its contents."""
    system, name = _file_system(path)
    system.rm(name, recursive=True)


def rename(source: str, target: str) -> None:
    """Renames a file, replacing `target` if that exists, or a local directory.

    A remote file is copied and then removed.
    """
    if is_remote(source):
        copy(source, target)
        remove(source)
    else:
        os.replace(source, target)


def copy(source: str, target: str) -> None:
    """Copies a file, replacing `target` if that exists. Either path may be remote."""
    _require_file(source)
    if is_remote(target):
        system, name = _file_system(target)
        with local_copy(source) as local:
            system.put_file(local, name)
        return
    system, name = _file_system(source)
    with _published(target) as temporary:
        system.get_file(name, temporary)


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
        system, name = _file_system(path)
        system.get(name, target, recursive=True)
        yield target


@contextlib.contextmanager
def publish_directory(path: str, what: str) -> Iterator[str]:
    """Yields an empty local directory, which becomes `path` when the block succeeds.

    If the block fails, the directory is removed. A remote `path` is uploaded at the end.

    Args:
        path: the final name, which must not exist.
        what: the flag or argument with the path, for the message.

    Raises:
        ValueError: the directory cannot be created.
    """
    if is_remote(path):
        with tempfile.TemporaryDirectory() as folder:
            yield folder
            system, name = _file_system(path)
            system.put(folder + "/", name.rstrip("/") + "/", recursive=True)
        return
    folder, name = os.path.split(path)
    hidden = os.path.join(folder, f".{name}-{uuid.uuid4().hex[:8]}.tmp")
    with _published(path, hidden) as temporary:
        ensure_directory(temporary, what)
        yield temporary


def join(directory: str, path: str) -> str:
    """Joins `directory` and a relative `path`; returns absolute and remote paths unchanged."""
    return path if is_remote(path) else os.path.join(directory, path)


def real_path(path: str) -> str:
    """Returns the canonical absolute path, without symbolic links; a remote path unchanged."""
    return path if is_remote(path) else os.path.realpath(path)


def file_size(path: str) -> int:
    """Returns the size of a file in bytes."""
    _require_file(path)
    system, name = _file_system(path)
    return int(system.size(name))


def read_text(path: str) -> str:
    """Returns the content of a UTF-8 file without its byte order mark.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is not UTF-8. The message names the line.
    """
    return decode_utf8(read_bytes(path), path).removeprefix("\ufeff")


def read_json(path: str, fields: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Reads a file that contains one JSON object.

    Args:
        path: the file.
        fields: as in `parse_json`.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is not UTF-8, or `parse_json` rejects it.
    """
    return parse_json(read_text(path), path, fields)


def read_own_json_lines(path: str, fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Reads a file of `append_json_lines`, without the part of a line that a kill left.

    Args:
        path: the file.
        fields: as in `parse_json`.

    Returns:
        The objects; [] if the file does not exist.

    Raises:
        ValueError: `parse_json` rejects a line. The message names it.
    """
    *lines, _ = read_text(path).split("\n") if exists(path) else [""]
    return [
        parse_json(line, f"{path}, line {number}", fields) for number, line in enumerate(lines, 1)
    ]


def parse_json(text: str, place: str, fields: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Parses a JSON object.

    Args:
        text: the JSON text.
        place: the file, or file and line, for the message.
        fields: name → type of required values, `… | None` for optional ones. The types of items
            are not looked at. The object may contain other values.

    Raises:
        ValueError: the text is not such an object. The message names the place, and what was
            expected and found.
    """
    try:
        values = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{place}: not JSON: {error}") from None
    if not isinstance(values, dict):
        raise ValueError(f"{place}: expected a JSON object, got {type(values).__name__}")
    check_fields(values, place, fields or {})
    return values


def check_fields(values: Mapping[str, Any], place: str, fields: Mapping[str, Any]) -> None:
    """Raises ValueError if values parsed from JSON are not those that `parse_json` describes."""
    for name, kind in fields.items():
        if not _is_of(values.get(name), kind):
            found = quote(values[name]) if name in values else "missing"
            kind = getattr(kind, "__name__", kind)
            raise ValueError(f"{place}: {name!r} is {found}, expected {kind}")


def _is_of(value: Any, kind: Any) -> bool:
    """Returns whether a value parsed from JSON has a type as described in `parse_json`."""
    kinds = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    plain = [typing.get_origin(kind) or kind for kind in kinds]
    return type(value) in plain or (float in plain and type(value) is int)


def write_json(path: str, values: Mapping[str, Any]) -> None:
    """Writes a JSON object with indentation and sorted keys, like Google's configs."""
    write_file(path, json.dumps(values, indent=2, sort_keys=True) + "\n")


def quote(value: object) -> str:
    """Returns the `repr` of a value found in a file, shortened for a message."""
    text = repr(value)
    return text if len(text) <= MAX_QUOTED_LENGTH else text[:MAX_QUOTED_LENGTH] + "…"


def quote_all(values: Collection[object]) -> str:
    """Returns the first of several values found in a file, for a message; "none" without values."""
    first = [quote(value) for value in itertools.islice(values, MAX_QUOTED)]
    return ", ".join(first + ["…"] * (len(values) > MAX_QUOTED)) or "none"


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
            "Convert text with `iconv -t UTF-8 -f` and its encoding"
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
    paths: dict[str, None] = {}
    for pattern in patterns:
        matches = _remote_matches(pattern) if is_remote(pattern) else glob.glob(pattern)
        if not matches:
            looked = "" if is_remote(pattern) else f" (current directory: {os.getcwd()})"
            raise ValueError(f"{what}: {pattern!r} matches no file{looked}")
        paths.update(dict.fromkeys(sorted(matches)))
    return list(paths)


def _remote_matches(pattern: str) -> list[str]:
    """Returns the remote paths that match a glob pattern."""
    system, name = _file_system(pattern)
    begin = pattern.rstrip("/").removesuffix(name)  # the scheme; with hdfs://, also the host
    return [begin + match for match in system.glob(name)]


def ensure_directory(path: str, what: str = "") -> None:
    """Creates a directory and its parents unless they exist, and checks that it is writable.

    On object stores, this does nothing, because they have no directories.

    Args:
        path: the directory. Only a local one is checked.
        what: the flag or argument with the path, for the message.

    Raises:
        ValueError: the directory cannot be created or written to; without `what`, an OSError.
    """
    check_path(path, what)
    try:
        if not path.startswith(("gs://", "s3://")):  # fsspec would only create the bucket
            system, name = _file_system(path)
            system.makedirs(name, exist_ok=True)
        if not is_remote(path):
            # This file has no name, so that no kill leaves it.
            tempfile.TemporaryFile(dir=path or ".").close()
    except OSError as error:
        if not what:
            raise
        raise ValueError(f"{what}: cannot write to {path!r}: {error.strerror}") from None


def check_path(path: str, what: str = "") -> None:
    """Checks that `~` was expanded in a path: a shell does not do it in `--output_dir=~/run`.

    Args:
        path: a file, a folder or a pattern.
        what: the flag or argument with the path, for the message.

    Raises:
        ValueError: the path begins with the home directory of a user, as `~` or `~name`.
    """
    if path.startswith("~") and (expanded := os.path.expanduser(path)) != path:
        raise ValueError(
            f"{what and what + ': '}{path}: the shell has not replaced ~. Write {expanded}, or "
            f"./{path} for a name that begins with ~"
        )


def check_file(path: str, what: str) -> None:
    """Raises FileNotFoundError, naming the flag or argument `what`, if `path` is not a file."""
    _require_file(path, f"{what}: ")


def check_directory(path: str, what: str) -> None:
    """Raises FileNotFoundError, naming the flag or argument `what`, if there is no directory."""
    if not is_directory(path):
        where = f"no such directory (current directory: {os.getcwd()})"
        raise FileNotFoundError(f"{what}: {path}: {where}")


def check_writable(path: str, what: str) -> None:
    """Checks that a local directory can probably be created and written to, changing nothing.

    Raises:
        ValueError: the directory cannot be created or written to, or `check_path` refuses it.
    """
    check_path(path, what)
    folder = os.path.abspath(path)
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    if not is_remote(path) and not os.access(os.path.join(folder, "."), os.W_OK):
        raise ValueError(f"{what}: cannot write to {path!r}: {folder} is not a writable folder")


def _check_replaceable(path: str) -> None:
    """Raises ValueError if `path` is a directory, a pipe or a device, which no file may replace."""
    check_path(path)
    if not is_remote(path) and os.path.exists(path) and not os.path.isfile(path):
        raise ValueError(f"{path}: cannot write a file here, this is a directory, pipe or device")


def check_outputs(outputs: Mapping[str, Paths], inputs: Mapping[str, Paths]) -> None:
    """Checks that no output file is one of the input files, also under another path.

    Args:
        outputs: flag → file or files to write.
        inputs: flag → file or files to read, or folders, all of whose files count.

    Raises:
        ValueError: a file to write is an input, or it is a directory, a pipe or a device. The
            message names both flags.
    """
    read = {real_path(path): flag for flag, paths in inputs.items() for path in _listed(paths)}
    for flag, path in ((flag, path) for flag, paths in outputs.items() for path in _listed(paths)):
        _check_replaceable(path)
        place = PurePath(real_path(path))
        other = next((read[str(p)] for p in (place, *place.parents) if str(p) in read), None)
        if other and exists(path):
            raise ValueError(f"{flag}: {path} is an input, {other}, and would be replaced")


def _listed(paths: Paths) -> Iterable[str]:
    return [paths] if paths and isinstance(paths, str) else paths or ()


@contextlib.contextmanager
def write_atomically(path: str, mode: str = "w") -> Iterator[IO[Any]]:
    """Opens a temporary file for writing and renames it to `path` when the block succeeds.

    Readers see either the old or the new content, never a partial file. If the block raises an
    error, the temporary file is removed and `path` is unchanged.

    For a remote path the temporary file is local and uploaded at the end, because closing a remote
    stream after an error would store a partial file.

    Args:
        path: the final name; its directory must exist.
        mode: "w" for UTF-8 text or "wb" for bytes.

    Raises:
        ValueError: the path is a directory, a pipe or a device, or `check_path` refuses it.
    """
    _check_replaceable(path)
    encoding = None if "b" in mode else "utf-8"
    if is_remote(path):
        with tempfile.TemporaryDirectory() as folder:
            local = os.path.join(folder, "content")
            with open(local, mode, encoding=encoding) as stream:
                yield stream
            copy(local, path)
        return
    with _published(path) as temporary, open(temporary, mode, encoding=encoding) as stream:
        yield stream
        stream.flush()
        os.fsync(stream.fileno())


def write_file(path: str, content: str | bytes) -> None:
    """Writes a whole file, as `write_atomically` does; text as UTF-8."""
    with write_atomically(path, "wb" if isinstance(content, bytes) else "w") as stream:
        stream.write(content)


def remove_half_written(paths: Iterable[str]) -> None:
    """Removes what killed processes left of local files that `write_atomically` writes."""
    for path in itertools.filterfalse(is_remote, paths):
        for left in glob.glob(f"{glob.escape(path)}.{'[0-9a-f]' * 8}.tmp"):
            with contextlib.suppress(FileNotFoundError):  # its process may still be ending
                os.remove(left)


def append_json_lines(path: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Appends JSON objects to a file, one per line, and flushes it to disk.

    The file is created if needed. If this fails, it is as it was; a kill may leave a part of the
    lines, which `read_own_json_lines` leaves out, and the next call removes. A remote file, to
    which nothing can be appended, is replaced.

    Raises:
        OSError: the disk is full or cannot be written to.
    """
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    if is_remote(path):
        before = read_text(path) if exists(path) else ""
        write_file(path, before + text)
        return
    with open(path, "a+b", buffering=0) as stream:
        stream.seek(0)
        size = stream.read().rfind(b"\n") + 1  # of the complete lines
        stream.truncate(size)
        data = memoryview(text.encode("utf-8"))
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
    if isinstance(error, OSError) and error.errno in DISK_FULL and error.filename is None:
        advice = f"{error.strerror}. Free some space and run the same command again"
        raise OSError(error.errno, advice, path) from None


@contextlib.contextmanager
def _published(path: str, temporary: str = "") -> Iterator[str]:
    """Yields a temporary name beside a local `path`, which is renamed to it at the end.

    After an error, what has this name is removed.
    """
    temporary = temporary or f"{path}.{uuid.uuid4().hex[:8]}.tmp"  # see HALF_WRITTEN
    try:
        yield temporary
        rename(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            remove_tree(temporary)
        _advise_if_full(error, path)
        raise


# Replaces files that belong together, such as the weights and the labels of a model.
#
# New files are written to a hidden folder inside of theirs, and an empty file there declares them
# complete. From then on they count: they are moved to their places, and if a kill prevents that,
# whoever opens the folder next does it. So at any moment, the folder has all old files or all new
# ones. Other files in it are left alone.

_HIDDEN = ".replacing-{}"
_PATTERN = re.compile(re.escape(_HIDDEN).replace(r"\{\}", "[0-9a-f]{8}"))
_COMPLETE = "complete"


@contextlib.contextmanager
def replacing(folder: str) -> Iterator[str]:
    """Yields an empty folder whose files replace those of `folder` when the block succeeds.

    Args:
        folder: an existing folder, in which nobody else replaces files meanwhile.
    """
    finish_replacing(folder)
    for hidden in _list_hidden(folder):  # of a process that was killed before it was complete
        remove_tree(hidden)
    hidden = os.path.join(folder, _HIDDEN.format(uuid.uuid4().hex[:8]))
    ensure_directory(hidden)
    try:
        yield hidden
        with write_atomically(os.path.join(hidden, _COMPLETE)):
            pass
    except BaseException:
        with contextlib.suppress(OSError):
            remove_tree(hidden)
        raise
    _move_into_place(hidden, folder)


def finish_replacing(folder: str) -> None:
    """Moves complete files to their places in a folder, if a kill prevented that.

    Raises:
        OSError: the folder cannot be written to.
    """
    for hidden in _list_hidden(folder):
        if exists(os.path.join(hidden, _COMPLETE)):
            _move_into_place(hidden, folder)
            logging.info("%s: finished saving the model, which a kill had interrupted", folder)


def _list_hidden(folder: str) -> list[str]:
    names = list_directory(folder) if is_directory(folder) else []
    return [os.path.join(folder, name) for name in names if _PATTERN.fullmatch(name)]


def _move_into_place(hidden: str, folder: str) -> None:
    for name in list_directory(hidden):
        if name != _COMPLETE:
            with contextlib.suppress(FileNotFoundError):  # another process moved it
                rename(os.path.join(hidden, name), os.path.join(folder, name))
    with contextlib.suppress(FileNotFoundError):
        remove(os.path.join(hidden, _COMPLETE))
        remove_tree(hidden)

"""Opens, finds and safely writes local and remote files.

File systems are those of fsspec, which is imported on first use, as is the package that a scheme
such as `s3://` needs (an extra). Local files are opened, renamed and matched by Python itself:
fsspec's streams are slower, it moves files by copying them, and its patterns match hidden files.

All failures, local and remote, raise OSError; a scheme that is not supported raises ValueError.

Object stores have no directories, only names with slashes, and an object appears whole or not at
all, when its upload is complete.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import functools
import glob
import importlib.util
import io
import itertools
import json
import logging
import os
import posixpath
import re
import tempfile
import types
import typing
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple

GZIP_MAGIC = b"\x1f\x8b\x08"  # the first bytes of a file compressed with gzip
Paths = str | Iterable[str] | None
MAX_LISTED = 10  # values in a message
MAX_SHOWN = 50  # characters of each
MAX_DEPTH = 100  # of nested JSON; Python's functions fail at a few hundred
_TOO_DEEP = f"the JSON is nested too deeply: expected at most {MAX_DEPTH} levels"
HALF_WRITTEN = r"\.[0-9a-f]{8}\.tmp"  # what `write_atomically` appends to a name
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)  # the disk is full or the quota is exceeded


class _ObjectStore(NamedTuple):
    """What a scheme needs: a package, the extra with it, and advice about credentials."""

    package: str
    extra: str
    login: str


_OBJECT_STORES = {
    "gs": _ObjectStore(
        "gcsfs",
        "gcs",
        "log in with `gcloud auth application-default login`, or set "
        "GOOGLE_APPLICATION_CREDENTIALS",
    ),
    "s3": _ObjectStore(
        "s3fs", "s3", "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
    ),
}
# Not memory://, whose files vanish with the process.
_SCHEMES = ("file", "gs", "hdfs", "s3")

# Classes of the clients' errors: of botocore, aiohttp and google.auth.
_CREDENTIAL_ERRORS = {"NoCredentialsError", "PartialCredentialsError", "GoogleAuthError"}
_NETWORK_ERRORS = {"ConnectionError", "HTTPClientError", "ClientError", "TransportError"}

# Without these limits the clients repeat requests for up to half an hour.
CONNECT_SECONDS = 10
READ_SECONDS = 30  # without receiving a byte
_ATTEMPTS = 2  # s3fs itself repeats failed reads as well
_METADATA_SECONDS = 1  # for Google's metadata server, and a bucket's kind without credentials
_READ_BYTES = 4 << 20  # per request
_REASON_CHARS = 300  # of an error message; that of a missing Hadoop lists a hundred paths


def is_remote(path: str) -> bool:
    """Returns whether `path` has a scheme, such as `gs://…`."""
    return "://" in path


def _is_object_store(path: str) -> bool:
    """Returns whether a path is on a store without directories and renaming."""
    return _scheme(path) in _OBJECT_STORES


def _scheme(path: str) -> str:
    """Returns what is before `://` in a path; "" if it is local."""
    return path.partition("://")[0] if is_remote(path) else ""


@contextlib.contextmanager
def _file_system(path: str) -> Iterator[tuple[Any, str]]:
    """Yields the file system of a path and the path in it.

    The errors of remote file systems become OSErrors with the path. The file system is not kept,
    because a forked process must not use that of its parent; fsspec has a cache that knows.

    Raises:
        ValueError: `check_path` refuses the path.
    """
    if not is_remote(path):
        from fsspec.implementations.local import LocalFileSystem

        # Absolute, because fsspec takes "~" and "file:" at the beginning for something else.
        yield LocalFileSystem(), os.path.join(os.getcwd(), path)
        return
    check_path(path)
    with _translating_errors(path):
        from fsspec.core import url_to_fs

        yield url_to_fs(path, **_options(_scheme(path)))


def _options(scheme: str) -> dict[str, Any]:
    """Returns the options of a file system; those in fsspec's own configuration have priority."""
    import fsspec.config

    options: dict[str, Any] = {}
    configured = fsspec.config.conf.get(scheme, {})
    if scheme in _OBJECT_STORES:
        options["use_listings_cache"] = False  # other processes add and remove files
    if scheme == "s3":
        options["config_kwargs"] = {
            "connect_timeout": CONNECT_SECONDS,
            "read_timeout": READ_SECONDS,
            "retries": {"total_max_attempts": _ATTEMPTS, "mode": "standard"},
        }
    elif scheme == "gs":
        import aiohttp

        options["requests_timeout"] = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_SECONDS, sock_read=READ_SECONDS
        )
        options["consistency"] = "md5"
        if "token" not in configured and not _may_have_google_credentials():
            options["token"] = "anon"  # enough for public buckets
            options["retry_timeout"] = _METADATA_SECONDS
        # gcsfs logs a traceback for every error, including those that are handled here.
        logging.getLogger("gcsfs").setLevel(logging.CRITICAL)
    return {name: value for name, value in options.items() if name not in configured}


@functools.cache
def _may_have_google_credentials() -> bool:
    """Returns whether google.auth may find credentials: in a file, or from a metadata server.

    It would itself ask the server for 17 seconds.
    """
    import http.client

    folder = os.environ.get("CLOUDSDK_CONFIG") or os.path.expanduser("~/.config/gcloud")
    places = (
        os.environ.get("GOOGLE_APPLICATION_CREDENTIALS", ""),
        os.path.join(folder, "application_default_credentials.json"),
        os.path.expanduser("~/.gcs_tokens"),  # of gcsfs
    )
    if places[0] or any(map(os.path.exists, places)):
        return True
    if os.environ.get("NO_GCE_CHECK") == "true":
        return False
    names = ("GCE_METADATA_IP", "GCE_METADATA_HOST")
    server = next(filter(None, map(os.environ.get, names)), "169.254.169.254")
    connection = http.client.HTTPConnection(server, timeout=_METADATA_SECONDS)
    header = "Metadata-Flavor"
    try:
        connection.request("GET", "/", headers={header: "Google"})
        return connection.getresponse().getheader(header) == "Google"
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


@contextlib.contextmanager
def _translating_errors(path: str) -> Iterator[None]:
    """Turns all errors of fsspec and of the clients below it into OSErrors with one line."""
    try:
        yield
    except Exception as error:
        raise _translated(error, path) from error


def _translated(error: Exception, path: str) -> OSError:
    """Returns an error as an OSError with its reason in one line, the path and advice."""
    # The clients have their own classes of errors: botocore, aiohttp, google.auth, …
    kinds = {kind.__name__ for kind in type(error).__mro__}
    number = getattr(error, "errno", None)
    text = getattr(error, "strerror", None) or str(error)
    reason = " ".join(text.split()).rstrip(".")[:_REASON_CHARS] or type(error).__name__
    is_denied = getattr(error, "code", None) in (401, 403) or reason.startswith("Forbidden")
    if isinstance(error, FileNotFoundError):
        number = errno.ENOENT
        if " " not in reason:  # only the path
            reason = "no such file or bucket"
    elif is_denied or isinstance(error, PermissionError) or kinds & _CREDENTIAL_ERRORS:
        number = errno.EACCES
        if store := _OBJECT_STORES.get(_scheme(path)):
            reason += f". Check that you may access the bucket, and {store.login}"
    elif isinstance(error, TimeoutError):
        number = errno.ETIMEDOUT
    elif not isinstance(number, int) and kinds & _NETWORK_ERRORS:
        reason += ". Check the network and run the same command again"
    return OSError(number if isinstance(number, int) else errno.EIO, reason, path)


class _Reader(io.RawIOBase):
    """A remote file as a binary Python stream; each `readinto` is one request."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        with _file_system(path) as (system, name):
            self._stream = system.open(name, "rb", cache_type="none")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with _translating_errors(self._path):
            data: bytes = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        with _translating_errors(self._path):  # `RawIOBase` would read a few kilobytes at a time
            data: bytes = self._stream.read()
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        with _translating_errors(self._path):
            return int(self._stream.seek(offset, whence))

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()


def open_binary(path: str) -> IO[bytes]:
    """Opens a file for reading bytes.

    Raises:
        FileNotFoundError: the file does not exist, or it is a directory, a pipe or a device.
    """
    _require_file(path)
    return io.BufferedReader(_Reader(path), _READ_BYTES) if is_remote(path) else open(path, "rb")


def read_bytes(path: str) -> bytes:
    """Returns the content of a file; errors as in `open_binary`."""
    with open_binary(path) as stream:
        return stream.read()


def open_unbuffered(path: str) -> io.RawIOBase:
    """Opens a file for reading parts of it; each `read` reads just as many bytes, if it has them.

    Raises:
        FileNotFoundError: as `open_binary`.
    """
    _require_file(path)
    return _Reader(path) if is_remote(path) else open(path, "rb", buffering=0)


def read_ranges(path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
    """Returns the bytes of a file in each range, given by its begin and its end.

    Those of a remote file are requested at the same time, if the client can do that.
    """
    if is_remote(path):
        begins = [begin for begin, _ in ranges]
        ends = [end for _, end in ranges]
        with _file_system(path) as (system, name):
            return list(system.cat_ranges([name] * len(ranges), begins, ends, on_error="raise"))
    contents = []
    with open_unbuffered(path) as stream:
        for begin, end in ranges:
            stream.seek(begin)
            contents.append(stream.read(end - begin) or b"")
    return contents


def _describe(path: str) -> dict[str, Any]:
    """Returns fsspec's description of a file or directory; {} if it does not exist."""
    if not path:
        return {}  # for fsspec, "" is the current directory
    try:
        with _file_system(path) as (system, name):
            info: dict[str, Any] = system.info(name)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):
        if is_remote(path):
            raise
        return {}  # not a possible name, or below a file or a folder that cannot be entered
    return info


def _require_file(path: str) -> dict[str, Any]:
    """Returns the description of a file.

    Raises:
        FileNotFoundError: `path` is not a file.
    """
    info = _describe(path)
    if not info:
        raise FileNotFoundError(f"{path}: no such file{_looked_in(path)}")
    if info["type"] == "directory":
        raise FileNotFoundError(f"{path}: expected a file, but this is a directory")
    if info["type"] != "file":  # opening a pipe blocks, and files may be read more than once
        raise FileNotFoundError(
            f"{path}: expected a file, but this is a pipe or a device. Copy its content to a file"
        )
    return info


def _looked_in(path: str) -> str:
    """Returns the current directory, in which a path was looked for, for a message."""
    return "" if is_remote(path) else f" (current directory: {os.getcwd()})"


def exists(path: str) -> bool:
    """Returns whether a file or directory exists."""
    return bool(_describe(path))


def is_file(path: str) -> bool:
    """Returns whether `path` exists and is not a directory; pipes count, `open_binary` fails."""
    return bool(_describe(path).get("type", "directory") != "directory")


def is_directory(path: str) -> bool:
    """Returns whether `path` is an existing directory; on an object store, whether it has files."""
    return bool(_describe(path).get("type") == "directory")


def list_directory(path: str) -> list[str]:
    """Returns the sorted names of the entries of a directory.

    Raises:
        FileNotFoundError: the directory does not exist.
    """
    with _file_system(path) as (system, name):
        entries = [entry.rstrip("/") for entry in system.ls(name, detail=False)]
    # An object may have the name of the directory itself with a slash.
    return sorted(posixpath.basename(entry) for entry in entries if entry != name.rstrip("/"))


def remove(path: str) -> None:
    """Removes a file."""
    with _file_system(path) as (system, name):
        system.rm_file(name)


def remove_tree(path: str) -> None:
    """Removes a directory and its contents."""
    with _file_system(path) as (system, name):
        system.rm(name, recursive=True)


def rename(source: str, target: str) -> None:
    """Renames a file, replacing `target` if that exists, or a local directory.

    An object is copied and then removed.
    """
    if not is_remote(source):
        os.replace(source, target)
        return
    with _file_system(source) as (system, name), _file_system(target) as (_, new_name):
        if _is_object_store(source):
            system.cp_file(name, new_name)  # `mv` would take the name for a pattern
            system.rm_file(name)
            return
        if _scheme(source) == "hdfs" and system.exists(new_name):  # it does not replace files
            system.rm_file(new_name)
        system.mv(name, new_name)


def copy(source: str, target: str) -> None:
    """Copies a file, replacing `target` if that exists. Either path may be remote.

    `target` is never seen incomplete.
    """
    _require_file(source)
    with _published(target) as temporary:
        if not is_remote(target):
            with _file_system(source) as (system, name):
                system.get_file(name, temporary)
        elif _scheme(source) == _scheme(target):
            with _file_system(source) as (system, name), _file_system(temporary) as (_, new_name):
                system.cp_file(name, new_name)
        else:
            with local_copy(source) as local, _file_system(temporary) as (system, new_name):
                system.put_file(local, new_name)


def _copy_tree(source: str, target: str) -> None:
    """Copies a file, or a directory with its files: those below it first."""
    if not is_directory(source):
        copy(source, target)
        return
    create_directory(target)
    paths = [posixpath.join(source, name) for name in list_directory(source)]
    for path in sorted(paths, key=is_file):
        _copy_tree(path, posixpath.join(target, posixpath.basename(path)))


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
        _copy_tree(path, target)
        yield target


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
            make_directory(path, what)
            _copy_tree(folder, path)
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


def join(directory: str, path: str) -> str:
    """Joins `directory` and a relative `path`; returns absolute and remote paths unchanged."""
    return path if is_remote(path) else os.path.join(directory, path)


def real_path(path: str) -> str:
    """Returns the canonical absolute path, without symbolic links; a remote path unchanged."""
    return path if is_remote(path) else os.path.realpath(path)


def file_size(path: str) -> int:
    """Returns the size of a file in bytes."""
    return int(_require_file(path)["size"])


def version(path: str) -> int | str:
    """Returns a value that changes when a file is replaced.

    For a local file it is the modification time in nanoseconds. It is "" if a remote file system
    does not tell.
    """
    if not is_remote(path):
        return os.stat(path).st_mtime_ns
    info = _require_file(path)
    keys = ("ETag", "etag", "LastModified", "mtime", "last_modified")
    return next((str(info[key]) for key in keys if info.get(key)), "")


def read_text(path: str) -> str:
    """Returns the content of a UTF-8 file without its byte order mark.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is not UTF-8. The message names the line.
    """
    return decode_utf8(read_bytes(path), path).removeprefix("\ufeff")


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
                shown_value = shown(values[name]) if name in values else "missing"
                expected = str(kind) if typing.get_origin(kind) else kind.__name__
                raise ValueError(f"{name!r} is {shown_value}, expected {expected}")
    except ValueError as error:
        raise ValueError(
            f"{place}: not written by this program, or damaged since ({error}). Move the file "
            "away or restore it from a backup"
        ) from None
    return values


def _is_of(value: Any, kind: Any) -> bool:
    """Returns whether a value parsed from JSON has a type as described in `parse_own_json`."""
    origin = typing.get_origin(kind)
    parts = typing.get_args(kind)
    if origin is types.UnionType:
        return any(_is_of(value, part) for part in parts)
    if origin is list:
        return isinstance(value, list) and all(_is_of(item, parts[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict) and all(_is_of(item, parts[1]) for item in value.values())
    if kind is float:
        return type(value) in (int, float)
    return type(value) is kind  # not isinstance, because bool is a subclass of int


def decode_json(text: str | bytes, **options: Any) -> Any:
    """Returns the value of a JSON text.

    Args:
        text: the text.
        **options: as in `json.loads`.

    Raises:
        ValueError: the text is not JSON, or nested so deeply that other functions would fail.
    """
    try:
        value = json.loads(text, **options)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [x for item in level for x in _children(item)]
        if not level:
            return value
    raise ValueError(_TOO_DEEP)


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _parse_object(text: str) -> dict[str, Any]:
    try:
        values = decode_json(text, object_pairs_hook=_unique_keys)
        if "\\u" in text:
            json.dumps(values, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("an unpaired surrogate (\\ud8…), which is not a character") from None
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
            + _conversion_of(data)
        ) from None


def _conversion_of(data: bytes) -> str:
    """Returns how to convert a file that is not UTF-8, by the encoding that it looks like."""
    is_utf_16 = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    if b"\0" in data and not is_utf_16:
        return "The file is binary, or text in UTF-16."
    runs = re.findall(rb"[\x80-\xff]+", data)
    # Characters of GB18030 have two bytes or more, and Chinese words several characters.
    is_latin = 2 * sum(len(run) == 1 for run in runs) > len(runs)
    encoding = "UTF-16" if is_utf_16 else "ISO-8859-1" if is_latin else "GB18030"
    return f"Convert the file, for example with `iconv -f {encoding} -t UTF-8`."


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
        check_path(pattern, what)
        matches = _remote_matches(pattern) if is_remote(pattern) else glob.glob(pattern)
        if not matches:
            looked = _looked_in(pattern)
            root = "/".join(pattern.split("/")[:3])  # scheme, bucket
            if is_remote(pattern) and not exists(root):
                looked = f" ({root} does not exist)"
            raise ValueError(
                f"{what}: {pattern!r} matches no file{looked}. "
                "Check the spelling, and quote glob patterns to keep the shell from expanding them."
            )
        paths.update(dict.fromkeys(sorted(matches)))
    return list(paths)


def _remote_matches(pattern: str) -> list[str]:
    """Returns the remote paths that match a glob pattern."""
    with _file_system(pattern) as (system, name):
        try:
            matches = system.glob(name)
        except FileNotFoundError:  # the folder does not exist
            matches = []
    begin = pattern.rstrip("/").removesuffix(name)  # the scheme, and the host of hdfs://
    return [begin + match for match in matches]


def create_directory(path: str) -> None:
    """Creates a directory and its parents unless they exist; does nothing on object stores."""
    if _is_object_store(path):  # fsspec would only create the bucket
        return
    try:
        with _file_system(path) as (system, name):
            system.makedirs(name, exist_ok=True)
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
        if not is_remote(path):
            tempfile.TemporaryFile(dir=path).close()  # without a name that a kill could leave
            return
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
    missing = []
    folder = real_path(path)
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
    begin = what and what + ": "
    scheme = _scheme(path)
    if scheme and scheme not in _SCHEMES:
        supported = ", ".join(f"{name}://" for name in _SCHEMES)
        raise ValueError(
            f"{begin}{path}: {scheme}:// is not supported. Expected a local path or one of "
            f"{supported}"
        )
    store = _OBJECT_STORES.get(scheme)
    if store and importlib.util.find_spec(store.package) is None:
        raise ValueError(
            f"{begin}{path}: {scheme}:// requires {store.package}: "
            f"pip install 'albert-tf2[{store.extra}]'"
        )
    if path.startswith("~") and (expanded := os.path.expanduser(path)) != path:
        raise ValueError(
            f"{begin}{path}: the shell has not replaced ~. Write {expanded}, or ./{path} for a "
            "name that begins with ~"
        )


def check_file(path: str, what: str) -> None:
    """Raises FileNotFoundError, naming the flag or argument `what`, if `path` is not a file."""
    check_path(path, what)
    try:
        _require_file(path)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{what}: {error}") from None


def check_directory(path: str, what: str) -> None:
    """Raises FileNotFoundError, naming the flag or argument `what`, if there is no directory."""
    check_path(path, what)
    if not is_directory(path):
        raise FileNotFoundError(f"{what}: {path}: no such directory{_looked_in(path)}")


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


def _check_replaceable(path: str) -> None:
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
        ValueError: a file to write is an input, or it is a directory, a pipe or a device. The
            message names both flags.
    """
    read = {_identity(path): flag for flag, paths in inputs.items() for path in _listed(paths)}
    for flag, paths in outputs.items():
        for path in _listed(paths):
            place = ""
            above = path if is_remote(path) else os.path.abspath(path)
            while place != above:  # the file, its folder, the folder of that, …
                place = above
                above = os.path.dirname(above)
                if (other := read.get(_identity(place))) and exists(path):
                    raise ValueError(
                        f"{flag}: {path} is an input, {other}, and would be replaced. Choose "
                        "another name"
                    )
            _check_replaceable(path)


def _listed(paths: Paths) -> Iterable[str]:
    return [paths] if paths and isinstance(paths, str) else paths or ()


def _identity(path: str) -> tuple[int, int] | str:
    """Returns what is equal for two names of one file or folder: links, `a/../b`, `file://`."""
    path = path.removeprefix("file://")
    if is_remote(path):
        scheme, _, name = path.partition("://")
        return f"{scheme}://{posixpath.normpath(name)}"
    try:
        status = os.stat(path)
    except OSError:
        return os.path.realpath(path)
    return status.st_dev, status.st_ino


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


def remove_half_written(path: str) -> None:
    """Removes what killed processes left of a local file that `write_atomically` writes."""
    folder, name = os.path.split(path)
    pattern = re.compile(re.escape(name) + HALF_WRITTEN)
    if is_remote(path) or not os.path.isdir(folder or "."):
        return
    for left in filter(pattern.fullmatch, os.listdir(folder or ".")):
        os.remove(os.path.join(folder, left))


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
    if isinstance(error, OSError) and error.errno in DISK_FULL and error.filename is None:
        advice = f"{error.strerror}. Free some space and run the same command again"
        raise OSError(error.errno, advice, path) from None


@contextlib.contextmanager
def _published(path: str) -> Iterator[str]:
    """Yields the name under which to write a file that must appear complete as `path`.

    On an object store that is `path` itself. Elsewhere it is a temporary name next to it, which is
    renamed at the end, or removed after an error.
    """
    if _is_object_store(path):
        yield path
        return
    temporary = f"{path}.{uuid.uuid4().hex[:8]}.tmp"  # see HALF_WRITTEN
    try:
        yield temporary
        rename(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            remove(temporary)
        _advise_if_full(error, path)
        raise

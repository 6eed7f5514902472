"""Accesses files on object stores and other remote file systems with fsspec.

`files` calls this module for paths with a scheme, such as `s3://bucket/name`. The package for a
scheme is an extra, imported on first use. All failures raise OSError.

Object stores have no directories, only names with slashes, and an object appears whole or not at
all, when its upload is complete.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import io
import logging
import os
import posixpath
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

# Scheme → the optional package that fsspec needs for it, or "". Not memory://, whose files vanish
# with the process.
PACKAGES = {"file": "", "gs": "gcsfs", "hdfs": "", "s3": "s3fs"}
EXTRAS = {"gs": "gcs", "s3": "s3"}
_OBJECT_STORES = ("gs", "s3")
_CREDENTIALS = {
    "gs": "log in with `gcloud auth application-default login`, or set "
    "GOOGLE_APPLICATION_CREDENTIALS",
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
}

# Classes of the clients' errors: of botocore, aiohttp and google.auth.
_CREDENTIAL_ERRORS = {"NoCredentialsError", "PartialCredentialsError", "GoogleAuthError"}
_NETWORK_ERRORS = {"ConnectionError", "HTTPClientError", "ClientError", "TransportError"}

# Without these limits the clients repeat requests for up to half an hour.
CONNECT_SECONDS = 10
READ_SECONDS = 30  # without receiving a byte
_REASON_CHARS = 300  # of an error message; that of a missing Hadoop lists a hundred paths
_ATTEMPTS = 2  # s3fs itself repeats failed reads as well
_READ_BYTES = 4 << 20  # per request


def is_remote(path: str) -> bool:
    """Returns whether `path` has a scheme, such as `gs://…`."""
    return "://" in path


def is_object_store(path: str) -> bool:
    """Returns whether a remote path is on a store without directories and renaming."""
    return scheme_of(path) in _OBJECT_STORES


def check_scheme(path: str, what: str = "") -> None:
    """Checks that the scheme of a path is supported; local paths always pass.

    Args:
        path: a file, a folder or a pattern.
        what: the flag or argument with the path, for the message.

    Raises:
        ValueError: the scheme is not supported, or its package is not installed.
    """
    if not is_remote(path):
        return
    scheme = scheme_of(path)
    begin = what and what + ": "
    if scheme not in PACKAGES:
        listed = ", ".join(f"{name}://" for name in PACKAGES)
        raise ValueError(
            f"{begin}{path}: {scheme}:// is not supported. Expected a local path or one of {listed}"
        )
    package = PACKAGES[scheme]
    if package and importlib.util.find_spec(package) is None:
        raise ValueError(
            f"{begin}{path}: {scheme}:// requires {package}: "
            f"pip install 'albert-tf2[{EXTRAS[scheme]}]'"
        )


def scheme_of(path: str) -> str:
    """Returns what is before `://` in a path; the path itself if it is local."""
    return path.partition("://")[0]


def _options(scheme: str) -> dict[str, Any]:
    """Returns the options of a file system; those in fsspec's own configuration have priority."""
    import fsspec.config

    options: dict[str, Any] = {}
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
        # gcsfs logs a traceback for every error, including those that are handled here.
        logging.getLogger("gcsfs").setLevel(logging.CRITICAL)
    configured = fsspec.config.conf.get(scheme, {})
    return {name: value for name, value in options.items() if name not in configured}


@contextlib.contextmanager
def _file_system(path: str) -> Iterator[tuple[Any, str]]:
    """Yields the file system of a path and the path in it, and converts errors to OSError.

    The file system is not kept, because a forked process must not use that of its parent; fsspec
    has a cache that knows.

    Raises:
        ValueError: the scheme is not supported, or its package is not installed.
    """
    check_scheme(path)
    with _converting_errors(path):
        import fsspec.core

        yield fsspec.core.url_to_fs(path, **_options(scheme_of(path)))


@contextlib.contextmanager
def _converting_errors(path: str) -> Iterator[None]:
    """Converts all errors of fsspec and of the clients below it to OSError with one line."""
    try:
        yield
    except FileNotFoundError as error:
        reason = _reason(error, "no such file or bucket")
        raise FileNotFoundError(errno.ENOENT, reason, path) from error
    except Exception as error:
        # The clients have their own classes of errors: botocore, aiohttp, google.auth, …
        number = getattr(error, "errno", None)
        if isinstance(error, PermissionError) or _is_about_credentials(error):
            number = errno.EACCES
        elif isinstance(error, TimeoutError):
            number = errno.ETIMEDOUT
        reason = _reason(error, type(error).__name__)
        if number == errno.EACCES and scheme_of(path) in _CREDENTIALS:
            reason += f". Check that you may access the bucket, and {_CREDENTIALS[scheme_of(path)]}"
        elif not isinstance(number, int):
            number = errno.EIO
            if _class_names(error) & _NETWORK_ERRORS:
                reason += ". Check the network and run the same command again"
        raise OSError(number, reason, path) from error


def _reason(error: Exception, default: str) -> str:
    """Returns the message of an error in one line without a final dot."""
    text = getattr(error, "strerror", None) or str(error)
    line = " ".join(text.split()).rstrip(".")[:_REASON_CHARS]
    return line if line and line != _known_path(error) else default


def _known_path(error: Exception) -> str:
    """Returns the message of an error that only consists of a path."""
    return str(error) if "/" in str(error) and " " not in str(error) else ""


def _is_about_credentials(error: Exception) -> bool:
    is_denied = getattr(error, "code", None) in (401, 403)  # of gcsfs
    return is_denied or bool(_class_names(error) & _CREDENTIAL_ERRORS)


def _class_names(error: Exception) -> set[str]:
    """Returns the names of the class of an error and of its base classes."""
    return {kind.__name__ for kind in type(error).__mro__}


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
        with _converting_errors(self._path):
            data: bytes = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        with _converting_errors(self._path):  # `RawIOBase` would read a few kilobytes at a time
            data: bytes = self._stream.read()
        return data

    def tell(self) -> int:
        return int(self._stream.tell())

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        with _converting_errors(self._path):
            return int(self._stream.seek(offset, whence))

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()


def open_binary(path: str) -> io.BufferedReader:
    """Opens a remote file for reading bytes."""
    return io.BufferedReader(_Reader(path), _READ_BYTES)


def open_unbuffered(path: str) -> io.RawIOBase:
    """Opens a remote file for reading bytes; each read is one request for as many bytes."""
    return _Reader(path)


def read_ranges(path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
    """Returns the bytes of a file in each range, given by its begin and its end.

    All ranges are requested at the same time, if the client of the file system can do that.
    """
    begins, ends = [begin for begin, _ in ranges], [end for _, end in ranges]
    with _file_system(path) as (system, name):
        names = [name] * len(ranges)
        found: list[bytes] = system.cat_ranges(names, begins, ends, on_error="raise")
    return found


def describe(path: str) -> dict[str, Any] | None:
    """Returns fsspec's description of a file or directory, or None if it does not exist."""
    with _file_system(path) as (system, name):
        try:
            found: dict[str, Any] = system.info(name)
        except FileNotFoundError:
            return None
    return found


def version(path: str) -> str:
    """Returns a text that changes when a file is replaced."""
    found = describe(path)
    if found is None:
        raise FileNotFoundError(errno.ENOENT, "no such file", path)
    keys = ("ETag", "etag", "LastModified", "mtime", "last_modified")
    return next((str(found[key]) for key in keys if found.get(key)), "")


def list_directory(path: str) -> list[str]:
    """Returns the sorted names of the entries of a directory."""
    with _file_system(path) as (system, name):
        entries = system.ls(name, detail=False)
    # An object may have the name of the directory itself with a slash.
    begin = name.rstrip("/")
    return sorted(
        posixpath.basename(entry.rstrip("/")) for entry in entries if entry.rstrip("/") != begin
    )


def expand_pattern(pattern: str) -> list[str]:
    """Returns the paths that match a glob pattern."""
    with _file_system(pattern) as (system, name):
        try:
            matches = system.glob(name)
        except FileNotFoundError:  # the folder does not exist
            matches = []
    begin = pattern.rstrip("/").removesuffix(name)  # the scheme, and the host of hdfs://
    return [begin + match for match in matches]


def root(path: str) -> str:
    """Returns the scheme and the bucket or host of a path."""
    scheme, _, rest = path.partition("://")
    return f"{scheme}://{rest.split('/')[0]}"


def make_directory(path: str) -> None:
    """Creates a directory and its parents; does nothing on object stores."""
    # There, fsspec would only create the bucket.
    if not is_object_store(path):
        with _file_system(path) as (system, name):
            system.makedirs(name, exist_ok=True)


def remove(path: str) -> None:
    """Removes a file."""
    with _file_system(path) as (system, name):
        system.rm_file(name)


def remove_tree(path: str) -> None:
    """Removes a directory and its contents."""
    with _file_system(path) as (system, name):
        system.rm(name, recursive=True)


def rename(source: str, target: str) -> None:
    """Renames a file, replacing `target`; an object is copied and then removed."""
    with _file_system(source) as (system, name), _file_system(target) as (_, new_name):
        if scheme_of(source) == "hdfs" and system.exists(new_name):  # it does not replace files
            system.rm_file(new_name)
        system.mv(name, new_name)


def copy(source: str, target: str) -> None:
    """Copies a file within a file system; `target` is complete or unchanged."""
    if scheme_of(source) != scheme_of(target):
        raise ValueError(f"{source} and {target} are on different file systems")
    with _published(target) as temporary, _file_system(source) as (system, name):
        system.cp_file(name, system._strip_protocol(temporary))


def download(source: str, target: str) -> None:
    """Copies a remote file to a local one."""
    with _file_system(source) as (system, name):
        system.get_file(name, target)


def upload(source: str, target: str) -> None:
    """Copies a local file to a remote one, which is complete or unchanged."""
    with _published(target) as temporary, _file_system(temporary) as (system, name):
        system.put_file(source, name)


@contextlib.contextmanager
def _published(path: str) -> Iterator[str]:
    """Yields the name under which to write a file that must appear complete as `path`.

    On an object store that is `path` itself. Elsewhere it is a temporary name, which is renamed.
    """
    if is_object_store(path):
        yield path
        return
    temporary = f"{path}.{uuid.uuid4().hex[:8]}.tmp"
    try:
        yield temporary
        rename(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            remove(temporary)
        raise

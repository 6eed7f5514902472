"""Writes, copies, moves and removes local and remote files; a file appears whole, or not at all.

Local files are renamed by Python itself, because fsspec moves files by copying them.

Directories are written under a hidden name, of which a kill leaves none for ever. While a process
writes such a directory, it holds a lock on it, which the kernel releases whenever and however the
process ends. So the next process that writes there knows which directories are abandoned, and
removes them. Where directories cannot be locked (Windows, some network disks), they stay.
"""

from __future__ import annotations

import contextlib
import glob
import itertools
import os
import re
import shutil
import sys
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from typing import IO, Any, TypeAlias

from albert_tf.files.checks import check_replaceable, ensure_directory
from albert_tf.files.messages import name_file
from albert_tf.files.paths import file_system, is_remote
from albert_tf.files.reading import local_copy, require_file

if sys.platform != "win32":
    import fcntl

Stream: TypeAlias = IO[Any]  # of text or bytes, depending on the mode

HALF_WRITTEN = r"\.[0-9a-f]{8}\.tmp"  # what `write_atomically` appends to a name
_HIDDEN = ".{}-{}.tmp"


@contextlib.contextmanager
def write_atomically(path: str, mode: str = "w") -> Iterator[Stream]:
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
    check_replaceable(path)
    if is_remote(path):
        with tempfile.TemporaryDirectory() as folder:
            local = os.path.join(folder, "content")
            with _open(local, mode) as stream:
                yield stream
            copy(local, path)
        return
    with published(path) as temporary, _open(temporary, mode) as stream:
        yield stream
        stream.flush()
        os.fsync(stream.fileno())


def _open(path: str, mode: str) -> Stream:
    if "b" in mode:
        return open(path, mode)
    return open(path, mode, encoding="utf-8", newline="\n")  # on Windows as well


def write_file(path: str, content: str | bytes) -> None:
    """Writes a whole file, as `write_atomically` does; text as UTF-8."""
    with write_atomically(path, "wb") as stream:
        stream.write(content.encode("utf-8") if isinstance(content, str) else content)


@contextlib.contextmanager
def publish_directory(path: str, what: str, names: str = "") -> Iterator[str]:
    """Yields an empty local directory, which becomes `path` when the block succeeds.

    If the block fails, the directory is removed; what a killed process has left of such a one is
    removed before. A remote `path` is uploaded at the end.

    Args:
        path: the final name, which must not exist.
        what: the flag or argument with the path, for the message.
        names: a regular expression of names beside `path` that earlier calls may have had; "" for
            its own name alone.

    Raises:
        ValueError: the directory cannot be created.
    """
    if is_remote(path):
        with tempfile.TemporaryDirectory() as folder:
            yield folder
            system, name = file_system(path)
            system.put(folder + "/", name.rstrip("/") + "/", recursive=True)
        return
    folder, name = os.path.split(path)
    with (
        hidden_directory(folder or ".", name, what, names) as hidden,
        published(path, hidden) as temporary,
    ):
        yield temporary


def copy(source: str, target: str) -> None:
    """Copies a file, replacing `target` if that exists. Either path may be remote."""
    require_file(source)
    if is_remote(target):
        system, name = file_system(target)
        with local_copy(source) as local:
            system.put_file(local, name)
        return
    system, name = file_system(source)
    with published(target) as temporary:
        system.get_file(name, temporary)


def rename(source: str, target: str) -> None:
    """Renames a file, replacing `target` if that exists, or a local directory.

    A remote file is copied and then removed.
    """
    if is_remote(source):
        copy(source, target)
        remove(source)
    else:
        os.replace(source, target)


def remove(path: str) -> None:
    """Removes a file."""
    system, name = file_system(path)
    system.rm_file(name)


def remove_tree(path: str) -> None:
    """Removes a directory and its contents."""
    system, name = file_system(path)
    system.rm(name, recursive=True)


def remove_half_written(paths: Iterable[str]) -> None:
    """Removes what killed processes left of local files that `write_atomically` writes."""
    for path in itertools.filterfalse(is_remote, paths):
        for left in glob.glob(f"{glob.escape(path)}.{'[0-9a-f]' * 8}.tmp"):
            with contextlib.suppress(FileNotFoundError):  # its process may still be ending
                os.remove(left)


@contextlib.contextmanager
def published(path: str, temporary: str = "") -> Iterator[str]:
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
        name_file(error, path)
        raise


# Hidden directories.


@contextlib.contextmanager
def hidden_directory(parent: str, name: str, what: str, names: str = "") -> Iterator[str]:
    """Yields a new empty local directory, and removes what has its name at the end.

    Args:
        parent: the directory that contains it, which must exist.
        name: what it is for.
        what: the flag or argument with the path, for messages.
        names: a regular expression of the names whose abandoned directories are removed before;
            "" for `name` alone.

    Raises:
        ValueError: the directory cannot be created.
    """
    remove_abandoned(parent, names or re.escape(name))
    with contextlib.ExitStack() as stack:
        lock = None
        while lock is None:  # another process may have taken the new directory for abandoned
            path = os.path.join(parent, _HIDDEN.format(name, uuid.uuid4().hex[:8]))
            ensure_directory(path, what)
            lock = _lock(path)
        stack.callback(os.close, lock)
        try:
            yield path
        finally:
            with contextlib.suppress(OSError):
                shutil.rmtree(path)


def remove_abandoned(parent: str, names: str) -> None:
    """Removes the hidden directories that killed processes have left, if that is possible.

    Args:
        parent: the directory that contains them.
        names: a regular expression of their names.
    """
    pattern = re.compile(_HIDDEN.format(f"(?:{names})", "[0-9a-f]{8}").replace(".", r"\.", 1))
    with contextlib.suppress(OSError):
        for name in os.listdir(parent):
            path = os.path.join(parent, name)
            if sys.platform == "win32" or not pattern.fullmatch(name) or os.path.islink(path):
                continue
            with contextlib.suppress(OSError):  # it is in use, or cannot be locked
                descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path)
                finally:
                    os.close(descriptor)


def _lock(path: str) -> int | None:
    """Locks a directory until the returned descriptor is closed; None if it is gone."""
    if sys.platform == "win32":
        return os.open(os.devnull, os.O_RDONLY)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return None
    with contextlib.suppress(
        OSError
    ):  # then nobody can lock it, and it is never taken for abandoned
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.isdir(path):
            os.close(descriptor)
            return None
    return descriptor

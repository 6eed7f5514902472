"""Directories that are written under a hidden name, of which a kill leaves none for ever.

While a process writes such a directory, it holds a lock on it, which the kernel releases whenever
and however the process ends. So the next process that writes there knows which directories are
abandoned, and removes them. Where directories cannot be locked (Windows, some network disks), they
stay.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import uuid
from collections.abc import Iterator

from albert_tf.files.checks import ensure_directory

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_HIDDEN = ".{}-{}.tmp"


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
            if fcntl is None or not pattern.fullmatch(name) or os.path.islink(path):
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
    if fcntl is None:
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

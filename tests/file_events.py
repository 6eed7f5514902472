"""What SIGKILL would leave in a folder before each of the events that change it."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_watchers = []


def _on_event(event, arguments):
    for watcher in _watchers:
        watcher(event, arguments)


def _changes(event, arguments):
    """The paths that an event of `sys.audit` changes."""
    if event == "open":
        path, _, flags = arguments
        return [path] if (flags or 0) & _WRITES else []
    names = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.truncate")
    return [path for path in arguments if isinstance(path, str)] if event in names else []


def folders_at_each_event(folder, target, act):
    """Calls a function, and copies a folder before each event in it that changes its files.

    A kill leaves exactly these files, since those that were written stay in the system's memory.

    Args:
        folder: the folder.
        target: a new folder for the copies.
        act: the function.

    Returns:
        The copies in order, the last one after the function.
    """
    copies = []

    def copy():
        copies.append(target / str(len(copies)))
        with paused():
            shutil.copytree(folder, copies[-1], symlinks=True)

    def watch(event, arguments):
        paths = _changes(event, arguments)
        if any(os.path.realpath(path).startswith(f"{folder}{os.sep}") for path in paths):
            copy()

    @contextlib.contextmanager
    def paused():
        active = watch in _watchers
        if active:
            _watchers.remove(watch)
        yield
        if active:
            _watchers.append(watch)

    if not _watchers and not getattr(_on_event, "is_added", False):
        sys.addaudithook(_on_event)
        _on_event.is_added = True
    _watchers.append(watch)
    try:
        act()
    finally:
        _watchers.remove(watch)
    copy()
    return copies

"""Creates and locks the output directory of a run.

The file `.lock` is locked by the process that writes to the directory. The kernel releases the lock
whenever and however the process ends, so it is never stale; the file itself stays.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import json
import os
import re
import socket
from collections.abc import Iterator

import filelock
from absl import logging

from albert_tf import files

LOCK_FILE = ".lock"

# Files left behind by a process that was killed while writing: parts of a checkpoint, and temporary
# files of `files.write_atomically`.
_HALF_WRITTEN = re.compile(
    rf"\.model\.ckpt-\w+-[0-9a-f]{{8}}\.(index|data-).*|[\w.-]+{files.HALF_WRITTEN}"
)
_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)


@contextlib.contextmanager
def made(output_dir: str, is_shared: bool = False) -> Iterator[None]:
    """Context manager that creates a directory, and removes it again if the block fails unused.

    Args:
        output_dir: the directory, which may exist.
        is_shared: whether other workers use the directory too, so that it must not be removed.

    Raises:
        ValueError: the directory cannot be created or written to.
    """
    missing = []
    folder = files.real_path(output_dir)
    while not (is_shared or files.is_remote(folder) or os.path.exists(folder)):
        missing.append(folder)
        folder = os.path.dirname(folder)
    files.make_directory(output_dir, "--output_dir")
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):  # a folder is not empty
            if missing:
                _remove_free_lock(output_dir)
            for folder in missing:  # the longest path first
                os.rmdir(folder)
        raise


def _remove_free_lock(directory: str) -> None:
    """Removes the lock file if it is not in use and the directory contains nothing else."""
    path = os.path.join(directory, LOCK_FILE)
    if os.listdir(directory) == [LOCK_FILE] and not os.path.getsize(path):
        os.remove(path)


@contextlib.contextmanager
def lock(output_dir: str) -> Iterator[None]:
    """Context manager that locks a directory and removes partial files of a killed process.

    A process may lock the same directory again while it holds the lock. There is no locking on
    remote paths, on file systems that do not support it (with a warning), and in read-only
    directories.

    Args:
        output_dir: an existing directory.

    Raises:
        FileNotFoundError: the directory does not exist.
        ValueError: another process holds the lock. The message names the process, its host and when
            it started.
    """
    if files.is_remote(output_dir):
        logging.log_first_n(
            logging.INFO,
            "%s is remote and cannot be locked: make sure that only one process writes to it",
            1,
            output_dir,
        )
        yield
        return
    os.stat(output_dir)
    path = os.path.join(os.path.realpath(output_dir), LOCK_FILE)
    # A singleton for each path counts how often this process has acquired the lock. A soft lock is
    # only a file and would outlive a killed process.
    held = filelock.FileLock(
        path, timeout=0, is_singleton=True, thread_local=False, fallback_to_soft=False
    )
    is_first = not held.is_locked
    if not _acquire(held, output_dir):
        yield
        return
    try:
        if is_first:
            _remove_half_written(output_dir)
            now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
            owner = {"pid": os.getpid(), "host": socket.gethostname(), "started": now}
            _write_owner(path, json.dumps(owner) + "\n")
        yield
    finally:
        if is_first and held.is_locked:  # not locked in a forked process
            _write_owner(path, "")
        held.release()


def _acquire(held: filelock.BaseFileLock, output_dir: str) -> bool:
    """Acquires the lock; returns False if the directory does not support locking."""
    try:
        held.acquire()
    except filelock.Timeout:
        raise ValueError(
            f"{output_dir} is in use by {_owner(held.lock_file)}. Two runs in one folder would "
            "overwrite each other: wait for that run, stop it, or choose another --output_dir."
        ) from None
    except OSError as error:
        if error.errno not in _READ_ONLY:
            logging.warning(
                "%s: not locked against other processes (%s)", output_dir, error.strerror
            )
        return False
    return True


def _write_owner(path: str, text: str) -> None:
    """Writes the owner into the lock file in place, because the file must not be replaced."""
    # This may fail on a full disk; the lock is still held.
    with contextlib.suppress(OSError), open(path, "w", encoding="utf-8") as stream:
        stream.write(text)


def _owner(path: str) -> str:
    try:
        entry = json.loads(files.read_text(path))
        return f"process {entry['pid']} on {entry['host']}, which started {entry['started']}"
    except (OSError, ValueError, KeyError, TypeError):  # not written yet
        return "another process"


def _remove_half_written(output_dir: str) -> None:
    for name in sorted(os.listdir(output_dir)):
        if _HALF_WRITTEN.fullmatch(name):
            logging.info("%s: removing the partial file %s", output_dir, name)
            os.remove(os.path.join(output_dir, name))

"""Locks the output directory of a run.

The file `.lock` is locked by the process that writes to the directory. The kernel releases the lock
whenever and however the process ends, so it is never stale; the file itself stays.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
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
def lock(output_dir: str) -> Iterator[None]:
    """Context manager that locks a directory and removes partial files of a killed process.

    A process may lock the same directory again while it holds the lock. There is no locking on
    remote paths, on file systems that do not support it (with a warning), and in read-only
    directories.

    Args:
        output_dir: an existing directory.

    Raises:
        FileNotFoundError: the directory does not exist.
        ValueError: another process holds the lock.
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
        yield
    finally:
        held.release()


def _acquire(held: filelock.BaseFileLock, output_dir: str) -> bool:
    """Acquires the lock; returns False if the directory does not support locking."""
    try:
        held.acquire()
    except filelock.Timeout:
        raise ValueError(
            f"{output_dir} is in use by another process. Two runs in one folder would overwrite "
            "each other: wait for that run, stop it, or choose another --output_dir."
        ) from None
    except OSError as error:
        if error.errno not in _READ_ONLY:
            logging.warning(
                "%s: not locked against other processes (%s)", output_dir, error.strerror
            )
        return False
    return True


def _remove_half_written(output_dir: str) -> None:
    for name in sorted(os.listdir(output_dir)):
        if _HALF_WRITTEN.fullmatch(name):
            logging.info("%s: removing the partial file %s", output_dir, name)
            os.remove(os.path.join(output_dir, name))

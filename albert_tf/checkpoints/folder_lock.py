"""The lock of a folder, `.lock`, which is held by the process that writes to it."""

from __future__ import annotations

import contextlib
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


@contextlib.contextmanager
def locked(folder: str) -> Iterator[None]:
    """Context manager that locks a folder, and removes partial files of a killed process from it.

    The file `.lock` is locked by the process that writes to the folder. The kernel releases the
    lock whenever and however the process ends, so it is never stale; the file itself stays. A
    process may lock the same folder again while it holds the lock. There is no locking on
    remote paths, and on file systems that do not support it (with a warning).

    Raises:
        FileNotFoundError: the folder does not exist.
        ValueError: another process holds the lock.
    """
    if files.is_remote(folder):
        text = "%s is remote and cannot be locked: only one process may write to it"
        logging.info(text, folder)
        yield
        return
    os.stat(folder)
    path = os.path.join(os.path.realpath(folder), LOCK_FILE)
    # A singleton for each path counts how often this process has acquired the lock. A soft lock
    # is only a file and would outlive a killed process.
    held = filelock.FileLock(
        path, timeout=0, is_singleton=True, thread_local=False, fallback_to_soft=False
    )
    is_first = not held.is_locked
    with contextlib.ExitStack() as stack:
        if _acquire(held, folder):
            stack.callback(held.release)
            if is_first:
                _remove_half_written(folder)
        yield


def _acquire(held: filelock.BaseFileLock, folder: str) -> bool:
    """Acquires the lock; returns False if the folder does not support locking."""
    try:
        held.acquire()
    except filelock.Timeout:
        raise ValueError(
            f"{folder} is in use by another process. Two runs in one folder would overwrite "
            "each other: wait for that run, stop it, or choose another --output_dir."
        ) from None
    except OSError as error:
        text = "%s: not locked against other processes (%s)"
        logging.warning(text, folder, error.strerror)
        return False
    return True


def _remove_half_written(folder: str) -> None:
    for name in sorted(os.listdir(folder)):
        if _HALF_WRITTEN.fullmatch(name):
            logging.info("%s: removing the partial file %s", folder, name)
            os.remove(os.path.join(folder, name))

"""Names the file in errors of a disk, which the system reports for an open file without it."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator

_AGAIN = "and run the same command again"
_FREE = f"Free some space {_AGAIN}"
# Number of the error → what to do.
_ADVICE = {
    errno.ENOSPC: _FREE,
    errno.EDQUOT: _FREE,
    errno.EFBIG: f"Raise the limit of the size of files (ulimit -f) {_AGAIN}",
    errno.EIO: f"Check the disk, or the connection to it, {_AGAIN}",
    errno.ESTALE: f"Mount the file system again, {_AGAIN}",
}


def name_file(error: BaseException, path: str) -> None:
    """Raises an OSError with the file and advice for an error of the disk that names no file."""
    if isinstance(error, OSError) and error.errno in _ADVICE and error.filename is None:
        advice = f"{error.strerror}. {_ADVICE[error.errno]}"
        raise OSError(error.errno, advice, path) from None


@contextlib.contextmanager
def naming_file(path: str) -> Iterator[None]:
    """Context manager that names the file in errors of the disk; see `name_file`."""
    try:
        yield
    except OSError as error:
        name_file(error, path)
        raise

"""What errors say of files: values found in them, quoted; the name that a disk's error lacks."""

from __future__ import annotations

import contextlib
import errno
import itertools
from collections.abc import Collection, Iterator

MAX_QUOTED = 10  # maximum number of values in a message
MAX_QUOTED_LENGTH = 50  # maximum length of a value in a message
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


def quote(value: object) -> str:
    """Returns the `repr` of a value found in a file, shortened for a message."""
    text = repr(value)
    return text if len(text) <= MAX_QUOTED_LENGTH else text[:MAX_QUOTED_LENGTH] + "…"


def quote_all(values: Collection[object]) -> str:
    """Returns the first of several values found in a file, for a message; "none" without values."""
    first = [quote(value) for value in itertools.islice(values, MAX_QUOTED)]
    more = ["…"] if len(values) > MAX_QUOTED else []
    return ", ".join(first + more) or "none"


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

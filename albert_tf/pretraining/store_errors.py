"""Says in one way that a store with records does not answer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from albert_tf import files
from albert_tf.training.interruption import InterruptedRunError

# Those that are the same when the command is run again: of what is read, of access, of this code.
_LASTING = (FileNotFoundError, PermissionError, ValueError, LookupError, TypeError, AttributeError)


def unanswered(what: str, error: Exception) -> InterruptedRunError:
    """Returns the error that ends a run because a store does not answer.

    Args:
        what: the record files.
        error: what the client of the store raised, after the retries that are its own.
    """
    first_line = (str(error).strip().splitlines() or [""])[0]
    reason = ": ".join(filter(None, (type(error).__name__, first_line[:300])))
    return InterruptedRunError(
        f"{what}: the store does not answer ({reason}). "
        "Run the same command again: a run that has begun resumes from its last checkpoint."
    )


@contextlib.contextmanager
def naming_store(path: str) -> Iterator[None]:
    """Converts the errors with which the client of a remote path gives up.

    Raises:
        InterruptedRunError: the store does not answer. Errors that a retry does not change, such as
            that of a missing file, are those of the client.
    """
    try:
        yield
    except _LASTING:
        raise
    except Exception as error:  # the client of each store has its own
        if not files.is_remote(path):
            raise
        raise unanswered(path, error) from error

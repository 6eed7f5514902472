"""Errors of the library `tokenizers`, which has one class for all of them, and panics of Rust."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

_PANIC = "PanicException"  # of Rust, which is no `Exception`, and which the library does not export
# What the messages of the library have → what is wrong with the file.
_REASONS = {
    "Regex search error": "a regular expression in it takes too many steps for a text",
    "charsmap": "its precompiled_charsmap is damaged",
    "index": "a table in it is damaged, such as its precompiled_charsmap",  # out of bounds
}


@contextlib.contextmanager
def naming_library_errors(path: str) -> Iterator[None]:
    """Converts what the library raises to a ValueError with the file and what is wrong with it.

    Args:
        path: the file of the tokenizer.
    """
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != _PANIC and type(error) is not Exception:  # its other errors
            raise
        message = str(error)
        known = (reason for said, reason in _REASONS.items() if said in message)
        reason = next(known, "the library tokenizers cannot use it")
        raise ValueError(f"{path}: {reason} ({message})") from None

"""Errors of Hugging Face's library `tokenizers` for damaged normalization tables."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

_PANIC = "PanicException"  # of Rust, which is no `Exception`, and which the library does not export


@contextlib.contextmanager
def naming_damaged_tables(path: str) -> Iterator[None]:
    """Converts what the library raises for a damaged `precompiled_charsmap` to ValueError.

    Args:
        path: the file of the tokenizer, for the message.
    """
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != _PANIC and type(error) is not Exception:  # its other errors
            raise
        raise ValueError(f"{path}: its precompiled_charsmap is damaged ({error})") from None

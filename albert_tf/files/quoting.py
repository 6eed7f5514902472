"""Quotes values found in files, shortened for a message."""

from __future__ import annotations

import itertools
from collections.abc import Collection

MAX_QUOTED = 10  # maximum number of values in a message
MAX_QUOTED_LENGTH = 50  # maximum length of a value in a message


def quote(value: object) -> str:
    """Returns the `repr` of a value found in a file, shortened for a message."""
    text = repr(value)
    return text if len(text) <= MAX_QUOTED_LENGTH else text[:MAX_QUOTED_LENGTH] + "…"


def quote_all(values: Collection[object]) -> str:
    """Returns the first of several values found in a file, for a message; "none" without values."""
    first = [quote(value) for value in itertools.islice(values, MAX_QUOTED)]
    more = ["…"] if len(values) > MAX_QUOTED else []
    return ", ".join(first + more) or "none"

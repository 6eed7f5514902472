"""A cache of a function's results, bounded in size."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

MAX_REMEMBERED = 200_000  # words in the cache, about 40 MB

Key = TypeVar("Key")
Value = TypeVar("Value")


class BoundedCache(dict[Key, Value]):
    """A cache of a function's results; can be used as a table for `str.translate`."""

    def __init__(self, function: Callable[[Key], Value]) -> None:
        super().__init__()
        self._function = function

    def __missing__(self, key: Key) -> Value:
        if len(self) >= MAX_REMEMBERED:
            self.clear()
        value = self[key] = self._function(key)
        return value

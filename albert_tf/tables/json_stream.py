"""Reads JSON that may be larger than the memory: steps into objects and arrays, value by value.

    stream = JsonStream(path, opened)
    for key in stream.object_keys():                # {"version": "1.1", "data": [{…}, {…}]}
        if key == "data" and stream.begins("["):
            for _ in stream.array_items():
                article = stream.value()
        else:
            version = stream.value()

Each key and each item leaves the stream at a value, which is to be read before the next one.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import IO

from albert_tf import files

_BLOCK_BYTES = 1 << 18
_MAX_REST = 2  # characters that a number which was cut may leave, as in "1e-"
_SPACE = re.compile(r"[ \t\r\n]*")
_ENDS = {"{": "}", "[": "]"}
_KINDS = {"{": "object", "[": "array"}


class JsonStream:
    """A file of JSON, of which a part is in memory.

    Args:
        path: the file, for messages.
        stream: the stream of its content, at its start.
    """

    def __init__(self, path: str, stream: IO[bytes]) -> None:
        self.path = path
        self._stream = stream
        self._json = json.JSONDecoder(object_pairs_hook=files.unique_object)
        self._text_decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._lines = 1  # before the part that is in memory, counted from 1
        self._text = ""
        self._position = 0
        self._has_ended = False

    def begins(self, bracket: str) -> bool:
        """Returns whether the value at the position is an object, "{", or an array, "["."""
        return self._next_character() == bracket

    def object_keys(self) -> Iterator[str]:
        """Yields the keys of the object at the position, each with the position at its value."""
        before: set[str] = set()
        for _ in self._members("{"):
            if not self.begins('"'):
                raise self._error("expected a key in double quotes")
            key = str(self.value())
            if key in before:
                raise self._error(f"an object has several values of {files.quote(key)}")
            before.add(key)
            if self._next_character() != ":":
                raise self._error(f"expected a colon after the key {files.quote(key)}")
            self._position += 1
            self._next_character()
            yield key

    def array_items(self) -> Iterator[None]:
        """Steps through the items of the array at the position, with the position at each."""
        return self._members("[")

    def value(self) -> files.Json:
        """Returns the value at the position, and moves behind it.

        Raises:
            ValueError: there is none, or it is very long; the message names the line.
        """
        while True:
            try:
                value, end = self._json.raw_decode(self._text, self._position)
            except json.JSONDecodeError as error:
                if self._has_ended or len(self._text) - self._position > files.MAX_LINE:
                    raise self._error(error.msg, error.pos) from None
            except ValueError as error:  # a name twice, or a number of thousands of digits
                raise self._error(str(error)) from None
            except RecursionError:
                raise self._error("nested too deeply, hundreds of levels") from None
            else:
                may_be_cut = isinstance(value, int | float) and len(self._text) - end <= _MAX_REST
                if self._has_ended or not may_be_cut:
                    self._position = end
                    return value
            self._read_more()

    def require_end(self) -> None:
        """Raises a ValueError if anything follows."""
        if self._next_character():
            raise self._error("expected the end of the file")

    def _members(self, bracket: str) -> Iterator[None]:
        """Steps through what an object or array contains."""
        if not self.begins(bracket):
            raise self._error(f"expected an {_KINDS[bracket]}")
        self._position += 1
        if self._next_character() != _ENDS[bracket]:
            while True:
                yield
                if self._next_character() != ",":
                    break
                self._position += 1
                self._next_character()
        if self._next_character() != _ENDS[bracket]:
            raise self._error(f"expected a comma or the end of the {_KINDS[bracket]}")
        self._position += 1

    def _next_character(self) -> str:
        """Moves to the next character that is no space, and returns it; "" at the end."""
        while True:
            found = _SPACE.match(self._text, self._position)
            self._position = found.end() if found else self._position
            if self._position < len(self._text) or self._has_ended:
                return self._text[self._position : self._position + 1]
            self._read_more()

    def _read_more(self) -> None:
        """Reads as much as is in memory, or a block; drops what is before the position."""
        self._lines += self._text.count("\n", 0, self._position)
        self._text = self._text[self._position :]
        self._position = 0
        data = self._stream.read(max(_BLOCK_BYTES, len(self._text)))
        self._has_ended = not data
        try:
            self._text += self._text_decoder.decode(data, final=self._has_ended)
        except UnicodeDecodeError as error:
            line = self._lines + self._text.count("\n")
            files.decode_utf8(error.object, self.path, line)  # which names line and byte
            raise

    def _error(self, problem: str, position: int | None = None) -> ValueError:
        """Returns the error for a place in the file, by default the position."""
        place = self._position if position is None else position
        line = self._lines + self._text.count("\n", 0, place)
        return ValueError(f"{self.path}, line {line}: not JSON: {problem}")

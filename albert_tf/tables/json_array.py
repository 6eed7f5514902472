"""Reads the items of a file with one JSON array, which may be larger than the memory."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import IO

from albert_tf import files
from albert_tf.tables.row import BadRowError, NumberedRow

_BLOCK_BYTES = 1 << 18
_MAX_ITEM = 1 << 26  # characters
_SPACE = re.compile(r"[ \t\r\n]*")


def begins_array(start: bytes) -> bool:
    """Returns whether the first bytes of a file are those of a JSON array."""
    return start.removeprefix(codecs.BOM_UTF8).lstrip(b" \t\r\n").startswith(b"[")


class _Text:
    """The part of a file that is in memory, which moves forward.

    Args:
        path: the file, for messages.
        stream: the stream of its content, at its start.
    """

    def __init__(self, path: str, stream: IO[bytes]) -> None:
        self.path = path
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._lines = 1  # before the part that is in memory
        self.text = ""
        self.position = 0
        self.has_ended = False

    def read_more(self) -> None:
        """Reads as much as is in memory, or a block; drops what is before the position."""
        self._lines += self.text.count("\n", 0, self.position)
        self.text = self.text[self.position :]
        self.position = 0
        data = self._stream.read(max(_BLOCK_BYTES, len(self.text)))
        self.has_ended = not data
        try:
            self.text += self._decoder.decode(data, final=self.has_ended)
        except UnicodeDecodeError as error:
            raise ValueError(f"{self.path}, line {self.line}: not UTF-8 ({error.reason})") from None

    def next_character(self) -> str:
        """Moves to the next character that is no space, and returns it; "" at the end."""
        while True:
            found = _SPACE.match(self.text, self.position)
            self.position = found.end() if found else self.position
            if self.position < len(self.text) or self.has_ended:
                return self.text[self.position : self.position + 1]
            self.read_more()

    @property
    def line(self) -> int:
        """The number of the line at the position, starting at 1."""
        return self._lines + self.text.count("\n", 0, self.position)

    def next_item(self, decoder: json.JSONDecoder) -> files.Json:
        """Returns the JSON value at the position, and moves behind it.

        Raises:
            ValueError: there is none, or it is very long; the message names the line.
        """
        while True:
            try:
                value, self.position = decoder.raw_decode(self.text, self.position)
            except json.JSONDecodeError as error:
                if self.has_ended or len(self.text) - self.position > _MAX_ITEM:
                    raise ValueError(
                        f"{self.path}, line {self.line}: not the JSON objects of an array: "
                        f"{error.msg}"
                    ) from None
                self.read_more()
            except RecursionError:
                raise ValueError(
                    f"{self.path}, line {self.line}: JSON is nested too deeply, hundreds of levels"
                ) from None
            else:
                return value


def read_array(stream: IO[bytes], path: str) -> Iterator[NumberedRow]:
    """Yields the items of a JSON array with their numbers, starting at 1.

    Args:
        stream: the stream of the file's content, at its start.
        path: the file, for messages.

    Yields:
        The number and the JSON object; a string as the only cell of a row; or an error.

    Raises:
        ValueError: the file is not one JSON array; the message names the line.
    """
    text = _Text(path, stream)
    decoder = json.JSONDecoder()
    text.next_character()
    text.position += 1  # behind the bracket
    number = 0
    if text.next_character() != "]":
        while True:
            number += 1
            item = text.next_item(decoder)
            if isinstance(item, (dict, str)):
                yield number, [item] if isinstance(item, str) else item
            else:
                yield number, BadRowError(f"expected a JSON object, got {files.quote(item)}")
            if text.next_character() != ",":
                break
            text.position += 1
            text.next_character()
    if text.next_character() != "]":
        raise ValueError(f"{path}, line {text.line}: expected a comma or the end of the array")
    text.position += 1
    if text.next_character():
        raise ValueError(f"{path}, line {text.line}: expected the end of the file after the array")

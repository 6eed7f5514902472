"""Reads the items of a file with one JSON array, which may be larger than the memory."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import IO

from albert_tf import files
from albert_tf.tables.json_stream import JsonStream
from albert_tf.tables.row import BadRowError, NumberedRow
from albert_tf.tables.text_rows import WRITE_RECORDS


def begins_array(start: bytes) -> bool:
    """Returns whether the first bytes of a file are those of a JSON array."""
    return start.removeprefix(codecs.BOM_UTF8).lstrip(b" \t\r\n").startswith(b"[")


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
    parsed = JsonStream(path, stream)
    for number, _ in enumerate(parsed.array_items(), 1):
        item = parsed.value()
        if isinstance(item, (dict, str)):
            yield number, [item] if isinstance(item, str) else item
        else:
            advice = f". {WRITE_RECORDS}" if isinstance(item, list) else ""
            yield number, BadRowError(f"expected a JSON object, got {files.quote(item)}{advice}")
    parsed.require_end()

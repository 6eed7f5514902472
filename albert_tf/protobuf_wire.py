"""Reads the wire format of protocol buffers, of which a message is a series of numbered fields.

Source: https://protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TypeAlias

Value: TypeAlias = int | float | bytes

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types
_LAYOUTS = {_FIXED64: struct.Struct("<d"), _FIXED32: struct.Struct("<f")}


def varint_at(data: bytes, at: int) -> tuple[int, int]:
    """Returns the integer that begins at an index, and the index after it.

    Raises:
        IndexError: the data ends within it.
    """
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def fields(message: bytes) -> Iterator[tuple[int, Value]]:
    """Yields the number and the value of each field of a message; texts and messages are bytes.

    Values of a fixed width are taken for floating-point numbers: the wire does not say what they
    are.

    Raises:
        ValueError: this is not a message.
    """
    at = 0
    while at < len(message):
        try:
            key, at = varint_at(message, at)
            number, wire_type = key >> 3, key & 7
            value: Value
            if wire_type == _VARINT:
                value, at = varint_at(message, at)
            elif wire_type == _BYTES:
                size, at = varint_at(message, at)
                value, at = message[at : at + size], at + size
            else:
                layout = _LAYOUTS[wire_type]
                (value,), at = layout.unpack_from(message, at), at + layout.size
        except (LookupError, struct.error):
            raise ValueError(f"not a protocol buffer message: damaged near byte {at}") from None
        if at > len(message):
            raise ValueError("not a protocol buffer message: it is cut off")
        yield number, value

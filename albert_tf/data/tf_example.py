"""Serializes and parses `tf.train.Example`s without TensorFlow.

The bytes are identical to those of `SerializeToString(deterministic=True)` (tests compare them),
but `encode_examples` serializes many records at once.

Shapes: N records, M values of a feature.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from albert_tf.protobuf_wire import varint_at

# Name → integers or floating-point numbers: [N, M], or [M] of one record.
Features: TypeAlias = dict[str, NDArray[Any]]

_MAP_ENTRY, _KEY, _VALUE = 0x0A, 0x0A, 0x12  # protobuf tags of Features.feature and its entries
_FLOAT_LIST, _INT64_LIST, _PACKED = 0x12, 0x1A, 0x0A

MAX_BITS = 56  # largest integers: a varint of eight bytes has seven bits per byte
_TABLE_BITS = 16  # smaller integers have their varints looked up in a table


@functools.lru_cache(maxsize=100_000)
def _varint(value: int) -> bytes:
    result = bytearray()
    while value > 0x7F:
        result.append(value & 0x7F | 0x80)
        value >>= 7
    result.append(value)
    return bytes(result)


@functools.lru_cache(maxsize=100_000)
def _entry_header(name: str, list_tag: int, size: int) -> bytes:
    """Returns the bytes that precede the packed values of a feature, which have `size` bytes."""
    packed = bytes([_PACKED]) + _varint(size)
    value_list = bytes([list_tag]) + _varint(len(packed) + size) + packed
    key = name.encode("utf-8")
    entry = bytes([_KEY]) + _varint(len(key)) + key
    entry += bytes([_VALUE]) + _varint(len(value_list) + size) + value_list
    return bytes([_MAP_ENTRY]) + _varint(len(entry) + size) + entry


def _packed_floats(values: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Encodes rows of floating-point numbers, float [N, M], as bytes: uint8 [N, 4 * M]."""
    return np.ascontiguousarray(values, "<f4").view(np.uint8)


def _packed_varints(values: NDArray[np.integer]) -> NDArray[np.uint8] | list[bytes]:
    """Encodes rows of non-negative integers, [N, M], as packed varints.

    Returns:
        uint8 [N, M] if each varint is a byte, or else N byte strings.

    Raises:
        ValueError: an integer is out of range.
    """
    largest = int(values.max(initial=0))
    if values.size and (int(values.min()) < 0 or largest >= 1 << MAX_BITS):
        raise ValueError(
            f"expected integers in [0, 2**{MAX_BITS}), got {values.min()} to {largest}"
        )
    if largest < 0x80:
        return values.astype(np.uint8)
    num_values = values.shape[1]
    words = _spread_table().take(values) if largest >> _TABLE_BITS == 0 else _spread(values)
    data, width = words.tobytes(), words.itemsize * num_values
    # The unused bytes of a word are 0 and dropped. Otherwise, only the varint of 0 has such a byte;
    # these are appended again, because zeros are padding at the end of a row, with few exceptions.
    nonzero = values != 0
    counts, first_zeros = nonzero.sum(axis=1), nonzero.argmin(axis=1)
    rows = [
        data[row * width : (row + 1) * width].translate(None, b"\0") + bytes(num_values - count)
        for row, count in enumerate(counts.tolist())
    ]
    for row in np.flatnonzero((counts < num_values) & (counts != first_zeros)).tolist():
        rows[row] = b"".join(map(_varint, values[row].tolist()))
    return rows


def _spread(values: NDArray[np.integer]) -> NDArray[np.unsignedinteger]:
    """Returns the varint of each integer in a word of 4 or 8 bytes, followed by bytes of 0.

    Each byte holds seven bits of the integer, lowest first. The high bit of a byte tells that
    another one follows.
    """
    largest = int(values.max(initial=0))
    word: NDArray[np.unsignedinteger] = values.astype("<u4" if largest < 1 << 28 else "<u8")
    spread: NDArray[np.unsignedinteger] = word & word.dtype.type(0x7F)
    for byte in range(1, word.itemsize):
        if largest < 1 << (7 * byte):
            break
        more = (word >= 1 << (7 * byte)).astype(word.dtype)
        spread |= (word & word.dtype.type(0x7F << (7 * byte))) << byte | more << (8 * byte - 1)
    return spread


@functools.cache
def _spread_table() -> NDArray[np.unsignedinteger]:
    """Returns `_spread` of all integers below 2**_TABLE_BITS: uint32."""
    return _spread(np.arange(1 << _TABLE_BITS))


def encode_examples(features: Features) -> list[bytes]:
    """Serializes N records, like `tf.train.Example.SerializeToString(deterministic=True)`.

    Args:
        features: name → array [N, M], M >= 1. Integers, which must be in [0, 2**56), are written as
            an int64 list, floating-point numbers as a float list.

    Returns:
        N serialized records.

    Raises:
        ValueError: an integer is out of range.
    """
    columns: list[Iterable[bytes]] = []
    # Adjacent features whose bytes have the same number in all records become one column.
    adjacent: list[NDArray[np.uint8]] = []
    for name in sorted(features):  # deterministic serialization sorts the keys
        values = features[name]
        is_float = np.issubdtype(values.dtype, np.floating)
        packed = _packed_floats(values) if is_float else _packed_varints(values)
        header_of = functools.partial(_entry_header, name, _FLOAT_LIST if is_float else _INT64_LIST)
        if isinstance(packed, list):
            columns += [*_joined(adjacent), map(header_of, map(len, packed)), packed]
            adjacent = []
        else:
            header = np.frombuffer(header_of(packed.shape[1]), np.uint8)
            adjacent += [np.tile(header, (len(packed), 1)), packed]
    columns += _joined(adjacent)
    bodies = [b"".join(entries) for entries in zip(*columns, strict=True)]
    return [b"\x0a" + _varint(len(body)) + body for body in bodies]


def _joined(arrays: list[NDArray[np.uint8]]) -> list[list[bytes]]:
    """Returns a column with the bytes of the rows of all arrays, uint8 [N, size]; or none."""
    if not arrays:
        return []
    rows = np.hstack(arrays)
    data, width = rows.tobytes(), rows.shape[1]
    return [[data[at : at + width] for at in range(0, len(data), width)]]


def _fields(data: bytes) -> Iterator[bytes]:
    """Yields the contents of a message's fields, which must all be length-delimited."""
    at = 0
    while at < len(data):
        size, at = varint_at(data, at + 1)
        yield data[at : at + size]
        at += size


def _unpack_varints(data: bytes) -> NDArray[np.int64]:
    raw = np.frombuffer(data, np.uint8).astype(np.int64)
    last = raw < 0x80
    begins = np.flatnonzero(np.concatenate(([True], last[:-1]))) if len(raw) else raw
    place = np.arange(len(raw)) - begins.repeat(np.diff(np.append(begins, len(raw))))
    return np.add.reduceat((raw & 0x7F) << (7 * place), begins) if len(raw) else raw


def decode_example(data: bytes) -> Features:
    """Parses a serialized `tf.train.Example` of int64 and float lists; returns name → array [M].

    Raises:
        ValueError: the data is not such a message.
    """
    result: Features = {}
    try:
        for features in _fields(data):
            for entry in _fields(features):
                key, value = _fields(entry)
                packed = b"".join(_fields(b"".join(_fields(value))))
                is_float = value[0] == _FLOAT_LIST
                values = np.frombuffer(packed, "<f4") if is_float else _unpack_varints(packed)
                result[key.decode("utf-8")] = values
    except (IndexError, UnicodeDecodeError, ValueError) as error:
        raise ValueError(f"not a tf.train.Example of packed numbers: {error}") from None
    return result

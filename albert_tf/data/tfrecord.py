"""Serialized `tf.train.Example`s in TFRecord frames, made and read without TensorFlow.

Byte for byte what `SerializeToString(deterministic=True)` and `tf.io.TFRecordWriter` give (the
tests compare), but many records at a time.

Letters: N records, M values of a feature.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MAP_ENTRY, _KEY, _VALUE = 0x0A, 0x0A, 0x12  # tags of Features.feature and of its map entries
_FLOAT_LIST, _INT64_LIST, _PACKED = 0x12, 0x1A, 0x0A

HEADER_BYTES, FOOTER_BYTES = 12, 4  # length and its checksum; checksum of the content
MAX_BITS = 56  # of an integer: eight bytes of seven bits
_CASTAGNOLI = np.uint32(0x82F63B78)  # CRC-32C's polynomial, lowest power in the highest bit


def _varint(value: int) -> bytes:
    result = bytearray()
    while value > 0x7F:
        result.append(value & 0x7F | 0x80)
        value >>= 7
    result.append(value)
    return bytes(result)


@functools.lru_cache(maxsize=100_000)
def _entry_header(name: str, list_tag: int, size: int) -> bytes:
    """What precedes the packed values of feature `name` when these take `size` bytes."""
    packed = bytes([_PACKED]) + _varint(size)
    value_list = bytes([list_tag]) + _varint(len(packed) + size) + packed
    key = name.encode("utf-8")
    entry = bytes([_KEY]) + _varint(len(key)) + key
    entry += bytes([_VALUE]) + _varint(len(value_list) + size) + value_list
    return bytes([_MAP_ENTRY]) + _varint(len(entry) + size) + entry


def _packed_varints(values: NDArray[np.integer]) -> list[bytes]:
    """Each row of non-negative integers as protobuf varints: [N, M] -> N strings."""
    largest = int(values.max(initial=0))
    if values.size and (int(values.min()) < 0 or largest >= 1 << MAX_BITS):
        raise ValueError(
            f"integers in [0, 2**{MAX_BITS}) expected, got {values.min()} to {largest}"
        )
    if largest < 0x80:
        data, width = values.astype(np.uint8).tobytes(), values.shape[1]
        return [data[row * width : (row + 1) * width] for row in range(len(values))]
    # Seven bits a byte, lowest first, in one word of 4 or 8 bytes; the high bit says that more
    # will come.
    size = 4 if largest < 1 << 28 else 8
    word = values.astype(f"<u{size}")
    spread = word & word.dtype.type(0x7F)
    used = np.ones_like(word)
    for byte in range(1, size):
        if largest < 1 << (7 * byte):
            break
        more = (word >= 1 << (7 * byte)).astype(word.dtype)
        spread |= (word & word.dtype.type(0x7F << (7 * byte))) << byte | more << (8 * byte - 1)
        used |= more << (8 * byte)
    used_bytes = used.view(np.bool_)  # [N, size * M]
    data = spread.view(np.uint8)[used_bytes].tobytes()
    ends = np.count_nonzero(used_bytes, axis=1).cumsum().tolist()
    return [data[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


def encode_examples(features: Mapping[str, NDArray[Any]]) -> list[bytes]:
    """Serializes N records, as `tf.train.Example.SerializeToString(deterministic=True)`.

    Args:
        features: name -> array [N, M], M >= 1; integers in [0, 2**56) become an int64 list,
            floating point numbers a float list.

    Raises:
        ValueError: an integer out of range.
    """
    columns: list[list[bytes]] = []
    for name in sorted(features):  # deterministic serialization sorts the keys
        values = features[name]
        if np.issubdtype(values.dtype, np.floating):
            tag, payloads = _FLOAT_LIST, [row.tobytes() for row in values.astype("<f4")]
        else:
            tag, payloads = _INT64_LIST, _packed_varints(values)
        columns.append([_entry_header(name, tag, len(data)) + data for data in payloads])
    bodies = [b"".join(entries) for entries in zip(*columns, strict=True)]
    return [b"\x0a" + _varint(len(body)) + body for body in bodies]


def _varint_at(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _fields(data: bytes) -> Iterator[bytes]:
    """The contents of the length-delimited fields of a message."""
    at = 0
    while at < len(data):
        size, at = _varint_at(data, at + 1)
        yield data[at : at + size]
        at += size


def _unpack_varints(data: bytes) -> NDArray[np.int64]:
    raw = np.frombuffer(data, np.uint8).astype(np.int64)
    last = raw < 0x80
    begins = np.flatnonzero(np.concatenate(([True], last[:-1]))) if len(raw) else raw
    place = np.arange(len(raw)) - begins.repeat(np.diff(np.append(begins, len(raw))))
    return np.add.reduceat((raw & 0x7F) << (7 * place), begins) if len(raw) else raw


def decode_example(data: bytes) -> dict[str, NDArray[Any]]:
    """Reads a serialized `tf.train.Example` of int64 and float lists: name -> array [M].

    Raises:
        ValueError: not such a message.
    """
    result: dict[str, NDArray[Any]] = {}
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


def _append_zero_bytes(state: NDArray[np.uint32], count: int) -> NDArray[np.uint32]:
    """The states of a CRC-32C after `count` more bytes of zero."""
    for _ in range(8 * count):
        state = state >> np.uint32(1) ^ _CASTAGNOLI * (state & np.uint32(1))
    return state


@functools.lru_cache(maxsize=1)
def _zero_byte_tables() -> list[list[NDArray[np.uint32]]]:
    """Tables that append 4, 8, 16, … 2**26 bytes of zero to a CRC, for its low and high half.

    Appending is linear over bits, so the state after it is the sum of what each bit becomes.
    """
    bits = _append_zero_bytes(np.uint32(1) << np.arange(32, dtype=np.uint32), 4)
    levels = []
    for _ in range(25):
        tables = []
        for half in (bits[:16], bits[16:]):
            table = np.zeros(1, np.uint32)
            for bit in half:
                table = np.concatenate((table, table ^ bit))
            tables.append(table)
        levels.append(tables)
        bits = _append_zeros(tables, bits)
    return levels


def _append_zeros(
    tables: list[NDArray[np.uint32]], states: NDArray[np.uint32]
) -> NDArray[np.uint32]:
    halves = np.ascontiguousarray(states).view("<u2")
    return tables[0].take(halves[..., 0::2]) ^ tables[1].take(halves[..., 1::2])


def crc32c(contents: Sequence[bytes]) -> NDArray[np.uint32]:
    """CRC-32C of N byte strings of at least 4 bytes each: uint32 [N].

    All words of all strings are looked up at once and then combined pairwise, so the cost for each
    string is small only where there are many of about the same length.
    """
    levels = _zero_byte_tables()
    width = -(-max(map(len, contents)) // 4) * 4
    # Zeros in front of the content change nothing but the initial state; that all its bits are
    # ones is the same as inverting the first four bytes.
    padded = np.frombuffer(bytearray().join(data.rjust(width, b"\0") for data in contents), "u1")
    padded = padded.reshape(len(contents), width)
    begins = width - np.fromiter(map(len, contents), np.int64, len(contents))
    padded[np.arange(len(contents))[:, None], begins[:, None] + np.arange(4)] ^= 0xFF
    state = _append_zeros(levels[0], padded.view("<u4"))  # [N, width / 4]
    for tables in levels:
        if state.shape[1] == 1:
            break
        if state.shape[1] % 2:
            state = np.concatenate((np.zeros_like(state[:, :1]), state), axis=1)
        state = _append_zeros(tables, state[:, 0::2]) ^ state[:, 1::2]
    return ~state[:, 0]


def _masked_crc32c(contents: Sequence[bytes]) -> NDArray[np.uint32]:
    """The checksum as TFRecord files hold it, rotated and shifted."""
    crc = crc32c(contents)
    rotated = crc >> np.uint32(15) | crc << np.uint32(17)
    return rotated + np.uint32(0xA282EAD8)


def frame_records(contents: Sequence[bytes]) -> list[bytes]:
    """Puts serialized records into TFRecord frames: joined, they are a TFRecord file."""
    if not contents:
        return []
    lengths = [struct.pack("<Q", len(data)) for data in contents]
    length_checks = _masked_crc32c(lengths).astype("<u4").tobytes()
    checks = _masked_crc32c(contents).astype("<u4").tobytes()
    return [
        length + length_checks[at : at + 4] + data + checks[at : at + 4]
        for length, data, at in zip(lengths, contents, range(0, len(checks), 4), strict=True)
    ]


def has_good_length(header: bytes) -> bool:
    """Whether a record's first HEADER_BYTES hold a length and its checksum."""
    check = int(_masked_crc32c([header[:8]])[0])
    return len(header) == HEADER_BYTES and struct.unpack("<I", header[8:])[0] == check


def has_good_contents(frames: Sequence[bytes]) -> list[bool]:
    """Whether each of N records' contents has the checksum that follows it.

    Args:
        frames: a content and its FOOTER_BYTES each. Contents of less than 4 bytes, which no
            `tf.train.Example` with a feature has, count as wrong.
    """
    long_enough = [frame for frame in frames if len(frame) >= 4 + FOOTER_BYTES]
    if not long_enough:
        return [False] * len(frames)
    checks = _masked_crc32c([frame[:-FOOTER_BYTES] for frame in long_enough])
    stored = [struct.unpack("<I", frame[-FOOTER_BYTES:])[0] for frame in long_enough]
    sound = iter((checks == np.array(stored, np.uint32)).tolist())
    return [len(frame) >= 4 + FOOTER_BYTES and next(sound) for frame in frames]

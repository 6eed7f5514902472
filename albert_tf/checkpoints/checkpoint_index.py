"""Where the arrays of a TensorFlow checkpoint are in its data file.

TensorFlow's reader copies each array into new memory. What is found here can be mapped instead, so
that nothing is copied, and processes that open the same model share the memory of its weights.

The index is a table of LevelDB: blocks of entries, each followed by its kind of compression (1
byte) and a checksum (4 bytes), and at the end a footer of 48 bytes. The footer has the places of
two blocks, of which the second lists those of the data. An entry has a key and a value: how many
bytes of the key are those of the entry before, the sizes of its other bytes and of the value, and
these. Behind the entries of a block are the places of some of them (4 bytes each), for searching,
and their number. The first entry of the data is a `BundleHeaderProto`, with the key "", and the
others are a `BundleEntryProto` for each array.

Sources: https://github.com/google/leveldb/blob/main/doc/table_format.md and TensorFlow's
core/protobuf/tensor_bundle.proto.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from albert_tf import files
from albert_tf.checkpoints.run_folder import DATA_SUFFIX
from albert_tf.data import records
from albert_tf.protobuf_wire import Value, fields, varint_at

_MAGIC = bytes.fromhex("57fb808b247547db")
_FOOTER_BYTES = 48
_WORD_BYTES = 4
_ITEM_BYTES = 4  # of float32
_SHARDS, _IS_BIG_ENDIAN = 1, 2  # fields of BundleHeaderProto
_OFFSET, _SIZE, _CHECKSUM, _SLICES = 4, 5, 6, 7  # fields of BundleEntryProto


@dataclasses.dataclass(frozen=True)
class Place:
    """Where the bytes of an array are, little-endian and in the order of C.

    Attributes:
        offset: of the first byte in the data file.
        size: number of bytes.
        checksum: their masked CRC-32C, little-endian, as in TFRecord files.
    """

    offset: int
    size: int
    checksum: bytes

    def map(self, prefix: str, shape: Sequence[int]) -> NDArray[np.float32] | None:
        """Returns the array, float32; a change of it does not change the file.

        The caller must know that it is float32, and that the file is local.

        Returns:
            The array; None if the file is cut short or damaged.
        """
        if _ITEM_BYTES * math.prod(shape) != self.size:
            return None
        try:
            array = np.memmap(prefix + DATA_SUFFIX, np.float32, "c", self.offset, tuple(shape))
        except (OSError, ValueError, OverflowError):
            return None
        content = np.asarray(array)
        content.flags.writeable = False  # as the checksum wants it
        return array if records.checksum(content) == self.checksum else None


def places(prefix: str) -> dict[str, Place]:
    """Returns name → place for the arrays of a checkpoint that is in a single data file.

    An array that was saved in slices has none, and neither has any if there are several data files.
    (Slices have keys of their own, which are no names.)

    Raises:
        ValueError: the index is damaged, compressed or not an index. Not all damages are noticed.
    """
    try:
        entries = dict(_entries(files.read_bytes(prefix + ".index")))
        header = _message(entries.pop(b""))
        if header.get(_SHARDS) != 1 or header.get(_IS_BIG_ENDIAN):
            return {}
        messages = {key.decode("utf-8", "replace"): _message(x) for key, x in entries.items()}
        return {name: _place(x) for name, x in messages.items() if _SLICES not in x}
    except (LookupError, ValueError, OverflowError) as error:
        raise ValueError(f"{prefix}.index: not the index of a checkpoint ({error})") from None


def _place(message: dict[int, Value]) -> Place:
    offset, size, checksum = (int(message.get(field, 0)) for field in (_OFFSET, _SIZE, _CHECKSUM))
    return Place(offset, size, checksum.to_bytes(_WORD_BYTES, "little"))


def _message(content: bytes) -> dict[int, Value]:
    """Returns number → value of the fields of a message; the last one of repeated fields."""
    return dict(fields(content, fixed_integers=True))


def _entries(table: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yields the keys and values of a table."""
    footer = table[-_FOOTER_BYTES:]
    if not footer.endswith(_MAGIC):
        raise ValueError("it does not end as one")
    _, at = _handle(footer, 0)
    blocks, _ = _handle(footer, at)
    for _, handle in _block(table, *blocks):
        block, _ = _handle(handle, 0)
        yield from _block(table, *block)


def _handle(data: bytes, at: int) -> tuple[tuple[int, int], int]:
    """Returns the offset and the size of a block, and the index behind them."""
    offset, at = varint_at(data, at)
    size, at = varint_at(data, at)
    return (offset, size), at


def _block(table: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yields the keys and values of a block."""
    if table[offset + size]:
        raise ValueError("it is compressed")
    block = table[offset : offset + size]
    count = int.from_bytes(block[-_WORD_BYTES:], "little")
    end = size - _WORD_BYTES * (count + 1)
    key, at = b"", 0
    while at < end:
        shared, at = varint_at(block, at)
        others, at = varint_at(block, at)
        length, at = varint_at(block, at)
        key = key[:shared] + block[at : at + others]
        at += others
        yield key, block[at : at + length]
        at += length

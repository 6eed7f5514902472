"""Frames of TFRecord files: what stands before and after each record.

A TFRecord file is a sequence of frames, little-endian:

    uint64 length | uint32 checksum of the length | content | uint32 checksum of the content

The bytes are identical to those of `tf.io.TFRecordWriter`, which tests compare.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence

import google_crc32c
import numpy as np
from numpy.typing import NDArray

HEADER_BYTES, FOOTER_BYTES = 12, 4  # size of a frame before and after the content
FRAME_BYTES = HEADER_BYTES + FOOTER_BYTES


def checksum(data: bytes | NDArray[np.generic]) -> bytes:
    """Returns the masked CRC-32C of TFRecord files (rotated, plus a constant): 4 bytes.

    Args:
        data: the bytes, or an array in the order of C.
    """
    crc: int = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


@functools.lru_cache(maxsize=100_000)
def frame_header(size: int) -> bytes:
    """Returns the header of a frame whose content has `size` bytes."""
    length = struct.pack("<Q", size)
    return length + checksum(length)


def begins_frame(start: bytes) -> bool:
    """Returns whether some bytes begin with the header of a frame, as those of a TFRecord file."""
    return start[:HEADER_BYTES] == frame_header(int.from_bytes(start[:8], "little"))


def frame_records(contents: Sequence[bytes]) -> list[bytes]:
    """Wraps serialized records in TFRecord frames; their concatenation is a TFRecord file."""
    return [frame_header(len(data)) + data + checksum(data) for data in contents]


def split_frames(data: bytes) -> list[bytes]:
    """Returns the frames of which a part of a TFRecord file consists.

    Raises:
        ValueError: a frame is damaged.
    """
    frames = []
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 8], "little")
        begin = at + HEADER_BYTES
        footer = begin + size
        end = footer + FOOTER_BYTES
        if data[at:begin] != frame_header(size) or data[footer:end] != checksum(data[begin:footer]):
            raise ValueError("a record is damaged")
        frames.append(data[at:end])
        at = end
    return frames

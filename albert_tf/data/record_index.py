"""Reads and writes indexes of record files, which tell where each record starts.

With an index, any record is found with one small read. Without it, the headers of all records
before it have to be read, each of which would be a request where files are remote.

The index of `folder/name` is `folder/records.index/name`, which patterns such as `folder/name*` do
not match. It contains 64-bit little-endian integers: the offset of each record in bytes, and at
last the size of the record file.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Sequence

import numpy as np
from absl import logging

from albert_tf import files
from albert_tf.data.tfrecord import FOOTER_BYTES, HEADER_BYTES

FOLDER = "records.index"
OFFSETS_AT_ONCE = 1024  # per read
_DTYPE = np.dtype("<i8")


def path_of(path: str) -> str:
    """Returns the path of the index of a record file."""
    folder, name = os.path.split(path)
    return os.path.join(folder, FOLDER, name)


def write(path: str, offsets: Sequence[int]) -> None:
    """Writes the index of a record file.

    Args:
        path: the record file, which need not exist yet.
        offsets: the offset of each record, and the size of the file.
    """
    index = path_of(path)
    files.ensure_directory(os.path.dirname(index))
    with files.write_atomically(index, "wb") as stream:
        stream.write(np.asarray(offsets, _DTYPE).tobytes())


@dataclasses.dataclass(frozen=True)
class RecordIndex:
    """Where the records of a file start.

    Attributes:
        path: the index file.
        num_records: number of records.
        record_bytes: size of the record file.
    """

    path: str
    num_records: int
    record_bytes: int

    def offsets(self, first: int = 0) -> Iterator[int]:
        """Yields the offset of each record from record `first` on, and the size of the file.

        Raises:
            ValueError: the index is damaged.
        """
        for begin in range(first, self.num_records, OFFSETS_AT_ONCE):
            end = min(begin + OFFSETS_AT_ONCE, self.num_records)
            # The offset of the next record tells where the last one ends.
            offsets = _read(self.path, begin, end + 1)
            smallest = HEADER_BYTES + FOOTER_BYTES
            is_sound = len(offsets) == end + 1 - begin and (np.diff(offsets) >= smallest).all()
            if not is_sound or offsets[0] < 0 or offsets[-1] > self.record_bytes:
                raise ValueError(f"{self.path}: damaged. Remove it, or create the records again")
            yield from offsets[:-1].tolist()
        if first <= self.num_records:
            yield self.record_bytes


def find(path: str) -> RecordIndex | None:
    """Returns the index of a record file, or None if there is none or it is of another file."""
    index = path_of(path)
    try:
        end = files.file_size(index) // _DTYPE.itemsize * _DTYPE.itemsize
    except FileNotFoundError:
        return None
    size = files.file_size(path)
    ends = [(0, _DTYPE.itemsize), (end - _DTYPE.itemsize, end)]
    expected = [np.array(offset, _DTYPE).tobytes() for offset in (0, size)]
    if end and list(files.read_ranges(index, ends)) == expected:
        return RecordIndex(index, end // _DTYPE.itemsize - 1, size)
    logging.warning(
        "%s: ignored, because it was not made for a file of %d bytes like %s. Remove it, or create "
        "the records again.",
        index,
        size,
        path,
    )
    return None


def _read(index: str, first: int, end: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Returns some of the numbers in an index file."""
    (data,) = files.read_ranges(index, [(first * _DTYPE.itemsize, end * _DTYPE.itemsize)])
    return np.frombuffer(data[: len(data) // _DTYPE.itemsize * _DTYPE.itemsize], _DTYPE)

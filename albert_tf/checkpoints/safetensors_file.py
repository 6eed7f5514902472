"""Files of safetensors: reads their arrays, and writes them an array at a time.

A file is the size of its header (8 bytes, little-endian), the header, and the arrays one after the
other. The header is JSON, padded with spaces to a multiple of 8 bytes: name → dtype, shape, and the
offsets of the array's first byte and of the byte behind its last, counted from the header's end.

The library of this format maps a file that it reads: the process ends if another one truncates the
file meanwhile. And it holds all arrays of a file that it writes, and their bytes, in memory. Here,
arrays are read as other files are, and a model is written with one of its arrays in memory. The
bytes are those that the library writes.
"""

from __future__ import annotations

import dataclasses
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import IO

import numpy as np
from numpy.typing import NDArray

from albert_tf import files
from albert_tf.checkpoints.arrays import Array, LazyArrays, copy_by_lines, new_memory

_METADATA = "__metadata__"
_FLOAT32 = "F32"
_BFLOAT16 = "BF16"
# Name of a dtype → what NumPy reads, which has no bfloat16: that is the upper half of a float32.
_DTYPES = {
    **{"F64": "<f8", _FLOAT32: "<f4", "F16": "<f2", _BFLOAT16: "<u2"},
    **{"I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U8": "u1", "BOOL": "?"},
}
_ITEM_BYTES = 4
_SIZE_BYTES = 8  # of the header's size
_MAX_HEADER = 100_000_000  # bytes, as in the library
_BLOCK_BYTES = 1 << 21  # which the caches of a core have


@dataclasses.dataclass(frozen=True)
class Place:
    """Where an array is in a file.

    Attributes:
        name: its name.
        dtype: a key of `_DTYPES`.
        shape: its shape.
        offset: of its first byte in the file.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int

    @property
    def size(self) -> int:
        """Number of bytes."""
        return math.prod(self.shape) * np.dtype(_DTYPES[self.dtype]).itemsize

    def read(self, path: str, is_transposed: bool = False) -> Array:
        """Returns the array of a local file, which is the caller's alone; float32 for bfloat16.

        Args:
            path: the file.
            is_transposed: whether to return the transpose of a matrix, float32. It is the only
                array of this size in memory: blocks of the file are read and transposed.

        Raises:
            ValueError: the file ends within it.
        """
        dtype = np.dtype(_DTYPES[self.dtype])
        with open(path, "rb") as stream, files.naming_file(path):
            stream.seek(self.offset)
            if not is_transposed:
                return self._fill(new_memory(self.size).view(dtype).reshape(self.shape), stream)
            rows, columns = self.shape
            result = new_memory(4 * rows * columns).view(np.float32).reshape(columns, rows)
            for part in _blocks(result.T):
                copy_by_lines(self._fill(np.empty(part.shape, dtype), stream).T, part.T)
            return result

    def _fill(self, array: Array, stream: io.BufferedReader) -> Array:
        """Returns an array that the next bytes of a file were read into."""
        if stream.readinto(array.data) < array.nbytes:
            raise ValueError(f"{stream.name}: cannot read {self.name!r}, the file is cut short")
        if self.dtype == _BFLOAT16:
            return (array.astype(np.uint32) << 16).view(np.float32)
        return array


def places(path: str) -> dict[str, Place]:
    """Returns name → place for the arrays of a file.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: it is damaged, or has an array of a dtype that is not read here.
    """
    with files.open_binary(path) as stream, files.naming_file(path):
        size = int.from_bytes(stream.read(_SIZE_BYTES), "little")
        header = stream.read(size) if size <= _MAX_HEADER else b""
    try:
        entries = files.load_json(header)
        if not isinstance(entries, dict):
            raise ValueError("its header is not an object")
        entries.pop(_METADATA, None)
        found = {name: _place(name, x, _SIZE_BYTES + size) for name, x in entries.items()}
        _check_order(found.values(), _SIZE_BYTES + size, files.file_size(path))
    except ValueError as error:
        raise ValueError(f"{path}: damaged or not a safetensors file ({error})") from None
    return found


def _place(name: str, entry: object, start: int) -> Place:
    """Returns the place of an array, as the header has it.

    Args:
        name: name of the array.
        entry: the value of the header.
        start: offset of the first array.

    Raises:
        ValueError: the entry is damaged.
    """
    if not isinstance(entry, dict):
        raise ValueError(f"{files.quote(name)} is no object")
    files.check_fields(entry, name, {"dtype": str, "shape": list, "data_offsets": list})
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if dtype not in _DTYPES:
        raise ValueError(f"{name} has the dtype {files.quote(dtype)}, which is not read here")
    if len(offsets) != 2 or not all(type(x) is int and x >= 0 for x in [*shape, *offsets]):
        raise ValueError(f"{name} has no shape, or no place")
    place = Place(name, dtype, tuple(shape), start + offsets[0])
    if place.size != offsets[1] - offsets[0]:
        raise ValueError(f"{name} has {offsets[1] - offsets[0]} bytes, expected {place.size}")
    return place


def _check_order(found: Iterable[Place], start: int, end: int) -> None:
    """Raises ValueError unless the arrays follow each other from `start` to `end`, in bytes."""
    for place in sorted(found, key=lambda place: (place.offset, place.size)):
        if place.offset != start:
            raise ValueError(f"{place.name} begins at byte {place.offset}, expected {start}")
        start += place.size
    if start != end:
        raise ValueError(f"the file has {end} bytes, expected {start}")


def write(path: str, arrays: LazyArrays, metadata: Mapping[str, str]) -> None:
    """Writes float32 arrays in the order of their names, reading one at a time.

    Args:
        path: the file, which appears when it is whole.
        arrays: the arrays.
        metadata: what the file says of itself, as {"format": "pt"}.

    Raises:
        OSError: the file cannot be written.
    """
    header: dict[str, object] = {_METADATA: dict(metadata)}
    end = 0
    for name in sorted(arrays):
        shape = arrays.shapes[name]
        begin, end = end, end + _ITEM_BYTES * math.prod(shape)
        header[name] = {"dtype": _FLOAT32, "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % _SIZE_BYTES)
    with files.write_atomically(path, "wb") as stream:
        stream.write(len(text).to_bytes(_SIZE_BYTES, "little") + text)
        for name in sorted(arrays):
            _write_array(stream, np.asarray(arrays[name], np.float32))


def _write_array(stream: IO[bytes], array: NDArray[np.float32]) -> None:
    for block in _blocks(array):
        in_order = np.empty(block.shape, "<f4")
        copy_by_lines(block, in_order)
        stream.write(in_order.data)


def _blocks(array: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
    """Yields an array in parts along its first axis, of some megabytes each."""
    if not array.ndim or not array.size:
        yield array
        return
    row_bytes = max(1, array.nbytes // len(array))
    step = max(1, _BLOCK_BYTES // row_bytes)
    for start in range(0, len(array), step):
        yield array[start : start + step]

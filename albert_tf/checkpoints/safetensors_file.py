"""Files of safetensors: where their float32 arrays are, and how to write one an array at a time.

A file is the size of its header (8 bytes, little-endian), the header, and the arrays one after the
other. The header is JSON, padded with spaces to a multiple of 8 bytes: name → dtype, shape, and the
offsets of the array's first byte and of the byte behind its last, counted from the header's end.

The library of this format holds all arrays of a file that it writes, and their bytes, in memory. A
model is written here with one of its arrays in memory. The bytes are those that the library writes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from albert_tf import files
from albert_tf.checkpoints.lazy_arrays import LazyArrays
from albert_tf.checkpoints.tensor_memory import copy_in_c_order

_METADATA = "__metadata__"
_FLOAT32 = "F32"
_ITEM_BYTES = 4
_SIZE_BYTES = 8  # of the header's size
_BLOCK_BYTES = 1 << 24


def places_of_float32(path: str) -> dict[str, int]:
    """Returns name → offset in the file for the float32 arrays with items.

    Args:
        path: a local file, which the library of safetensors has found to be whole.
    """
    with files.open_binary(path) as stream:
        size = int.from_bytes(stream.read(_SIZE_BYTES), "little")
        header = json.loads(stream.read(size))
    header.pop(_METADATA, None)
    return {
        name: _SIZE_BYTES + size + entry["data_offsets"][0]
        for name, entry in header.items()
        if entry["dtype"] == _FLOAT32 and math.prod(entry["shape"])
    }


def write(path: str, arrays: LazyArrays, metadata: Mapping[str, str]) -> None:
    """Writes float32 arrays in the order of their names, reading one at a time.

    Args:
        path: the file, which appears when it is whole.
        arrays: the arrays.
        metadata: what the file says of itself, as {"format": "pt"}.

    Raises:
        OSError: the file cannot be written.
    """
    header: dict[str, Any] = {_METADATA: dict(metadata)}
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
            _write_array(stream, arrays[name])


def _write_array(stream: IO[bytes], array: NDArray[np.float32]) -> None:
    for block in _blocks(array):
        stream.write(copy_in_c_order(block.astype("<f4", copy=False)).data)


def _blocks(array: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
    """Yields an array in parts along its first axis, of some megabytes each."""
    if not array.ndim or not array.size:
        yield array
        return
    row_bytes = max(1, array.nbytes // len(array))
    step = max(1, _BLOCK_BYTES // row_bytes)
    for start in range(0, len(array), step):
        yield array[start : start + step]

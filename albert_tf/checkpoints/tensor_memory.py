"""Makes tensors of arrays without copying them, because the arrays of a model are large.

`tf.constant` copies an array once or twice. TensorFlow takes over the memory of an array as it is
if it begins at a multiple of 64 bytes, as that of arrays read by TensorFlow does, and most of those
in a mapped TensorFlow checkpoint. Other arrays are copied once, such as the kernels of a file of
safetensors, which are transposed.
"""

from __future__ import annotations

import mmap
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import tensorflow as tf

ALIGNMENT = 64  # bytes: TensorFlow ends the process if its operations get less
_LINE = 16  # float32 numbers in a line of the processor's cache
_ROWS = 4096
_SMALL = 1 << 16  # bytes: not worth it
_AT_ONCE = getattr(mmap, "MAP_POPULATE", 0)  # of Linux alone


def as_tensor(array: NDArray[Any]) -> tf.Tensor:
    """Returns an array as a tensor, which takes over its memory if it can.

    The caller must not use the array any more, unless it is read-only: such arrays are copied.
    """
    import tensorflow as tf

    if array.dtype != np.float32 or array.nbytes < _SMALL:
        return tf.convert_to_tensor(array)
    flags = array.flags
    if not (flags.c_contiguous and flags.writeable and array.ctypes.data % ALIGNMENT == 0):
        array = copy_in_c_order(array, _new_pages(array.nbytes))
    return tf.experimental.dlpack.from_dlpack(array.__dlpack__())


def copy_in_c_order(
    array: NDArray[np.float32], memory: NDArray[np.uint8] | None = None
) -> NDArray[np.float32]:
    """Returns a copy in the order of C.

    Args:
        array: the array.
        memory: where the copy is; new memory by default.
    """
    result = np.empty(array.shape, np.float32)
    if memory is not None:
        result = memory.view(np.float32).reshape(array.shape)
    if array.ndim != 2 or array.flags.c_contiguous:
        np.copyto(result, array)
        return result
    # The rows of the transposed array are read in order, and lines of the cache are written whole.
    for column in range(0, array.shape[1], _LINE):
        for row in range(0, array.shape[0], _ROWS):
            part = slice(row, row + _ROWS), slice(column, column + _LINE)
            result[part] = array[part]
    return result


def _new_pages(size: int) -> NDArray[np.uint8]:
    """Returns new memory, uint8 [size], which begins at a page.

    NumPy would ask for huge pages, for which Linux may move other memory first: that can take twice
    the time of reading a model. Linux maps all ordinary pages in one call here, which takes two
    thirds of the time of mapping each when it is first written to.
    """
    if sys.platform == "win32":
        return np.frombuffer(mmap.mmap(-1, size), np.uint8)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS  # a forked process has its own
    return np.frombuffer(mmap.mmap(-1, size, flags | _AT_ONCE), np.uint8)

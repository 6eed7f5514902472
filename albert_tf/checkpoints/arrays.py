"""The arrays of a model, which are large: read one at a time, and made tensors without a copy.

`tf.constant` copies an array once or twice. TensorFlow takes over the memory of an array as it is
if it begins at a multiple of 64 bytes, as that of arrays read by TensorFlow does, and that of
`new_memory`. Other arrays are copied once.
"""

from __future__ import annotations

import math
import mmap
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import tensorflow as tf

Array: TypeAlias = NDArray[np.generic]  # of any dtype

_ALIGNMENT = 64  # bytes: TensorFlow ends the process if its operations get less
_LINE = 16  # float32 numbers in a line of the processor's cache
_SMALL = 1 << 16  # bytes: not worth it


class LazyArrays(Mapping[str, Array]):
    """name → array, each of which is computed whenever it is asked for. The small ones come first.

    Args:
        shapes: name → shape.
        compute: returns the array with a given name.

    Attributes:
        shapes: the argument, in the order of the sizes.
    """

    def __init__(
        self, shapes: Mapping[str, tuple[int, ...]], compute: Callable[[str], Array]
    ) -> None:
        self.shapes = dict(sorted(shapes.items(), key=lambda item: math.prod(item[1])))
        self._compute = compute

    @classmethod
    def of(cls, arrays: Mapping[str, Array]) -> LazyArrays:
        """Returns arrays themselves if they are lazy, or else these, which are in memory."""
        if isinstance(arrays, LazyArrays):
            return arrays
        return cls({name: np.shape(array) for name, array in arrays.items()}, arrays.__getitem__)

    def plus(self, others: Mapping[str, Array]) -> LazyArrays:
        """Returns these arrays and others, which are in memory."""
        shapes = self.shapes | {name: array.shape for name, array in others.items()}
        return LazyArrays(shapes, lambda name: others[name] if name in others else self[name])

    def __getitem__(self, name: str) -> Array:
        return self._compute(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)


def as_tensor(array: Array) -> tf.Tensor:
    """Returns an array as a tensor, which takes over its memory if it can.

    The caller must not use the array any more, unless it is read-only: such arrays are copied.
    """
    import tensorflow as tf

    if array.dtype != np.float32 or array.nbytes < _SMALL:
        return tf.convert_to_tensor(array)
    return tf.experimental.dlpack.from_dlpack(
        to_take_over(array.astype(np.float32, copy=False)).__dlpack__()
    )


def to_take_over(array: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns an array if a tensor can take over its memory or if it is small, or else a copy."""
    flags = array.flags
    is_fit = flags.c_contiguous and flags.writeable and array.ctypes.data % _ALIGNMENT == 0
    if is_fit or array.nbytes < _SMALL:
        return array
    result = new_memory(array.nbytes).view(np.float32).reshape(array.shape)
    copy_by_lines(array, result)
    return result


def copy_by_lines(array: Array, result: NDArray[np.float32]) -> None:
    """Copies an array, which may be transposed, to one in the order of C or a part of that."""
    if array.ndim != 2 or array.flags.c_contiguous:
        np.copyto(result, array)
        return
    # The transposed array is read row by row, and lines of the cache are written whole.
    for column in range(0, array.shape[1], _LINE):
        part = slice(None), slice(column, column + _LINE)
        result[part] = array[part]


def new_memory(size: int) -> NDArray[np.uint8]:
    """Returns new memory, uint8 [size], which begins at a page if it is large.

    NumPy would ask for huge pages, for which Linux may move other memory first: that can take twice
    the time of reading a model.
    """
    if size < _SMALL:
        return np.empty(size, np.uint8)
    if sys.platform == "win32":
        return np.frombuffer(mmap.mmap(-1, size), np.uint8)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS  # a forked process has its own
    flags |= getattr(mmap, "MAP_POPULATE", 0)  # all pages at once take Linux two thirds of the time
    return np.frombuffer(mmap.mmap(-1, size, flags), np.uint8)

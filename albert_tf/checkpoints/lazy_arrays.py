"""Arrays that are read or computed when they are asked for, one at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


class LazyArrays(Mapping[str, NDArray[Any]]):
    """name → array, each of which is computed whenever it is asked for. The small ones come first.

    Args:
        shapes: name → shape.
        compute: returns the array with a given name.

    Attributes:
        shapes: the argument, in the order of the sizes.
    """

    def __init__(
        self, shapes: Mapping[str, tuple[int, ...]], compute: Callable[[str], NDArray[Any]]
    ) -> None:
        self.shapes = dict(sorted(shapes.items(), key=lambda item: math.prod(item[1])))
        self._compute = compute

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[Any]]) -> LazyArrays:
        """Returns arrays themselves if they are lazy, or else these, which are in memory."""
        if isinstance(arrays, LazyArrays):
            return arrays
        return cls({name: np.shape(array) for name, array in arrays.items()}, arrays.__getitem__)

    def plus(self, others: Mapping[str, NDArray[Any]]) -> LazyArrays:
        """Returns these arrays and others, which are in memory."""
        shapes = self.shapes | {name: array.shape for name, array in others.items()}
        return LazyArrays(shapes, lambda name: others[name] if name in others else self[name])

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._compute(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)

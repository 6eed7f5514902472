"""A kernel of Triton in a file, which XLA compiles and starts."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Sequence

import tensorflow as tf

from albert_tf.model.kernels.custom_calls import CallResult, call, escaped

_TARGET = "__gpu$xla.gpu.triton"
_CODE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "code")


@dataclasses.dataclass(frozen=True)
class TritonKernel:
    """A kernel for all sizes that there are files for.

    Attributes:
        file: the file's name before the size.
        name: the name of its function.
        warps: the warps of a program.
        stages: the steps of its loop that are loaded ahead.
    """

    file: str
    name: str
    warps: int
    stages: int = 1

    def __call__(
        self,
        size: int,
        programs: tuple[int, int],
        operands: Sequence[tf.Tensor],
        results: Sequence[CallResult],
    ) -> list[tf.Tensor]:
        """Returns the results of the kernel.

        Args:
            size: the size in the file's name.
            programs: the numbers of programs along both axes of the grid.
            operands: of static shape; the first has the dtype of the activations.
            results: what it returns.
        """
        code = _read(self.file, size)
        if operands[0].dtype == tf.float16:
            code = code.replace("bf16", "f16")
        options = {
            "num_stages": self.stages,
            "num_warps": self.warps,
            "grid_x": programs[0],
            "grid_y": programs[1],
            "grid_z": 1,
        }
        numbers = ", ".join(f"{key} = {value} : i32" for key, value in options.items())
        text = f'{{name = "{self.name}", ir = "{escaped(code)}", {numbers}, debug = false}}'
        return call(_TARGET, text, operands, results)


@functools.cache
def _read(file: str, size: int) -> str:
    """Returns the code of a kernel."""
    with open(os.path.join(_CODE, f"{file}_{size}.ttir"), encoding="utf-8") as stream:
        return stream.read()


def dropout_numbers(rate: float, seed: tf.Tensor | None) -> tf.Tensor:
    """Returns the threshold of dropout and the seed, int32 [3], as kernels read them."""
    drops = seed is not None and rate > 0.0
    threshold = tf.constant(round(rate * 2**32) if drops else 0, tf.uint32)
    others = seed if drops else tf.zeros(2, tf.int32)
    return tf.concat([tf.bitcast(threshold, tf.int32)[None], others], axis=0)  # [3]

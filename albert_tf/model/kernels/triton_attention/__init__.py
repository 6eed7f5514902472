"""Attention with dropout by kernels of Triton, in programs that XLA compiles whole for NVIDIA GPUs.

They compute it as FlashAttention does (arXiv 2205.14135), with the masks of `ops.keep_mask`:
neither scores nor masks are written to memory. `source.py` has the kernels in Triton's language;
the `.ttir` files are what it makes of them, in Triton's intermediate code, which XLA compiles for
the GPU at hand. That is no stable format: what a release of XLA does not take is found out when
`training/fused_attention.py` tries it.

Dimensions: as in `ops.py`.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Sequence

import tensorflow as tf

from albert_tf.model.dispatch import Gradient
from albert_tf.model.kernels.custom_calls import Result, call, escaped

HEAD_SIZES = (32, 64, 128)  # that there are kernels for
LENGTHS = 128  # the length is a multiple of it: the largest block of the kernels
_MAX_ELEMENTS = 2**31  # the kernels count them in int32
_TARGET = "__gpu$xla.gpu.triton"
_FOLDER = os.path.dirname(os.path.abspath(__file__))


@dataclasses.dataclass(frozen=True)
class _Kernel:
    """A kernel in a file, and how it is started.

    Attributes:
        name: the beginning of the file's name, and the name of its function.
        block: the queries or keys of a program.
        warps: the warps of a program.
        stages: the steps of its loop that are loaded ahead.
    """

    name: str
    block: int
    warps: int
    stages: int

    def __call__(
        self, query: tf.Tensor, operands: Sequence[tf.Tensor], results: Sequence[Result]
    ) -> list[tf.Tensor]:
        """Returns the results of the kernel for operands, of which the query is the first."""
        B, S, A, D = query.shape  # float
        code = _read(self.name, D)
        if query.dtype == tf.float16:
            code = code.replace("bf16", "f16")
        options = {
            "num_stages": self.stages,
            "num_warps": self.warps,
            "grid_x": S // self.block,
            "grid_y": B * A,
            "grid_z": 1,
        }
        numbers = ", ".join(f"{key} = {value} : i32" for key, value in options.items())
        text = f'{{name = "{self.name}", ir = "{escaped(code)}", {numbers}, debug = false}}'
        return call(_TARGET, text, [query, *operands], results)


_FORWARD = _Kernel("forward", 128, warps=4, stages=3)
_GRADIENT_OF_KEYS = _Kernel("gradient_of_keys", 128, warps=8, stages=2)
_GRADIENT_OF_QUERIES = _Kernel("gradient_of_queries", 128, warps=8, stages=2)


@functools.cache
def _read(name: str, head_size: int) -> str:
    """Returns the code of a kernel."""
    path = os.path.join(_FOLDER, f"{name}_{head_size}.ttir")
    with open(path, encoding="utf-8") as stream:
        return stream.read()


def takes(shape: tf.TensorShape) -> bool:
    """Returns whether there are kernels for a query of static shape [B, A, S, D]."""
    is_small = shape.num_elements() < _MAX_ELEMENTS
    return is_small and shape[3] in HEAD_SIZES and shape[2] % LENGTHS == 0


def attention(
    query: tf.Tensor,
    key: tf.Tensor,
    value: tf.Tensor,
    input_mask: tf.Tensor | None,
    rate: float,
    seed: tf.Tensor,
) -> tf.Tensor:
    """Returns dropout(softmax(query · keyᵀ / √D)) · value, float [B, S, A, D].

    Args:
        query: bfloat16 or float16 [B, S, A, D], with static sizes that `takes` accepts.
        key: the same.
        value: the same.
        input_mask: as in `ops.attention`.
        rate: dropout rate.
        seed: as in `ops.dropout`.
    """
    B, S, A, _ = query.shape
    mask = tf.ones((B, S), tf.int32) if input_mask is None else tf.cast(input_mask, tf.int32)
    threshold = tf.bitcast(tf.constant(round(rate * 2**32), tf.uint32), tf.int32)
    numbers = tf.concat([tf.stack([S, A, threshold]), seed], axis=0)  # [5]
    like_query = Result(tuple(query.shape), query.dtype)
    row_sums = Result((B, A, S), tf.float32)

    @tf.custom_gradient
    def run(query: tf.Tensor, key: tf.Tensor, value: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
        operands = [key, value, mask, numbers]
        context, log_total = _FORWARD(query, operands, [like_query, row_sums])

        def gradient(dcontext: tf.Tensor) -> tuple[tf.Tensor, ...]:
            product = tf.cast(context, tf.float32) * tf.cast(dcontext, tf.float32)
            along = tf.transpose(tf.reduce_sum(product, -1), (0, 2, 1))  # [B, A, S]
            others = [*operands, log_total, along, dcontext]
            dkey, dvalue = _GRADIENT_OF_KEYS(query, others, [like_query, like_query])
            (dquery,) = _GRADIENT_OF_QUERIES(query, others, [like_query])
            return dquery, dkey, dvalue  # [B, S, A, D] each

        return context, gradient

    return run(query, key, value)

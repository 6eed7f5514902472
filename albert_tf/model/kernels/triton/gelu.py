"""The gradient of GELU and of the bias before it by a kernel of Triton, for NVIDIA GPUs.

Dimensions: as in `ops.py`; N rows (tokens).
"""

from __future__ import annotations

import tensorflow as tf

from albert_tf.model.kernels.custom_calls import CallResult
from albert_tf.model.kernels.triton.kernel import TritonKernel

COLUMNS = 256  # of a program
_ROWS = 128  # of a program
_MAX_ELEMENTS = 2**31  # the kernel counts them in int32
_GRADIENT = TritonKernel("gelu_gradient", "gradient", warps=8)


def takes(shape: tf.TensorShape) -> bool:
    """Returns whether there is a kernel for an operand of GELU of a shape, [N, I]."""
    if not shape.is_fully_defined() or shape.num_elements() >= _MAX_ELEMENTS:
        return False
    size: int = shape[-1]
    return size % COLUMNS == 0


def gradients(z: tf.Tensor, dy: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the gradient of GELU's operand, float [N, I], and its sums over rows, float32 [I].

    Args:
        z: the operand, bfloat16 or float16 [N, I], whose shape `takes` accepts.
        dy: the gradient of the result, like `z`.
    """
    N, I = z.shape  # noqa: E741
    programs = -(-N // _ROWS), I // COLUMNS
    results = [CallResult((N, I), z.dtype), CallResult((programs[0], I), tf.float32)]
    dz, sums = _GRADIENT(COLUMNS, programs, [z, dy, tf.constant((N, I))], results)
    return dz, tf.reduce_sum(sums, 0)

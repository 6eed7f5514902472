"""The kernel of the gradient of `ops.gelu` after a bias, in Triton's language.

Dimensions: N rows of I elements; R rows and C columns of a block.
"""

from __future__ import annotations

import triton
import triton.language as tl

SCALE = tl.constexpr(0.7978845608028654)  # GELU_SCALE of `ops.py`
CUBE = tl.constexpr(0.044715)  # GELU_CUBE
TWICE_LOG2_E = tl.constexpr(2.885390081777927)


@triton.jit
def gradient(
    z, dy, numbers, dz, dbias, R: tl.constexpr, C: tl.constexpr, BLOCKS: tl.constexpr
):  # fmt: skip
    """Writes the gradients of C columns of BLOCKS times R rows.

    Arguments are the addresses of z, the operand of GELU, and dy, float [N, I]; numbers, int32 [2]:
    N and I, a multiple of C; then of the results, dz, like z, and dbias, float32 [programs, I], its
    sums over the rows of a program.
    """
    N = tl.load(numbers)
    I = tl.multiple_of(tl.load(numbers + 1), C)  # noqa: E741
    columns = tl.program_id(1) * C + tl.arange(0, C)  # [C]
    sums = tl.zeros([R, C], tl.float32)
    for block in range(0, BLOCKS):
        rows = (tl.program_id(0) * BLOCKS + block) * R + tl.arange(0, R)  # [R]
        inside = (rows < N)[:, None]  # [R, 1]
        at = rows[:, None] * I + columns[None, :]  # [R, C]
        x = tl.load(z + at, inside, 0.0).to(tl.float32)  # [R, C]
        given = tl.load(dy + at, inside, 0.0)  # [R, C]
        square = x * x
        tanh = 1.0 - 2.0 / (1.0 + tl.exp2(TWICE_LOG2_E * SCALE * x * (1.0 + CUBE * square)))
        slope = SCALE * (1.0 + 3.0 * CUBE * square)
        of_gelu = 0.5 * (1.0 + tanh + x * (1.0 - tanh * tanh) * slope)  # [R, C]
        of_z = (given.to(tl.float32) * of_gelu).to(given.dtype)  # [R, C]
        tl.store(dz + at, of_z, inside)
        sums += of_z.to(tl.float32)
    tl.store(dbias + tl.program_id(0) * I + columns, tl.sum(sums, 0))

"""The kernels of `ops.add_and_norm` in Triton's language: dropout, sum and LayerNorm in one pass.

A program has whole rows in its registers, so that it reads each tensor once. Nothing is stored for
the gradient but the operands: the sum and its mean and variance are computed again. Numbers that
change between models and runs are read from memory, so that one text serves all sizes of a row up
to C.

Dimensions: N rows of H elements; R rows and C columns of a block.
"""

from __future__ import annotations

import triton
import triton.language as tl
from dropout import keep_scale, kept, row_keys

EPSILON = tl.constexpr(1e-12)  # LAYER_NORM_EPSILON of `config.py`


@triton.jit
def size_of(numbers):
    """Returns H, a multiple of 8, so that 16 bytes are read at a time."""
    return tl.multiple_of(tl.load(numbers + 1), 8)


@triton.jit
def kept_of(numbers, rows, columns, inside):
    """Returns which elements dropout keeps, bool [R, C]; all without dropout."""
    keep = inside
    if tl.load(numbers + 2) != 0:
        first, second = row_keys(numbers + 2, rows)
        keep = kept(numbers + 2, columns, first, second)
    return keep


@triton.jit
def normal_of(x, residual, numbers, at, inside, keep):
    """Returns the normalized sum, float32 [R, C], and the reciprocal deviations, [R, 1]."""
    H = size_of(numbers)
    dropped = tl.load(x + at, inside, 0.0).to(tl.float32) * keep_scale(numbers + 2)  # [R, C]
    other = tl.load(residual + at, inside, 0.0)  # [R, C]
    total = tl.where(keep, dropped, 0.0) + other.to(tl.float32)
    total = total.to(other.dtype).to(tl.float32)  # LayerNorm's operand is not float32
    mean = tl.sum(total, 1) / H  # [R]
    centered = tl.where(inside, total - mean[:, None], 0.0)  # [R, C]
    variance = tl.sum(centered * centered, 1) / H  # [R]
    rsqrt = tl.rsqrt(variance + EPSILON)[:, None]  # [R, 1]
    return centered * rsqrt, rsqrt


@triton.jit
def forward(x, residual, gamma, beta, numbers, y, R: tl.constexpr, C: tl.constexpr):
    """Writes R rows of the result.

    Arguments are the addresses of x and residual, float [N, H]; gamma and beta, float32 [H];
    numbers, int32 [5]: N, H, the threshold of dropout and the seed; then of the result, y, like x.
    """
    N = tl.load(numbers)
    H = size_of(numbers)
    rows = tl.program_id(0) * R + tl.arange(0, R)  # [R]
    columns = tl.arange(0, C)  # [C]
    is_column = columns < H
    inside = (rows[:, None] < N) & is_column[None, :]  # [R, C]
    at = rows[:, None] * H + columns[None, :]  # [R, C]
    keep = kept_of(numbers, rows, columns, inside)
    normal, _ = normal_of(x, residual, numbers, at, inside, keep)  # [R, C]
    scale = tl.load(gamma + columns, is_column, 0.0)  # [C]
    shift = tl.load(beta + columns, is_column, 0.0)  # [C]
    result = normal * scale[None, :] + shift[None, :]  # [R, C]
    tl.store(y + at, result.to(y.dtype.element_ty), inside)


@triton.jit
def gradient(
    x, residual, gamma, numbers, dy, dx, dresidual, dgamma, dbeta,
    R: tl.constexpr, C: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """Writes the gradients of BLOCKS times R rows.

    Arguments as of `forward`; dy, and the results dx and dresidual, like x; dgamma and dbeta,
    float32 [programs, H], the sums over the rows of a program. Without dropout, dx is that of the
    residual, and is not written.
    """
    N = tl.load(numbers)
    H = size_of(numbers)
    columns = tl.arange(0, C)  # [C]
    is_column = columns < H
    scale = tl.load(gamma + columns, is_column, 0.0)  # [C]
    of_gamma = tl.zeros([R, C], tl.float32)
    of_beta = tl.zeros([R, C], tl.float32)
    for block in range(0, BLOCKS):
        rows = (tl.program_id(0) * BLOCKS + block) * R + tl.arange(0, R)  # [R]
        inside = (rows[:, None] < N) & is_column[None, :]  # [R, C]
        at = rows[:, None] * H + columns[None, :]  # [R, C]
        keep = kept_of(numbers, rows, columns, inside)
        normal, rsqrt = normal_of(x, residual, numbers, at, inside, keep)  # [R, C], [R, 1]
        given = tl.load(dy + at, inside, 0.0).to(tl.float32)  # [R, C]
        of_gamma += given * normal
        of_beta += given
        of_normal = given * scale[None, :]  # [R, C]
        mean = tl.sum(of_normal, 1) / H  # [R]
        along = tl.sum(of_normal * normal, 1) / H  # [R]
        of_total = rsqrt * (of_normal - mean[:, None] - normal * along[:, None])  # [R, C]
        tl.store(dresidual + at, of_total.to(dresidual.dtype.element_ty), inside)
        if tl.load(numbers + 2) != 0:
            of_x = tl.where(keep, of_total * keep_scale(numbers + 2), 0.0)  # [R, C]
            tl.store(dx + at, of_x.to(dx.dtype.element_ty), inside)
    at_sums = tl.program_id(0) * H + columns  # [C]
    tl.store(dgamma + at_sums, tl.sum(of_gamma, 0), is_column)
    tl.store(dbeta + at_sums, tl.sum(of_beta, 0), is_column)

"""The masks of `ops.keep_mask` in Triton's language: hashes of positions and the seed.

They are computed where they are used, so that no mask is stored. `numbers` is the address of the
threshold of dropout and the seed, int32 [3].

Dimensions: R rows and C columns of a block. A row is what has the same indices but for the last.
"""

from __future__ import annotations

import triton
import triton.language as tl

STEP = tl.constexpr(0x9E3779B9)  # HASH_STEP of `ops.py`


@triton.jit
def mix_bits(x, key):
    """As in `ops.py`."""
    x = ((x ^ (x >> 16)) * 0x7FEB352D) ^ key
    x = (x ^ (x >> 15)) * 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def row_keys(numbers, rows):
    """Returns the two keys of rows, given by their numbers [R], uint32 [R] each."""
    first = tl.load(numbers + 1).to(tl.uint32)
    second = tl.load(numbers + 2).to(tl.uint32)
    hashed = rows.to(tl.uint32) * STEP
    return mix_bits(hashed + first, second), mix_bits(hashed + second, first)


@triton.jit
def kept(numbers, columns, first, second):
    """Returns which elements dropout keeps, bool [R, C], of the keys of rows and of columns [C]."""
    threshold = tl.load(numbers).to(tl.uint32, bitcast=True)
    hashed = columns.to(tl.uint32) * STEP
    return mix_bits(hashed[None, :] + first[:, None], second[:, None]) >= threshold


@triton.jit
def keep_scale(numbers):
    """Returns 1 / (1 - rate)."""
    threshold = tl.load(numbers).to(tl.uint32, bitcast=True)
    return 1.0 / (1.0 - threshold.to(tl.float32) * 2.0**-32)

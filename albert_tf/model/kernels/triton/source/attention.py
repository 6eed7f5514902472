"""The kernels of fused attention in Triton's language.

They compute FlashAttention-2 (Dao, arXiv 2307.08691) with dropout. Numbers that change between
models and runs are read from memory, so that one text serves all of them.

Dimensions: as in `ops.py`; M queries and N keys of a block.
"""

from __future__ import annotations

import triton
import triton.language as tl
from dropout import keep_scale, kept, row_keys

MASKED_SCORE = tl.constexpr(-10_000.0)  # as in `ops.py`
LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def scores_of(q, k, mask, columns, batch, S, D: tl.constexpr):
    """Returns query · keyᵀ / √D with the mask, times log₂ e, float32 [M, N]."""
    adder = (1.0 - tl.load(mask + batch * S + columns).to(tl.float32)) * (MASKED_SCORE * LOG2_E)
    return tl.dot(q, tl.trans(k)) * (D**-0.5 * LOG2_E) + adder[None, :]


@triton.jit
def forward(
    query, key, value, mask, numbers, context, log_total,
    D: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """Writes the context of M queries of a head, and the logarithms of the softmax's denominators.

    Arguments are the addresses of query, key and value, float [B, S, A, D]; mask, int32 [B, S];
    numbers, int32 [5]: S, A, the threshold of dropout and the seed; then of the results, the
    context, like the query, and log_total, float32 [B, A, S], to the base of 2.
    """
    S = tl.load(numbers)
    A = tl.load(numbers + 1)
    head = tl.program_id(1)  # of all heads of the batch
    batch = head // A
    rows = tl.program_id(0) * M + tl.arange(0, M)  # [M]
    axis = tl.arange(0, D)  # [D]
    begin = (batch * S * A + head % A) * D
    at = begin + rows[:, None] * (A * D) + axis[None, :]  # [M, D]
    q = tl.load(query + at)  # [M, D]
    first, second = row_keys(numbers + 2, head * S + rows)
    largest = tl.full([M], -1e30, tl.float32)
    total = tl.zeros([M], tl.float32)
    sums = tl.zeros([M, D], tl.float32)
    for block in range(0, S, N):
        columns = block + tl.arange(0, N)  # [N]
        at_keys = begin + columns[:, None] * (A * D) + axis[None, :]  # [N, D]
        k = tl.load(key + at_keys)  # [N, D]
        v = tl.load(value + at_keys)  # [N, D]
        scores = scores_of(q, k, mask, columns, batch, S, D)  # [M, N]
        new = tl.maximum(largest, tl.max(scores, 1))  # [M]
        numerators = tl.exp2(scores - new[:, None])  # [M, N]
        shrink = tl.exp2(largest - new)  # [M]
        total = total * shrink + tl.sum(numerators, 1)
        numerators = tl.where(kept(numbers + 2, columns, first, second), numerators, 0.0)
        sums = tl.dot(numerators.to(v.dtype), v, sums * shrink[:, None])
        largest = new
    sums = sums * (keep_scale(numbers + 2) / total)[:, None]
    tl.store(context + at, sums.to(q.dtype))
    tl.store(log_total + head * S + rows, largest + tl.log2(total))


@triton.jit
def gradient_of_keys(
    query, key, value, mask, numbers, log_total, along, dcontext, dkey, dvalue,
    D: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """Writes the gradients of N keys and values of a head.

    Arguments as of `forward`; along, float32 [B, A, S], the sums of context · dcontext; dcontext,
    and the results dkey and dvalue, like the query.
    """
    S = tl.load(numbers)
    A = tl.load(numbers + 1)
    head = tl.program_id(1)
    batch = head // A
    columns = tl.program_id(0) * N + tl.arange(0, N)  # [N]
    axis = tl.arange(0, D)  # [D]
    begin = (batch * S * A + head % A) * D
    at_keys = begin + columns[:, None] * (A * D) + axis[None, :]  # [N, D]
    k = tl.load(key + at_keys)  # [N, D]
    v = tl.load(value + at_keys)  # [N, D]
    scale = keep_scale(numbers + 2)
    dk = tl.zeros([N, D], tl.float32)
    dv = tl.zeros([N, D], tl.float32)
    for block in range(0, S, M):
        rows = block + tl.arange(0, M)  # [M]
        at = begin + rows[:, None] * (A * D) + axis[None, :]  # [M, D]
        q = tl.load(query + at)  # [M, D]
        dc = tl.load(dcontext + at)  # [M, D]
        scores = scores_of(q, k, mask, columns, batch, S, D)  # [M, N]
        probs = tl.exp2(scores - tl.load(log_total + head * S + rows)[:, None])  # [M, N]
        first, second = row_keys(numbers + 2, head * S + rows)
        keep = kept(numbers + 2, columns, first, second)  # [M, N]
        dropped = tl.where(keep, probs * scale, 0.0)  # [M, N]
        dv = tl.dot(tl.trans(dropped.to(dc.dtype)), dc, dv)
        dprobs = tl.where(keep, tl.dot(dc, tl.trans(v)) * scale, 0.0)  # [M, N]
        dscores = probs * (dprobs - tl.load(along + head * S + rows)[:, None]) * D**-0.5
        dk = tl.dot(tl.trans(dscores.to(q.dtype)), q, dk)
    tl.store(dkey + at_keys, dk.to(k.dtype))
    tl.store(dvalue + at_keys, dv.to(v.dtype))


@triton.jit
def gradient_of_queries(
    query, key, value, mask, numbers, log_total, along, dcontext, dquery,
    D: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """Writes the gradients of M queries of a head; arguments as of `gradient_of_keys`."""
    S = tl.load(numbers)
    A = tl.load(numbers + 1)
    head = tl.program_id(1)
    batch = head // A
    rows = tl.program_id(0) * M + tl.arange(0, M)  # [M]
    axis = tl.arange(0, D)  # [D]
    begin = (batch * S * A + head % A) * D
    at = begin + rows[:, None] * (A * D) + axis[None, :]  # [M, D]
    q = tl.load(query + at)  # [M, D]
    dc = tl.load(dcontext + at)  # [M, D]
    log_sum = tl.load(log_total + head * S + rows)  # [M]
    sum_along = tl.load(along + head * S + rows)  # [M]
    first, second = row_keys(numbers + 2, head * S + rows)
    scale = keep_scale(numbers + 2)
    dq = tl.zeros([M, D], tl.float32)
    for block in range(0, S, N):
        columns = block + tl.arange(0, N)  # [N]
        at_keys = begin + columns[:, None] * (A * D) + axis[None, :]  # [N, D]
        k = tl.load(key + at_keys)  # [N, D]
        v = tl.load(value + at_keys)  # [N, D]
        scores = scores_of(q, k, mask, columns, batch, S, D)  # [M, N]
        probs = tl.exp2(scores - log_sum[:, None])  # [M, N]
        keep = kept(numbers + 2, columns, first, second)  # [M, N]
        dprobs = tl.where(keep, tl.dot(dc, tl.trans(v)) * scale, 0.0)  # [M, N]
        dscores = probs * (dprobs - sum_along[:, None]) * D**-0.5  # [M, N]
        dq = tl.dot(dscores.to(k.dtype), k, dq)
    tl.store(dquery + at, dq.to(q.dtype))

"""The kernels of fused attention in Triton's language, and the program that compiles them.

    python albert_tf/model/kernels/triton_attention/source.py

writes the `.ttir` files beside this one: Triton's intermediate code, which XLA takes and compiles
for the GPU at hand. It needs `triton==3.4.0`, but no GPU. The package itself does not import it;
`make test-kernels` compares the files with it, and its kernels with the formula.

They compute FlashAttention-2 (Dao, arXiv 2307.08691) with the dropout of `ops.keep_mask`: a hash of
the position and the seed, computed where a block of scores is, so that no mask is stored. Numbers
that change between models and runs are read from memory, so that one text serves all of them.

Dimensions: as in `ops.py`; M queries and N keys of a block.
"""

from __future__ import annotations

import os
import re

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

LOCATION = re.compile(r" loc\((?:[^()]|\([^()]*\))*\)")
HEAD_SIZES = (32, 64, 128)
# Kernel → M, N: one block is of a program, the other is the step of its loop.
BLOCKS = {"forward": (128, 64), "gradient_of_keys": (64, 128), "gradient_of_queries": (128, 64)}
MASKED_SCORE = tl.constexpr(-10_000.0)  # as in `ops.py`
LOG2_E = tl.constexpr(1.4426950408889634)
STEP = tl.constexpr(0x9E3779B9)  # HASH_STEP of `ops.py`


@triton.jit
def mix_bits(x, key):
    """As in `ops.py`."""
    x = ((x ^ (x >> 16)) * 0x7FEB352D) ^ key
    x = (x ^ (x >> 15)) * 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def row_keys(numbers, rows):
    """Returns the two keys of rows of scores, uint32 [M] each; their numbers count all scores."""
    first = tl.load(numbers + 3).to(tl.uint32)
    second = tl.load(numbers + 4).to(tl.uint32)
    hashed = rows.to(tl.uint32) * STEP
    return mix_bits(hashed + first, second), mix_bits(hashed + second, first)


@triton.jit
def kept(numbers, columns, first, second):
    """Returns which scores dropout keeps, bool [M, N], of the keys of rows and of columns [N]."""
    threshold = tl.load(numbers + 2).to(tl.uint32, bitcast=True)
    hashed = columns.to(tl.uint32) * STEP
    return mix_bits(hashed[None, :] + first[:, None], second[:, None]) >= threshold


@triton.jit
def keep_scale(numbers):
    """Returns 1 / (1 - rate)."""
    threshold = tl.load(numbers + 2).to(tl.uint32, bitcast=True)
    return 1.0 / (1.0 - threshold.to(tl.float32) * 2.0**-32)


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
    first, second = row_keys(numbers, head * S + rows)
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
        numerators = tl.where(kept(numbers, columns, first, second), numerators, 0.0)
        sums = tl.dot(numerators.to(v.dtype), v, sums * shrink[:, None])
        largest = new
    sums = sums * (keep_scale(numbers) / total)[:, None]
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
    scale = keep_scale(numbers)
    dk = tl.zeros([N, D], tl.float32)
    dv = tl.zeros([N, D], tl.float32)
    for block in range(0, S, M):
        rows = block + tl.arange(0, M)  # [M]
        at = begin + rows[:, None] * (A * D) + axis[None, :]  # [M, D]
        q = tl.load(query + at)  # [M, D]
        dc = tl.load(dcontext + at)  # [M, D]
        scores = scores_of(q, k, mask, columns, batch, S, D)  # [M, N]
        probs = tl.exp2(scores - tl.load(log_total + head * S + rows)[:, None])  # [M, N]
        first, second = row_keys(numbers, head * S + rows)
        keep = kept(numbers, columns, first, second)  # [M, N]
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
    first, second = row_keys(numbers, head * S + rows)
    scale = keep_scale(numbers)
    dq = tl.zeros([M, D], tl.float32)
    for block in range(0, S, N):
        columns = block + tl.arange(0, N)  # [N]
        at_keys = begin + columns[:, None] * (A * D) + axis[None, :]  # [N, D]
        k = tl.load(key + at_keys)  # [N, D]
        v = tl.load(value + at_keys)  # [N, D]
        scores = scores_of(q, k, mask, columns, batch, S, D)  # [M, N]
        probs = tl.exp2(scores - log_sum[:, None])  # [M, N]
        keep = kept(numbers, columns, first, second)  # [M, N]
        dprobs = tl.where(keep, tl.dot(dc, tl.trans(v)) * scale, 0.0)  # [M, N]
        dscores = probs * (dprobs - sum_along[:, None]) * D**-0.5  # [M, N]
        dq = tl.dot(dscores.to(k.dtype), k, dq)
    tl.store(dquery + at, dq.to(q.dtype))


KERNELS = {
    "forward": forward,
    "gradient_of_keys": gradient_of_keys,
    "gradient_of_queries": gradient_of_queries,
}
HALF = ("query", "key", "value", "context", "dcontext", "dquery", "dkey", "dvalue")
TYPES = dict.fromkeys(HALF, "*bf16") | {
    "mask": "*i32",
    "numbers": "*i32",
    "log_total": "*fp32",
    "along": "*fp32",
}


def compiled(name: str, size: int) -> str:
    """Returns the intermediate code of a kernel for a head size, without its source lines."""
    kernel = KERNELS[name]
    rows, columns = BLOCKS[name]
    sizes = {"D": size, "M": rows, "N": columns}
    names = kernel.arg_names
    signature = {x: "constexpr" if x in sizes else TYPES[x] for x in names}
    constants = {(names.index(x),): value for x, value in sizes.items()}
    aligned = {(names.index(x),): [["tt.divisibility", 16]] for x in names if x not in sizes}
    source = ASTSource(kernel, signature, constants, aligned)
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})
    lines = LOCATION.sub("", made.asm["ttir"]).splitlines()
    return "\n".join(line for line in lines if line and not line.startswith("#loc")) + "\n"


def main() -> None:
    """Writes all kernels."""
    folder = os.path.dirname(os.path.abspath(__file__))
    for name in KERNELS:
        for size in HEAD_SIZES:
            with open(os.path.join(folder, f"{name}_{size}.ttir"), "w", encoding="utf-8") as stream:
                stream.write(compiled(name, size))


if __name__ == "__main__":
    main()

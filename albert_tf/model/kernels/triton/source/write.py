"""Writes the kernels as Triton's intermediate code, which XLA compiles for the GPU at hand.

    python albert_tf/model/kernels/triton/source/write.py albert_tf/model/kernels/triton/code

It needs `triton==3.4.0`, but no GPU. The package does not import it; `make test-kernels` compares
the files with it, and its kernels with their formulas.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any

import attention
import gelu
import norm
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

LOCATION = re.compile(r" loc\((?:[^()]|\([^()]*\))*\)")
# Name of a kernel → M, N: one block is of a program, the other is the step of its loop.
ATTENTION_BLOCKS = {
    "forward": (128, 64),
    "gradient_of_keys": (64, 128),
    "gradient_of_queries": (128, 64),
}
HEAD_SIZES = (32, 64, 128)
ROW_ELEMENTS = 4096  # of a block of rows
ROW_BLOCKS = {512: 4, 1024: 8, 2048: 16, 4096: 32}  # so that each program has 32 rows
GELU_SIZES = {"R": 16, "C": 256, "BLOCKS": 8}
# The types of arguments are those of these, and else that of the activations.
TYPES = {"mask": "*i32", "numbers": "*i32"} | dict.fromkeys(
    ("log_total", "along", "gamma", "beta", "dgamma", "dbeta", "dbias"), "*fp32"
)
ACTIVATIONS = "*bf16"


def kernels() -> dict[str, tuple[Any, dict[str, int]]]:
    """Returns name → kernel and sizes."""
    found: dict[str, tuple[Any, dict[str, int]]] = {}
    for name, (rows, columns) in ATTENTION_BLOCKS.items():
        for size in HEAD_SIZES:
            sizes = {"D": size, "M": rows, "N": columns}
            found[f"attention_{name}_{size}"] = getattr(attention, name), sizes
    for size, blocks in ROW_BLOCKS.items():
        sizes = {"R": ROW_ELEMENTS // size, "C": size}
        found[f"norm_forward_{size}"] = norm.forward, sizes
        found[f"norm_gradient_{size}"] = norm.gradient, sizes | {"BLOCKS": blocks}
    found[f"gelu_gradient_{GELU_SIZES['C']}"] = gelu.gradient, GELU_SIZES
    return found


def code_of(kernel: Any, sizes: dict[str, int]) -> str:
    """Returns the intermediate code of a kernel, without its source lines."""
    names = kernel.arg_names
    signature = {x: "constexpr" if x in sizes else TYPES.get(x, ACTIVATIONS) for x in names}
    constants = {(names.index(x),): value for x, value in sizes.items()}
    aligned = {(names.index(x),): [["tt.divisibility", 16]] for x in names if x not in sizes}
    source = ASTSource(kernel, signature, constants, aligned)
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})
    lines = LOCATION.sub("", made.asm["ttir"]).splitlines()
    return "\n".join(line for line in lines if line and not line.startswith("#loc")) + "\n"


def main() -> None:
    """Writes all kernels into the folder that the command line names."""
    for name, (kernel, sizes) in kernels().items():
        with open(os.path.join(sys.argv[1], f"{name}.ttir"), "w", encoding="utf-8") as stream:
            stream.write(code_of(kernel, sizes))


if __name__ == "__main__":
    main()

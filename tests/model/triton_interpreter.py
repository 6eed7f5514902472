"""Runs the kernels of fused attention in Triton's interpreter, for `test_kernels_triton.py`.

    python triton_interpreter.py FOLDER

reads the folder's in.npz: query, key, value, dcontext [B, S, A, D], input_mask and numbers; writes
out.npz: context, dquery, dkey and dvalue. It computes in float32. The Python needs Triton and
PyTorch, and nothing else of this project.
"""

from __future__ import annotations

import importlib.util
import os
import pathlib
import sys

os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import torch

KERNELS = pathlib.Path(__file__).parents[2] / "albert_tf/model/kernels/triton_attention/source.py"


def load_source():
    """Returns the module of the kernels, without importing the package."""
    spec = importlib.util.spec_from_file_location("source", KERNELS)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main():
    source = load_source()
    folder = pathlib.Path(sys.argv[1])
    with np.load(folder / "in.npz") as arrays:
        inputs = {name: torch.tensor(arrays[name]) for name in arrays.files}
    query, dcontext = inputs["query"], inputs["dcontext"]
    B, S, A, D = query.shape
    operands = [inputs[name] for name in ("query", "key", "value", "input_mask", "numbers")]
    context, dquery, dkey, dvalue = (torch.empty_like(query) for _ in range(4))
    log_total = torch.empty(B, A, S)

    def run(name, axis, *arguments):
        rows, columns = blocks = source.BLOCKS[name]
        kernel = source.KERNELS[name][(S // blocks[axis], B * A)]
        kernel(*operands, *arguments, D=D, M=rows, N=columns)

    run("forward", 0, context, log_total)
    along = (context * dcontext).sum(-1).transpose(1, 2).contiguous()
    run("gradient_of_keys", 1, log_total, along, dcontext, dkey, dvalue)
    run("gradient_of_queries", 0, log_total, along, dcontext, dquery)
    results = {"context": context, "dquery": dquery, "dkey": dkey, "dvalue": dvalue}
    np.savez(folder / "out.npz", **{name: value.numpy() for name, value in results.items()})


if __name__ == "__main__":
    main()

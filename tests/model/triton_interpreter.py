"""Runs kernels of Triton in its interpreter, for `test_kernels_triton.py`.

    python triton_interpreter.py attention FOLDER

reads the folder's in.npz and writes the results to out.npz. It computes in float32:

    attention   query, key, value, dcontext [B, S, A, D], input_mask → context, dquery, dkey, dvalue
    norm        x, residual, dy [N, H], gamma, beta [H] → y, dx, dresidual, dgamma, dbeta
    gelu        z, dy [N, I] → dz, dbias

and of each `numbers`. The Python needs Triton and PyTorch, and of this project the folder
`kernels/triton/source` on its path.
"""

from __future__ import annotations

import os
import pathlib
import sys

os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import torch
import write

KERNELS = write.kernels()


def run_attention(inputs):
    query, dcontext = inputs["query"], inputs["dcontext"]
    B, S, A, D = query.shape
    operands = [inputs[name] for name in ("query", "key", "value", "input_mask", "numbers")]
    context, dquery, dkey, dvalue = (torch.empty_like(query) for _ in range(4))
    log_total = torch.empty(B, A, S)

    def run(name, block, *arguments):
        kernel, sizes = KERNELS[f"attention_{name}_{D}"]
        kernel[(S // sizes[block], B * A)](*operands, *arguments, **sizes)

    run("forward", "M", context, log_total)
    along = (context * dcontext).sum(-1).transpose(1, 2).contiguous()
    run("gradient_of_keys", "N", log_total, along, dcontext, dkey, dvalue)
    run("gradient_of_queries", "M", log_total, along, dcontext, dquery)
    return {"context": context, "dquery": dquery, "dkey": dkey, "dvalue": dvalue}


def run_norm(inputs):
    x, residual, gamma, beta, numbers, dy = (
        inputs[name] for name in ("x", "residual", "gamma", "beta", "numbers", "dy")
    )
    N, H = x.shape
    size = next(size for size in write.ROW_BLOCKS if size >= H)
    y, dresidual = torch.empty_like(x), torch.empty_like(x)
    kernel, sizes = KERNELS[f"norm_forward_{size}"]
    kernel[(-(-N // sizes["R"]),)](x, residual, gamma, beta, numbers, y, **sizes)
    kernel, sizes = KERNELS[f"norm_gradient_{size}"]
    programs = -(-N // (sizes["R"] * sizes["BLOCKS"]))
    dgamma, dbeta = torch.empty(programs, H), torch.empty(programs, H)
    dx = torch.empty_like(x)
    results = dx, dresidual, dgamma, dbeta
    kernel[(programs,)](x, residual, gamma, numbers, dy, *results, **sizes)
    if not numbers[2]:
        dx = dresidual
    return {
        "y": y,
        "dx": dx,
        "dresidual": dresidual,
        "dgamma": dgamma.sum(0),
        "dbeta": dbeta.sum(0),
    }


def run_gelu(inputs):
    z = inputs["z"]
    N, I = z.shape  # noqa: E741
    kernel, sizes = KERNELS["gelu_gradient_256"]
    programs = -(-N // (sizes["R"] * sizes["BLOCKS"])), I // sizes["C"]
    dz, dbias = torch.empty_like(z), torch.empty(programs[0], I)
    kernel[programs](z, inputs["dy"], inputs["numbers"], dz, dbias, **sizes)
    return {"dz": dz, "dbias": dbias.sum(0)}


def main():
    folder = pathlib.Path(sys.argv[2])
    with np.load(folder / "in.npz") as arrays:
        inputs = {name: torch.tensor(arrays[name]) for name in arrays.files}
    runs = {"attention": run_attention, "norm": run_norm, "gelu": run_gelu}
    results = runs[sys.argv[1]](inputs)
    np.savez(folder / "out.npz", **{name: value.numpy() for name, value in results.items()})


if __name__ == "__main__":
    main()

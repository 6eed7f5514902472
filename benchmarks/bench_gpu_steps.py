r"""Compares what XLA says of pre-training steps for a GPU with and without what is for GPUs alone.

    ALBERT_COMPILER=.venv-compilers/bin/python python benchmarks/bench_gpu_steps.py

compiles the whole step (bfloat16, LAMB, 20 masked positions) for an absent H100 and A100, and
prints FLOPs, the bytes that its instructions access, and temporary memory: first without anything
that is for GPUs alone, then with one change more in each row. A JSON line each, and a table with
`--results`. `make test-gpu` makes the environment of the compilers. `--steps` are the names of
programs as in `make_gpu_kit.py`. Nothing is run here.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from typing import Any

import make_gpu_kit
import reporting
from bench_accelerators import GPUS, compile_file, python_of
from make_gpu_kit import Name

CHANGES = {  # what is new → the options of a program that has it and what is above it
    "without what is for GPUs": "unfused plain:add_bias",
    "gradients of biases from what is stored": "unfused",
    "fused attention": "unfused:add_and_norm unfused:feed_forward",
    "sum and LayerNorm in one pass": "unfused:feed_forward",
    "GELU in its matmul, its gradient with that of the bias": "",
}
STEPS = ("pretrain albert_base 32x512", "pretrain albert_base 32x512 dropout:0")


def compile_program(text: str, device: str) -> dict[str, Any]:
    """Returns what the compiler says of a program with a name of `make_gpu_kit.py`."""
    _, program = make_gpu_kit.lower_program(Name.parse(text), "GPU", "hlo_serialized")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "step.hlo")
        with open(path, "wb") as stream:
            stream.write(program)
        return compile_file(path, device)


def main() -> None:
    """Compiles the steps and prints what the compiler says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", default=";".join(STEPS), help="names, with semicolons")
    parser.add_argument("--devices", default=",".join(GPUS), help="GPUs to compile for")
    reporting.add_flag(parser)
    args = parser.parse_args()
    python_of("ALBERT_COMPILER")
    rows = []
    for text in args.steps.split(";"):
        for device in args.devices.split(","):
            for change, options in CHANGES.items():
                compiled = compile_program(f"{text.strip()} {options}".strip(), device)
                reporting.print_line(
                    "gpu_steps", step=text, device=device, change=change, **compiled
                )
                if "error" in compiled:
                    continue
                rows.append(
                    {
                        "step": text.strip().partition(" ")[2],
                        "device": device,
                        "with": change,
                        "GB accessed": compiled["bytes_accessed"] / 1e9,
                        "temporary MB": compiled["temporary_bytes"] / 1e6,
                        "TFLOPs": compiled["flops"] / 1e12,
                    }
                )
    reporting.write_table(args.results, rows)


if __name__ == "__main__":
    main()

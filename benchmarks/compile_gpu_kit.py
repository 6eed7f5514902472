r"""Compiles the programs of `make_gpu_kit.py` for a GPU that this machine lacks, by JAX.

    .venv-compilers/bin/python benchmarks/compile_gpu_kit.py gpu_kit

shows before a session on a GPU that JAX there will take the programs: they are loaded as
`run_gpu_kit.py` loads them. For each it prints a JSON line: seconds to compile, memory, calls of
cuBLAS, cuDNN and Triton; or the reason if it fails, and the exit status is then 1. What cuDNN and
the driver take, only a GPU shows. `make test-gpu` makes the environment, for JAX 0.10; the packages
of `worker_compile.py` in the release 0.11 do as well, and in 0.7.0, whose XLA has the defaults of
TensorFlow 2.20. A kit of `make_training_kit.py` is compiled in the same way.
"""

from __future__ import annotations

import argparse
import collections
import sys
import time
from typing import Any

import run_gpu_kit
import worker_compile


def read_programs(folder: str) -> list[dict[str, Any]]:
    """Returns the entries of the programs of a kit of either kind."""
    kit = run_gpu_kit.load_kit(folder, f"{run_gpu_kit.MAKER} or make_training_kit.py")
    if isinstance(kit, dict) and "step" in kit:
        return [kit["step"], kit["evaluation"]]
    return run_gpu_kit.read_kit(folder)


def compile_program(kit: str, entry: dict[str, Any], topology: str) -> dict[str, Any]:
    """Returns what the compiler says of a program of a kit."""
    import jax
    from jax import numpy as jnp
    from jax.sharding import SingleDeviceSharding

    (device,) = worker_compile.find_devices(topology, 1)
    begin = time.perf_counter()
    function = run_gpu_kit.load_function(kit, entry, "gpu")
    inputs = [
        jax.ShapeDtypeStruct(
            x["shape"], jnp.dtype(x["dtype"]), sharding=SingleDeviceSharding(device)
        )
        for x in entry["inputs"]
    ]
    jitted = jax.jit(function, donate_argnums=range(entry.get("updated", 0)))
    compiled = jitted.lower(*inputs).compile()
    text = compiled.as_text() or ""  # JAX 0.7 does not show what it compiled
    return {
        "seconds": round(time.perf_counter() - begin, 1),
        "megabytes": run_gpu_kit.used_megabytes(compiled.memory_analysis()),
        "calls": dict(collections.Counter(worker_compile.TARGET.findall(text))),
    }


def main() -> None:
    """Compiles the programs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kit", help="folder of make_gpu_kit.py or make_training_kit.py")
    parser.add_argument("--programs", default="", help="parts of names, with semicolons")
    parser.add_argument("--device", default="h100", choices=tuple(worker_compile.GPUS))
    args = parser.parse_args()
    chosen, unknown = run_gpu_kit.choose(read_programs(args.kit), args.programs, False)
    is_whole = not unknown
    for entry in chosen:
        try:
            facts = compile_program(args.kit, entry, args.device)
        except Exception as error:  # of JAX or the compiler, whatever its class
            facts = {"error": run_gpu_kit.reason_of(error)}
            is_whole = False
        run_gpu_kit.print_line(program=entry["name"], device=args.device, **facts)
    sys.exit(not is_whole)


if __name__ == "__main__":
    main()

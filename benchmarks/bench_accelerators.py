r"""Compares what Google's TPU compiler says of pre-training steps, without a TPU.

    ALBERT_TPU_PYTHON=.venv-tpu/bin/python ALBERT_TPU_COMPILER=.venv-tpu-compiler/bin/python \
      ALBERT_PEER_PYTHON=peers/bin/python python benchmarks/bench_accelerators.py

compiles the forward and backward pass of ALBERT base (8 x 512 tokens, bfloat16, dropout 0.1, 20
masked positions) of this project, the Model Garden and KerasHub on JAX, and this project's whole
step with the update, and prints FLOPs, bytes that the instructions access, temporary memory, and
seconds to compile: a JSON line each, and a table with `--results`. `make test-tpu` makes the first
two environments; `peers` needs `jax[tpu]` and `keras-hub`, and is left out without one. An
accelerator's step takes at least bytes / bandwidth and FLOPs / peak rate; nothing is run here.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from typing import Any

import reporting
from contenders import FOLDER, ROOT

from albert_tf import included
from albert_tf.config import AlbertConfig

PROGRAMS = {
    "ours": "this project",
    "update": "this project, with the update by LAMB",
    "model_garden": "Model Garden",
    "keras_hub": "KerasHub on JAX",
}
DROPOUT, PREDICTIONS = 0.1, 20


def python_of(variable: str) -> str:
    """Returns the interpreter that an environment variable names."""
    if not (path := os.environ.get(variable)):
        sys.exit(f"the environment variable {variable} must name a Python; see --help")
    return path


def run(*command: str, order: str = "") -> str:
    """Returns the last line that a program prints."""
    paths = os.pathsep.join((ROOT, FOLDER))
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": paths}
    options: dict[str, Any] = {"capture_output": True, "text": True, "env": environment}
    with tempfile.TemporaryDirectory() as folder:  # libtpu writes files into the current folder
        done = subprocess.run(command, input=order, cwd=folder, check=False, **options)
    lines = done.stdout.strip().splitlines()
    if done.returncode:
        sys.exit(f"{command[1]}: {done.stderr[-2000:]}")
    return lines[-1] if lines else ""


def compile_ours(kind: str, topology: str, args: argparse.Namespace) -> dict[str, Any]:
    """Lowers and compiles a program of `worker_lower.py`."""
    with tempfile.TemporaryDirectory() as work:
        path = os.path.join(work, "step.hlo")
        shape = args.config, str(args.rows), str(args.length), path
        run(python_of("ALBERT_TPU_PYTHON"), os.path.join(FOLDER, "worker_lower.py"), kind, *shape)
        order = json.dumps({"program": path, "topology": topology})
        compiler = python_of("ALBERT_TPU_COMPILER"), os.path.join(FOLDER, "worker_compile.py")
        return json.loads(run(*compiler, order=order + "\n"))


def compile_keras_hub(topology: str, args: argparse.Namespace) -> dict[str, Any]:
    """Compiles KerasHub's model."""
    config = AlbertConfig.from_json_file(included.config_file(args.config)).to_dict()
    job = {"topology": topology, "rows": args.rows, "length": args.length, "config": config}
    job |= {"predictions": PREDICTIONS, "dropout": DROPOUT}
    program = os.path.join(FOLDER, "worker_keras_jax.py")
    return json.loads(run(python_of("ALBERT_PEER_PYTHON"), program, json.dumps(job)))


def main() -> None:
    """Compiles the programs and prints what the compiler says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", default="albert_base", help="name of a released architecture")
    parser.add_argument("--rows", type=int, default=8, help="sequences per device")
    parser.add_argument("--length", type=int, default=512, help="tokens per sequence")
    parser.add_argument("--topologies", default="v4:2x2x1,v5e:2x2,v6e:2x2", help="TPUs")
    parser.add_argument("--programs", default=",".join(PROGRAMS), help="what to compile")
    reporting.add_flag(parser)
    args = parser.parse_args()
    rows = []
    for topology in args.topologies.split(","):
        for kind in args.programs.split(","):
            if kind == "keras_hub":
                found = compile_keras_hub(topology, args)
            else:
                found = compile_ours(kind, topology, args)
            reporting.print_line("accelerators", topology=topology, program=kind, **found)
            if "error" in found:
                continue
            rows.append(
                {
                    "TPU": topology.partition(":")[0],
                    "program": PROGRAMS[kind],
                    "TFLOPs": found["flops"] / 1e12,
                    "GB accessed": found["bytes_accessed"] / 1e9,
                    "temporary GB": found["temporary_bytes"] / 1e9,
                    "seconds to compile": found["seconds"],
                }
            )
    reporting.write_table(args.results, rows)


if __name__ == "__main__":
    main()

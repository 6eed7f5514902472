r"""Compares what the compilers of TPUs and GPUs say of pre-training steps, without a device.

    ALBERT_TPU_PYTHON=.venv-tpu/bin/python ALBERT_COMPILER=.venv-compilers/bin/python \
      ALBERT_PEER_PYTHON=peers/bin/python python benchmarks/bench_accelerators.py

compiles the forward and backward pass of ALBERT base (8 x 512 tokens, bfloat16, dropout 0.1, 20
masked positions) of this project, the Model Garden and KerasHub on JAX, and this project's whole
step with the update, and prints FLOPs, bytes that the instructions access, the part of them in the
HBM of a TPU, temporary memory, and seconds to compile: a JSON line each, and a table with
`--results`. `make test-tpu` makes the first two environments; `peers` needs `jax`, `keras-hub` and
`tensorflow`. Nothing is run here. Bytes can be compared between programs for one device; between
devices, compilers count them in different ways. A step takes at least FLOPs / peak rate and bytes
in HBM / bandwidth.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from typing import Any

import reporting
from contenders import FOLDER, ROOT

from albert_tf.model.config import AlbertConfig
from albert_tf.model.included_configs import config_file

GPUS = ("a100", "h100")  # all other targets are topologies of TPUs
PROGRAMS = {
    "ours": "this project",
    "update": "this project, with the update by LAMB",
    "model_garden": "Model Garden",
    "keras_hub": "KerasHub on JAX",
}
DROPOUT = 0.1
PREDICTIONS = 20


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


def describe_job(args: argparse.Namespace) -> dict[str, Any]:
    """Returns the step to compile, as the workers read it."""
    rates: Any = {"hidden_dropout_prob": DROPOUT, "attention_probs_dropout_prob": DROPOUT}
    config = AlbertConfig.from_json_file(config_file(args.config))
    config = dataclasses.replace(config, **rates)
    if args.layers:
        config = dataclasses.replace(config, num_hidden_layers=args.layers)
    return {
        "config": config.to_dict(),
        "rows": args.rows,
        "length": args.length,
        "predictions": PREDICTIONS,
        "dropout": DROPOUT,
    }


def compile_program(program: str, topology: str, job: dict[str, Any]) -> dict[str, Any]:
    """Lowers a program of PROGRAMS in the environment of its library, and compiles it."""
    platform = "GPU" if topology in GPUS else "TPU"
    if program == "keras_hub":
        python = python_of("ALBERT_PEER_PYTHON")
        worker = "worker_keras_jax.py"
    elif platform == "TPU":
        python = python_of("ALBERT_TPU_PYTHON")
        worker = "worker_lower.py"
    else:
        python = sys.executable
        worker = "worker_lower.py"
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "step.hlo")
        order = json.dumps(job | {"program": program, "platform": platform, "path": path})
        run(python, os.path.join(FOLDER, worker), order)
        return compile_file(path, topology)


def compile_file(path: str, topology: str) -> dict[str, Any]:
    """Returns what the compiler says of the program in a file, for devices that are absent."""
    compiler = python_of("ALBERT_COMPILER"), os.path.join(FOLDER, "worker_compile.py")
    order = json.dumps({"program": path, "topology": topology}) + "\n"
    answer: dict[str, Any] = json.loads(run(*compiler, order=order))
    return answer


def main() -> None:
    """Compiles the programs and prints what the compiler says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", default="albert_base", help="name of a released architecture")
    parser.add_argument("--rows", type=int, default=8, help="sequences per device")
    parser.add_argument("--length", type=int, default=512, help="tokens per sequence")
    parser.add_argument("--layers", type=int, help="number of layers, if not that of the config")
    parser.add_argument(
        "--topologies", default="v4:2x2x1,v5e:2x2,v6e:2x2,a100,h100", help="TPUs and GPUs"
    )
    parser.add_argument("--programs", default=",".join(PROGRAMS), help="what to compile")
    reporting.add_flag(parser)
    args = parser.parse_args()
    job = describe_job(args)
    rows = []
    for topology in args.topologies.split(","):
        for kind in args.programs.split(","):
            program = compile_program(kind, topology, job)
            reporting.print_line("accelerators", topology=topology, program=kind, **program)
            if "error" in program:
                continue
            rows.append(
                {
                    "device": topology.partition(":")[0],
                    "program": PROGRAMS[kind],
                    "TFLOPs": program["flops"] / 1e12,
                    "GB accessed": program["bytes_accessed"] / 1e9,
                    "GB of HBM": program["hbm_bytes"] / 1e9,
                    "temporary GB": program["temporary_bytes"] / 1e9,
                    "seconds to compile": program["seconds"],
                }
            )
    reporting.write_table(args.results, rows)


if __name__ == "__main__":
    main()

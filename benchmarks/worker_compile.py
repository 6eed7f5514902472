r"""Compiles HLO programs for absent TPUs, or runs them on the CPU; needs `jax[tpu]`.

    echo '{"program": "step.hlo", "topology": "v4:2x2x1"}' | python worker_compile.py

Google's TPU compiler is part of libtpu, and JAX calls it without a TPU. For each line of JSON on
the standard input, this program prints one with what it found out (`Compiled`); or, for
`{"program": …, "inputs": "in.npz", "outputs": "out.npz"}`, runs the program and writes its results.
It imports nothing of this project, which its environment lacks.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import sys
import time
from typing import Any

os.environ["TPU_SKIP_MDS_QUERY"] = "1"  # there is no machine to ask about its TPU
os.environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"  # only compilers, which do not share a device
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import numpy as np
from jax._src.interpreters.mlir import make_ir_context
from jax.experimental import topologies
from jaxlib import xla_client
from jaxlib.mlir import ir

jax.config.update("jax_enable_x64", True)  # steps are counted in int64

BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "f32": 4}
SHAPE = re.compile(r"\b([a-z]+\d*)\[([\d,]*)\]")
DEFINITION = re.compile(r"^\s*(?:ROOT )?%?([\w.-]+) = (\S+) ")
DOT = re.compile(r" dot\((?:\S+ )?%?([\w.-]+), .*lhs_contracting_dims=\{([\d,]*)\}")
COLLECTIVE = re.compile(
    r" = (.+?) (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start)?\("
)
HOST = re.compile(r" (infeed|outfeed|send|recv)\(| \S+\{[^}]*S\(5\)\}")  # S(5): host memory


@dataclasses.dataclass(frozen=True)
class Compiled:
    """What the compiler tells about a program.

    Attributes:
        seconds: time to compile.
        flops: FLOPs of a run.
        bytes_accessed: bytes that its instructions read and write.
        temporary_bytes: memory for intermediate results.
        argument_bytes: memory of the arguments.
        matmul_flops: dtype of the operands → FLOPs of the matmuls, before the device's own passes.
        collectives: operation across replicas → [number, bytes of its results].
        problems: instructions that a step must not have: transfers from or to the host, and results
            whose shape depends on values.
    """

    seconds: float
    flops: float
    bytes_accessed: float
    temporary_bytes: int
    argument_bytes: int
    matmul_flops: dict[str, float]
    collectives: dict[str, list[int]]
    problems: list[str]


def bytes_of(text: str) -> int:
    """Returns the size of the arrays whose types are in a text such as "(f32[2,3], pred[5])"."""
    return sum(
        BYTES[dtype] * math.prod(int(size) for size in sizes.split(",") if size)
        for dtype, sizes in SHAPE.findall(text)
        if dtype in BYTES
    )


def matmul_flops(text: str) -> dict[str, float]:
    """Returns the FLOPs of the matmuls in the text of a program, by the dtype of their operands."""
    found: dict[str, float] = {}
    types: dict[str, tuple[str, list[int]]] = {}
    for line in text.splitlines():
        if not (match := DEFINITION.match(line)) or not (shape := SHAPE.match(match[2])):
            continue
        types[match[1]] = shape[1], [int(size) for size in shape[2].split(",") if size]
        if dot := DOT.search(line):
            dtype, sizes = types[dot[1]]
            summed = math.prod(sizes[int(axis)] for axis in dot[2].split(",") if axis)
            size = math.prod(types[match[1]][1])
            found[dtype] = found.get(dtype, 0.0) + 2.0 * size * summed
    return found


def collectives(text: str) -> dict[str, list[int]]:
    """Returns the number and the bytes of the operations across replicas in a compiled program."""
    found: dict[str, list[int]] = {}
    for shape, operation in COLLECTIVE.findall(text):
        total = found.setdefault(operation, [0, 0])
        total[0] += 1
        total[1] += bytes_of(shape)
    return found


def read(path: str) -> tuple[Any, Any]:
    """Returns a program, and it as a module of MLIR, which compilers take."""
    with open(path, "rb") as stream:
        computation = xla_client.XlaComputation(stream.read())
    text = xla_client._xla.mlir.xla_computation_to_mlir_module(computation)
    with make_ir_context():
        return computation, ir.Module.parse(text)


def options_for(replicas: int) -> Any:
    """Returns the options to compile a program for a number of replicas."""
    options = xla_client.CompileOptions()
    build = options.executable_build_options
    options.num_replicas = build.num_replicas = replicas
    options.num_partitions = build.num_partitions = 1
    assignment = np.arange(replicas, dtype=np.int32)[:, None]
    build.device_assignment = xla_client.DeviceAssignment.create(assignment)
    return options


def compile_program(program: str, topology: str, replicas: int = 1) -> Compiled:
    """Compiles a program for the first `replicas` devices of a topology such as "v4:2x2x1"."""
    described = topologies.get_topology_desc(platform="tpu", topology_name=topology)
    devices = sorted(described.devices, key=lambda device: device.id)[:replicas]
    computation, module = read(program)
    begin = time.perf_counter()
    executable = devices[0].client.compile(
        module, xla_client._xla.DeviceList(tuple(devices)), options_for(replicas)
    )
    seconds = time.perf_counter() - begin
    costs = executable.cost_analysis()
    costs = costs[0] if isinstance(costs, list) else costs
    memory = executable.get_compiled_memory_stats()
    text = executable.hlo_modules()[0].to_string()
    problems = [f"transfers from or to the host: {x}" for x in set(HOST.findall(text))]
    problems += ["a dynamic shape"] if "<=" in re.sub(r'"[^"]*"', "", text) else []
    return Compiled(
        seconds=round(seconds, 1),
        flops=costs["flops"],
        bytes_accessed=costs["bytes accessed"],
        temporary_bytes=memory.temp_size_in_bytes,
        argument_bytes=memory.argument_size_in_bytes,
        matmul_flops=matmul_flops(computation.as_hlo_text()),
        collectives=collectives(text),
        problems=problems,
    )


def run_program(program: str, inputs: str, outputs: str) -> None:
    """Runs a program on the CPU with the arrays of a file, in order, and writes its results."""
    device = jax.devices("cpu")[0]
    _, module = read(program)
    executable = device.client.compile_and_load(
        module, xla_client._xla.DeviceList((device,)), options_for(1)
    )
    with np.load(inputs) as arrays:
        buffers = [jax.device_put(arrays[str(i)], device) for i in range(len(arrays.files))]
    results = executable.execute(buffers)
    values = [np.asarray(x) for x in results]
    values = [x.astype(np.float32) if x.dtype.name == "bfloat16" else x for x in values]
    named: dict[str, Any] = {str(i): value for i, value in enumerate(values)}
    np.savez(outputs, **named)


def main() -> None:
    """Answers the lines of the standard input."""
    for line in sys.stdin:
        order = json.loads(line)
        try:
            if "topology" in order:
                answer = dataclasses.asdict(compile_program(**order))
            else:
                run_program(**order)
                answer = {}
        except Exception as error:  # of the compiler, whatever its class
            answer = {"error": f"{type(error).__name__}: {error}"[:2000]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

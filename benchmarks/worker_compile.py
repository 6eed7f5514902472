r"""Compiles HLO programs for absent TPUs and GPUs, or runs them on the CPU.

    echo '{"program": "step.hlo", "topology": "v4:2x2x1"}' | python worker_compile.py

Google's TPU compiler is part of libtpu, XLA's GPU compiler is part of `jax-cuda12-plugin`, and JAX
calls both without a device. A topology is that of a TPU, or "a100" or "h100". For each line of JSON
on the standard input, this program prints one with what it found out (`Compiled`); or, for
`{"program": …, "inputs": "in.npz", "outputs": "out.npz"}`, runs the program and writes its results.
It imports nothing of this project, which its environment lacks.

`jax[tpu]`, `jax-cuda12-plugin`, `jax-cuda12-pjrt` and `nvidia-cuda-nvcc-cu12` are needed, but no
other package of CUDA.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import json
import math
import os
import re
import sys
import sysconfig
import time
from typing import Any

# Without a GPU, no candidates can be timed: matmuls are cuBLAS's. ptxas is in a package of NVIDIA.
os.environ["XLA_FLAGS"] = (
    "--xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false "
    f"--xla_gpu_cuda_data_dir={sysconfig.get_path('purelib')}/nvidia/cuda_nvcc"
)
os.environ["TPU_SKIP_MDS_QUERY"] = "1"  # there is no machine to ask about its TPU
os.environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"  # only compilers, which do not share a device
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

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
# Calls that read and write arrays of the device: their arguments and targets.
DEVICE_CALL = re.compile(
    r" custom-call\(([^)]*)\), "
    r'custom_call_target="(__cublas\$|__cudnn\$fmha|__gpu\$xla\.gpu\.triton)'
)
SUMMED = re.compile(r'"lhs_contracting_dimensions":\[([^\]]*)\]')
COLLECTIVE = re.compile(
    r" = (.+?) (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start)?\("
)
# What the compiler asks about a GPU: NVIDIA's data sheets and cudaGetDeviceProperties.
GPUS = {
    "a100": {
        "name": "NVIDIA A100-SXM4-80GB",
        "compute_capability": 8,
        "core_count": 108,
        "fpus_per_core": 64,
        "memory_bandwidth": 2_039_000_000_000,
        "device_memory_size": 85_100_068_864,
        "l2_cache_size": 40 * 2**20,
        "clock_rate_ghz": 1.41,
        "shared_memory_per_core": 164 * 2**10,
        "shared_memory_per_block_optin": 163 * 2**10,
    },
    "h100": {
        "name": "NVIDIA H100 80GB HBM3",
        "compute_capability": 9,
        "core_count": 132,
        "fpus_per_core": 128,
        "memory_bandwidth": 3_352_000_000_000,
        "device_memory_size": 84_942_979_072,
        "l2_cache_size": 50 * 2**20,
        "clock_rate_ghz": 1.98,
        "shared_memory_per_core": 228 * 2**10,
        "shared_memory_per_block_optin": 227 * 2**10,
    },
}
LIMITS = {  # of all GPUs since Volta
    "threads_per_warp": 32,
    "threads_per_block_limit": 1024,
    "threads_per_core_limit": 2048,
    "block_dim_limit_x": 2**31 - 1,
    "block_dim_limit_y": 65_535,
    "block_dim_limit_z": 65_535,
    "registers_per_core_limit": 65_536,
    "registers_per_block_limit": 65_536,
    "shared_memory_per_block": 48 * 2**10,
}
NEWER_LIMITS = {  # JAX 0.7 does not ask about these
    "thread_dim_limit_x": 1024,
    "thread_dim_limit_y": 1024,
    "thread_dim_limit_z": 64,
    "device_address_bits": 64,
}
CUDA_VERSION = "12.9.0"
IS_OLD = jax.__version_info__ < (0, 8)
# An instruction of a program for a TPU: its result, its operation and its arguments.
INSTRUCTION = re.compile(
    r"^\s*(?:ROOT )?%?([\w.-]+) = (\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)|\S+) ([\w-]+)\(([^)]*)"
)
# An array with its layout, in which S(n) is any memory but HBM.
PLACED = re.compile(r"\b[a-z]+\d*\[[\d,]*\](?:\{[^}]*\})?")
MOVES_NOTHING = ("parameter", "constant", "bitcast", "tuple", "get-tuple-element")
TARGET = re.compile(r'custom_call_target="([^"]*)"')
EPILOGUE = re.compile(r'"epilogue":"(\w+)"')
TRANSPOSE = re.compile(r" = ([a-z]+\d*\[[\d,]*\])\S* transpose\(")
HOST = re.compile(r" (infeed|outfeed|send|recv)\(| \S+\{[^}]*S\(5\)\}")  # S(5): host memory


@dataclasses.dataclass(frozen=True)
class Compiled:
    """What the compiler tells about a program.

    Attributes:
        seconds: time to compile.
        flops: FLOPs of a run.
        bytes_accessed: bytes that its instructions read and write, in any memory.
        hbm_bytes: the part of them in HBM, for TPUs; 0 for GPUs.
        temporary_bytes: memory for intermediate results.
        argument_bytes: memory of the arguments.
        matmul_flops: dtype of the operands → FLOPs of the matmuls, before the device's own passes.
        collectives: operation across replicas → [number, bytes of its results].
        calls: target of a custom call → number of such calls.
        epilogues: what cuBLASLt adds to matmuls, such as "BIAS" → number of such matmuls.
        transposes: types of the arrays that are stored in another order of their axes.
        problems: instructions that a step must not have: transfers from or to the host, and results
            whose shape depends on values.
    """

    seconds: float
    flops: float
    bytes_accessed: float
    hbm_bytes: int
    temporary_bytes: int
    argument_bytes: int
    matmul_flops: dict[str, float]
    collectives: dict[str, list[int]]
    calls: dict[str, int]
    epilogues: dict[str, int]
    transposes: list[str]
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
    flops: dict[str, float] = {}
    types: dict[str, tuple[str, list[int]]] = {}
    for line in text.splitlines():
        if not (match := DEFINITION.match(line)) or not (shape := SHAPE.match(match[2])):
            continue
        types[match[1]] = shape[1], dimensions(shape[0])
        if dot := DOT.search(line):
            dtype, sizes = types[dot[1]]
            summed = math.prod(sizes[int(axis)] for axis in dot[2].split(",") if axis)
            size = math.prod(types[match[1]][1])
            flops[dtype] = flops.get(dtype, 0.0) + 2.0 * size * summed
    return flops


def call_costs(text: str) -> tuple[float, float]:
    """Returns FLOPs and bytes of the calls of cuBLAS, cuDNN and Triton in a compiled program.

    XLA's analysis counts neither. Those of cuDNN and Triton are counted without their FLOPs.
    """
    flops = 0.0
    size = 0.0
    types: dict[str, str] = {}
    for line in text.splitlines():
        if not (match := INSTRUCTION.match(line)):
            continue
        types[match[1]] = match[2]
        if not (call := DEVICE_CALL.search(line)):
            continue
        arguments = [types[name.strip().rpartition("%")[2]] for name in call[1].split(",")]
        if call[2].startswith("__cublas"):  # the last of the results is a workspace
            result, first = (dimensions(x) for x in (match[2], arguments[0]))
            size += bytes_of(" ".join(x[0] for x in list(SHAPE.finditer(match[2]))[:-1]))
            axes = [int(axis.strip('"')) for axis in SUMMED.findall(line)[0].split(",")]
            flops += 2.0 * math.prod(result) * math.prod(first[axis] for axis in axes)
        else:
            size += bytes_of(match[2])
        size += sum(map(bytes_of, arguments))
    return flops, size


def dimensions(text: str) -> list[int]:
    """Returns the dimensions of a type such as "f32[2,3]"."""
    match = SHAPE.search(text)
    return [int(size) for size in match[2].split(",") if size] if match else []


def collectives(text: str) -> dict[str, list[int]]:
    """Returns the number and the bytes of the operations across replicas in a compiled program."""
    totals: dict[str, list[int]] = {}
    for shape, operation in COLLECTIVE.findall(text):
        total = totals.setdefault(operation, [0, 0])
        total[0] += 1
        total[1] += bytes_of(shape)
    return totals


def hbm_bytes(text: str) -> int:
    """Returns the bytes in HBM that a program, the text of one compiled for a TPU, accesses.

    The compiler copies what an instruction needs from HBM to on-chip memory in the background, and
    leaves there what fits. An argument counts as a whole, even if an instruction reads a part.
    """
    size = 0
    types: dict[str, str] = {}
    for line in text[text.index("\nENTRY") :].splitlines():
        if not (match := INSTRUCTION.match(line)):
            continue
        name, shape, operation, arguments = match.groups()
        types[name] = shape
        if operation in MOVES_NOTHING or operation.endswith("-done") or "ConcatBitcast" in line:
            continue
        if operation in ("copy-start", "slice-start"):  # source and destination
            both = PLACED.findall(shape)[:2]
            size += min(map(bytes_of, both)) * sum(map(is_in_hbm, both))
            continue
        read = (types.get(argument, "") for argument in re.findall(r"%([\w.-]+)", arguments))
        arrays = [array for placed in (shape, *read) for array in PLACED.findall(placed)]
        size += sum(map(bytes_of, filter(is_in_hbm, arrays)))
    return size


def is_in_hbm(array: str) -> bool:
    """Returns whether a type with a layout is that of an array in HBM."""
    return "S(" not in array


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


def describe_gpu(name: str) -> str:
    """Returns the description of a GPU of GPUS that XLA compiles for: a `GpuTargetConfigProto`."""
    gpu = dict(GPUS[name])
    title = gpu.pop("name")
    capability = gpu.pop("compute_capability")
    facts = gpu | LIMITS | ({} if IS_OLD else NEWER_LIMITS)
    lines = [f"{key}: {value}" for key, value in facts.items()]
    lines += [f"cuda_compute_capability {{ major: {capability} }}"]
    runtime = ""
    if not IS_OLD:
        versions = ("driver_version", "runtime_version", "compile_time_toolkit_version")
        lines += [f'{key}: "{CUDA_VERSION}"' for key in versions]
        major, minor, patch = CUDA_VERSION.split(".")
        runtime = f"runtime_version {{ major: {major} minor: {minor} patch: {patch} }}"
    return f"""
        gpu_device_info {{ {" ".join(lines)} }}
        platform_name: "CUDA"
        dnn_version_info {{ major: 9 minor: 10 patch: 0 }}
        {runtime}
        device_description_str: "{title}"
    """


@functools.cache
def load_gpu_compiler() -> Any:
    """Returns the plugin of XLA for GPUs, which JAX 0.7 loads only where it finds a GPU."""
    path = os.path.join(sysconfig.get_path("purelib"), "jax_plugins", "xla_cuda12")
    plugin = xla_client.load_pjrt_plugin_dynamically(
        "cuda", os.path.join(path, "xla_cuda_plugin.so")
    )
    xla_client.initialize_pjrt_plugin("cuda")
    return plugin


def find_gpus(name: str, count: int) -> list[Any]:
    """Returns absent GPUs to compile for."""
    options = {"target_config": describe_gpu(name), "topology": f"1x1x{count}"}
    if IS_OLD:
        described = xla_client.make_c_api_device_topology(load_gpu_compiler(), name, **options)
        return list(described._make_compile_only_devices())
    return list(topologies.get_topology_desc(name, "cuda", **options).devices)


def find_devices(topology: str, count: int) -> list[Any]:
    """Returns absent devices to compile for."""
    if topology in GPUS:
        devices = find_gpus(topology, count)
    else:
        devices = topologies.get_topology_desc(topology, "tpu").devices
    return sorted(devices, key=lambda device: device.id)[:count]


def costs_of(executable: Any, topology: str) -> dict[str, float]:
    """Returns FLOPs and bytes of a compiled program."""
    if topology not in GPUS:
        costs = executable.cost_analysis()  # Google's compiler knows its own instructions
        of_program: dict[str, float] = costs[0] if isinstance(costs, list) else costs
        return of_program
    client = jax.devices("cpu")[0].client
    module = executable.hlo_modules()[0]
    costs = xla_client._xla.hlo_module_cost_analysis(client, module)
    flops, size = call_costs(module.to_string())
    return {
        "flops": costs["flops"] + flops,
        "bytes accessed": costs["bytes accessed"] + size,
    }


def compile_program(program: str, topology: str, replicas: int = 1) -> Compiled:
    """Compiles a program for the first `replicas` devices of a topology such as "v4:2x2x1"."""
    devices = find_devices(topology, replicas)
    computation, module = read(program)
    begin = time.perf_counter()
    executable = devices[0].client.compile(
        module, xla_client._xla.DeviceList(tuple(devices)), options_for(replicas)
    )
    seconds = time.perf_counter() - begin
    costs = costs_of(executable, topology)
    memory = executable.get_compiled_memory_stats()
    text = executable.hlo_modules()[0].to_string()
    problems = [f"transfers from or to the host: {x}" for x in set(HOST.findall(text))]
    problems += ["a dynamic shape"] if "<=" in re.sub(r'"[^"]*"', "", text) else []
    return Compiled(
        seconds=round(seconds, 1),
        flops=costs["flops"],
        bytes_accessed=costs["bytes accessed"],
        hbm_bytes=0 if topology in GPUS else hbm_bytes(text),
        temporary_bytes=memory.temp_size_in_bytes,
        argument_bytes=memory.argument_size_in_bytes,
        matmul_flops=matmul_flops(computation.as_hlo_text()),
        collectives=collectives(text),
        calls=dict(collections.Counter(TARGET.findall(text))),
        epilogues=dict(collections.Counter(EPILOGUE.findall(text))),
        transposes=sorted(set(TRANSPOSE.findall(text))),
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

"""Runs models with OpenVINO on the CPU, without TensorFlow.

The package openvino is an extra: pip install 'albert-tf2[openvino]'.
"""

from __future__ import annotations

import collections
import functools
import logging as python_logging
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from albert_tf.finetuning.batching import Array, Batch, Step

if TYPE_CHECKING:
    import openvino

_DEVICE = "CPU"
# Precision in this library → OpenVINO's name. It only applies to matmuls and ops that follow them.
PRECISIONS = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}


@functools.cache
def runtime() -> openvino.Core:
    """Returns OpenVINO's runtime, which is never released.

    Released in another thread than it was made in, it would leave that thread an alternate signal
    stack without memory: the next signal, such as that of Ctrl-C, would end the process.
    """
    # The package would fork the process to report each import and conversion to Google Analytics.
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    handlers = list(python_logging.root.handlers)
    import openvino

    python_logging.root.handlers[:] = handlers  # the import removes that of absl
    return openvino.Core()


def compile_model(
    model: openvino.Model, precision: str = "float32", threads: int | None = None
) -> openvino.CompiledModel:
    """Returns a compiled model.

    Args:
        model: the model.
        precision: precision of the computation: "float32", "bfloat16" or "float16".
        threads: number of threads; None for one per core.
    """
    hints = {
        "INFERENCE_PRECISION_HINT": PRECISIONS[precision],
        "PERFORMANCE_HINT": "LATENCY",  # all cores for one batch
    }
    if threads:
        hints["INFERENCE_NUM_THREADS"] = str(threads)
    return runtime().compile_model(model, _DEVICE, hints)


def step_of(compiled: openvino.CompiledModel) -> Step:
    """Returns what computes a batch; several threads may call it at the same time.

    Features that are not inputs of the model are left out.
    """
    inputs = [port.get_any_name() for port in compiled.inputs]
    outputs = {name: port for port in compiled.outputs for name in port.get_names()}
    free: collections.deque[openvino.InferRequest] = collections.deque()  # one for each thread

    def compute(batch: Batch) -> dict[str, Array]:
        try:
            request = free.pop()
        except IndexError:  # all are in use by other threads
            request = compiled.create_infer_request()
        try:
            results = request.infer({name: batch[name] for name in inputs})
            return {name: results[port] for name, port in outputs.items()}
        finally:
            free.append(request)

    return compute


def open_files(
    contents: Mapping[str, bytes], precision: str = "float32", threads: int | None = None
) -> Step:
    """Returns what computes a batch with the model in OpenVINO's files, or in ONNX's.

    Args:
        contents: name → content, as of `exported_files.read`.
        precision: as in `compile_model`.
        threads: likewise.
    """
    model = runtime().read_model(*contents.values())
    return step_of(compile_model(model, precision, threads))

"""Runs TensorFlow functions with OpenVINO, which is faster than TensorFlow on CPUs.

The package openvino is an extra: pip install 'albert-tf2[openvino]'.
"""

from __future__ import annotations

import collections
import functools
import hashlib
import logging as python_logging
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import tensorflow as tf
from numpy.typing import NDArray

from albert_tf.checkpoints import signatures
from albert_tf.model import dispatch

if TYPE_CHECKING:
    import openvino

Array: TypeAlias = NDArray[Any]
Predict = Callable[[Mapping[str, Array]], dict[str, Array]]  # batch → outputs
OPENVINO_DEVICE = "CPU"
# Precision in this library → OpenVINO's name. It only applies to matmuls and ops that follow them.
_PRECISIONS = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}

_UNSUPPORTED = "-- No conversion rule found"  # start of the useful line in OpenVINO's message


class ConversionError(ValueError):
    """OpenVINO cannot run a function that TensorFlow can."""


@dispatch.plain()
def compile_with_openvino(
    step: Callable[[dict[str, tf.Tensor]], dict[str, tf.Tensor]],
    signature: Mapping[str, tf.TensorSpec],
    precision: str = "float32",
) -> Predict:
    """Returns a function that computes the same as `step` with OpenVINO on the CPU.

    The number of threads is TensorFlow's intra-op parallelism, if that is set.

    Args:
        step: function from a batch, name → tensor, to outputs, name → tensor. Its model must have
            been built in float32; see `saved_model.float32_models`.
        signature: name → spec of the tensors in a batch; dimensions may be unknown.
        precision: precision of the computation: "float32", "bfloat16" or "float16".

    Returns:
        A function from a batch, name → array, to outputs, name → array. Several threads may call it
        at the same time.

    Raises:
        ConversionError: OpenVINO does not support an operation of `step`.
    """
    concrete = signatures.Signature(signature, step).function.get_concrete_function()
    try:
        compiled = _compile(concrete, precision)
    except Exception as error:  # of several types, from C++
        lines = [line.strip() for line in str(error).splitlines()] or [repr(error)]
        reason = next((line for line in lines if line.startswith(_UNSUPPORTED)), lines[0])
        raise ConversionError(
            "engine=openvino: OpenVINO cannot run this model, use engine=tensorflow: "
            f"{reason.lstrip('- ')}"
        ) from error
    free: collections.deque[openvino.InferRequest] = collections.deque()  # one for each thread
    inputs, outputs = ports_of(compiled, concrete)

    def run(batch: Mapping[str, Array]) -> dict[str, Array]:
        try:
            request = free.pop()
        except IndexError:  # all are in use by other threads
            request = compiled.create_infer_request()
        try:
            results = request.infer({name: batch[name] for name in inputs})
            return {name: results[port] for name, port in outputs.items()}
        finally:
            free.append(request)

    return run


def ports_of(
    compiled: openvino.CompiledModel, concrete: tf.types.experimental.ConcreteFunction
) -> tuple[list[str], dict[str, openvino.ConstOutput]]:
    """Returns the names of the inputs, without unused ones, and name → port of the outputs."""
    inputs = [port.get_any_name() for port in compiled.inputs]
    return inputs, {name: compiled.output(name) for name in concrete.structured_outputs}


def _compile(
    concrete: tf.types.experimental.ConcreteFunction, precision: str
) -> openvino.CompiledModel:
    """Returns a concrete function of TensorFlow, compiled."""
    hints = {
        "INFERENCE_PRECISION_HINT": _PRECISIONS[precision],
        "PERFORMANCE_HINT": "LATENCY",  # all cores for one batch
    }
    threads = tf.config.threading.get_intra_op_parallelism_threads()
    if threads:
        hints["INFERENCE_NUM_THREADS"] = str(threads)
    return runtime().compile_model(convert(concrete), OPENVINO_DEVICE, hints)


def convert(concrete: tf.types.experimental.ConcreteFunction) -> openvino.Model:
    """Returns a concrete function of TensorFlow as a model of OpenVINO."""
    runtime()
    import openvino

    # Shared, the weights would be read where TensorFlow may have freed them.
    model = openvino.convert_model(concrete, share_weights=False)
    share_weights(model)
    return model


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


def share_weights(model: openvino.Model) -> None:
    """Merges equal constants of a model, as saving and loading it does.

    The conversion transposes the weights of matmuls, and so copies the shared weights once for each
    layer. Unless they are merged, they do not fit into the processor's caches: one row then takes
    the base model up to twice as long in bfloat16.

    Args:
        model: the model, which is changed.
    """
    kept: dict[tuple[object, ...], openvino.Node] = {}
    for node in model.get_ordered_ops():
        if node.get_type_name() == "Constant":
            key = (
                node.get_element_type().get_type_name(),
                tuple(node.get_output_shape(0)),
                hashlib.sha256(node.data).digest(),
            )
            first = kept.setdefault(key, node)
            if first is not node:
                node.output(0).replace(first.output(0))

"""Writes ONNX files and those of OpenVINO, which is faster than TensorFlow on CPUs."""

from __future__ import annotations

import hashlib
import logging as python_logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import tensorflow as tf

from albert_tf.checkpoints.model_folder import (
    ONNX_FILE,
    OPENVINO_FILE,
    OPENVINO_WEIGHTS,
    read_exported,
)
from albert_tf.export.quantizations import INT8
from albert_tf.export.runtimes import (
    Step,
    compile_model,
    open_onnx,
    open_with_openvino,
    openvino_core,
    step_of,
)
from albert_tf.export.signatures import ExportedModel, Signature
from albert_tf.model import dispatch

if TYPE_CHECKING:  # what needs TensorFlow
    import openvino


_ONNX_OPSET = 17
_UNSUPPORTED = "-- No conversion rule found"  # start of the useful line in OpenVINO's message


class ConversionError(ValueError):
    """OpenVINO cannot run a function that TensorFlow can."""


@dispatch.plain()
def compile_with_openvino(
    step: Callable[[dict[str, tf.Tensor]], dict[str, tf.Tensor]],
    signature: Mapping[str, tf.TensorSpec],
    precision: str = "float32",
) -> Step:
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
    concrete = Signature(signature, step).function.get_concrete_function()
    try:
        threads = tf.config.threading.get_intra_op_parallelism_threads()
        compiled = compile_model(convert(concrete), precision, threads)
    except Exception as error:  # of several types, from C++
        lines = [line.strip() for line in str(error).splitlines()] or [repr(error)]
        reason = next((line for line in lines if line.startswith(_UNSUPPORTED)), lines[0])
        raise ConversionError(
            "engine=openvino: OpenVINO cannot run this model, use engine=tensorflow: "
            f"{reason.lstrip('- ')}"
        ) from error
    return step_of(compiled)


def convert(concrete: tf.types.experimental.ConcreteFunction) -> openvino.Model:
    """Returns a concrete function of TensorFlow as a model of OpenVINO."""
    openvino_core()  # before the import, which would report it
    import openvino

    # Shared, the weights would be read where TensorFlow may have freed them.
    model = openvino.convert_model(concrete, share_weights=False)
    share_weights(model)
    return model


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


def write_openvino(folder: str, made: ExportedModel, signature: Signature) -> Step:
    """Writes `model.xml` and `model.bin`."""
    model = convert(signature.function.get_concrete_function())
    import openvino  # after the conversion, which keeps it from reporting its use

    path = os.path.join(folder, OPENVINO_FILE)
    try:
        openvino.save_model(model, path, compress_to_fp16=False)
    except RuntimeError as error:  # of C++, which does not say what the system said
        raise OSError(
            f"{path}: OpenVINO cannot write it or {OPENVINO_WEIGHTS} ({error}): the disk may be "
            "full. Free some space or choose another folder, then run the same command again"
        ) from None
    return open_with_openvino(read_exported(path))


def write_onnx(folder: str, made: ExportedModel, signature: Signature) -> Step:
    """Writes `model.onnx`, quantized as the export says."""
    import tf2onnx

    path = os.path.join(folder, ONNX_FILE)
    specs = [tf.TensorSpec(s.shape, s.dtype, name) for name, s in signature.inputs.items()]
    tf2onnx.convert.from_function(
        signature.function, input_signature=specs, opset=_ONNX_OPSET, output_path=path
    )
    if made.exported.quantization == INT8:
        _quantize(path)
    return open_onnx(read_exported(path))


def _quantize(path: str) -> None:
    """Replaces an ONNX file by one with weights of 8 bits, by ONNX Runtime's own quantization.

    With 7 of these bits, the sums of two products fit into 16 bits, as processors without VNNI
    compute them: a file has the same answers wherever it is served.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantized = f"{path}.{INT8}"
    root = python_logging.getLogger()
    level = root.level
    root.setLevel(python_logging.ERROR)  # it recommends a step for other kinds of quantization
    try:
        quantize_dynamic(
            path, quantized, per_channel=True, reduce_range=True, weight_type=QuantType.QInt8
        )
    finally:
        root.setLevel(level)
    os.replace(quantized, path)

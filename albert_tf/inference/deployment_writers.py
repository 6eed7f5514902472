"""Writes the files of `deployment_formats`, and opens them as they will be used."""

from __future__ import annotations

import os
import warnings

import tensorflow as tf

from albert_tf.checkpoints import exported_files
from albert_tf.checkpoints.exported_files import ONNX_FILE, OPENVINO_FILE, OPENVINO_WEIGHTS
from albert_tf.export import saved_model, tflite
from albert_tf.export.formats import NONE
from albert_tf.export.signatures import DEFAULT, TENSORS, Signature
from albert_tf.finetuning.batching import Array, Batch, Step
from albert_tf.inference import onnx_runtime, openvino_engine, openvino_runtime
from albert_tf.inference.exporting import ExportedModel

_ONNX_OPSET = 17


def write_tflite(folder: str, made: ExportedModel, signature: Signature) -> Step:
    """Writes `albert_model.tflite`, quantized as the export says."""
    path = os.path.join(folder, tflite.TFLITE_FILE)
    quantization = made.exported.quantization or NONE
    tflite.write_tflite(path, saved_model.hold(made.variables), signature, quantization)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*tf.lite.Interpreter is deprecated", UserWarning)
        runner = tf.lite.Interpreter(path).get_signature_runner(DEFAULT)
    return lambda batch: dict(runner(**batch))


def write_openvino(folder: str, signature: Signature) -> Step:
    """Writes `model.xml` and `model.bin`."""
    model = openvino_engine.convert(signature.function.get_concrete_function())
    import openvino  # after the conversion, which keeps it from reporting its use

    path = os.path.join(folder, OPENVINO_FILE)
    try:
        openvino.save_model(model, path, compress_to_fp16=False)
    except RuntimeError as error:  # of C++, which does not say what the system said
        raise OSError(
            f"OpenVINO cannot write {OPENVINO_FILE} and {OPENVINO_WEIGHTS} ({error}): the disk may "
            "be full. Free some space or choose another folder, then run the same command again"
        ) from None
    return openvino_runtime.open_files(exported_files.read(path))


def write_onnx(folder: str, signature: Signature) -> Step:
    """Writes `model.onnx`."""
    import tf2onnx

    path = os.path.join(folder, ONNX_FILE)
    specs = [tf.TensorSpec(s.shape, s.dtype, name) for name, s in signature.inputs.items()]
    tf2onnx.convert.from_function(
        signature.function, input_signature=specs, opset=_ONNX_OPSET, output_path=path
    )
    return onnx_runtime.open_files(exported_files.read(path))


def write_saved_model(folder: str, made: ExportedModel) -> Step:
    """Writes a SavedModel with all signatures."""
    root = saved_model.hold(made.variables)
    saved_model.save(folder, root, made.exported.signatures)
    served = tf.saved_model.load(folder)
    name = TENSORS if TENSORS in made.exported.signatures else DEFAULT

    def compute(batch: Batch) -> dict[str, Array]:
        found = served.signatures[name](**{key: tf.constant(x) for key, x in batch.items()})
        return {key: value.numpy() for key, value in found.items()}

    return compute

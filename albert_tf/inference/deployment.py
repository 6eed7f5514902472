"""Writes models for runtimes that do not need this library: TFLite, OpenVINO, ONNX, SavedModels.

The files take ids and return what a SavedModel returns for them (docs/serving.md). Each is compared
with the model before the folder gets its name.

Letters: B batch size, S sequence length.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import warnings
from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from albert_tf import files
from albert_tf.checkpoints import finding, saved_model, tflite
from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.checkpoints.quantizations import NONE
from albert_tf.checkpoints.signatures import DEFAULT, TENSORS, Signature
from albert_tf.inference import openvino_engine
from albert_tf.inference.exporting import ExportedModel, make_export
from albert_tf.inference.model_task import find_task
from albert_tf.model import dispatch

Arrays = Mapping[str, NDArray[np.generic]]
Run = Callable[[Arrays], Arrays]  # inputs → outputs, by name

ONNX_FILE = "model.onnx"
OPENVINO_FILE = "model.xml"
_ONNX_OPSET = 17
_TOLERANCE = 1e-4  # of float32 weights
_PROBE_SEED = 12345
_PROBE_ROWS = 2


@dataclasses.dataclass(frozen=True)
class DeploymentFormat:
    """A format for another runtime.

    Attributes:
        write: writes a signature to a folder, and returns a function that runs the file.
        package: the Python package that it needs; "" for none besides TensorFlow.
        extra: the extra of this package that installs it.
        is_fixed: whether the file takes one row of full length.
        files_in: folder for config, vocabulary, labels and record, within the new one.
    """

    write: Callable[[str, ExportedModel, Signature, str], Run]
    package: str = ""
    extra: str = ""
    is_fixed: bool = False
    files_in: str = ""


def deploy(
    source: ModelSource,
    output: str,
    output_format: str,
    quantization: str = NONE,
    max_seq_length: int | None = None,
) -> float:
    """Writes a model to a new folder, with its config, vocabulary, labels and record.

    Args:
        source: the model; one that was not fine-tuned computes embeddings.
        output: the folder.
        output_format: a key of `FORMATS`.
        quantization: data type of the weights of a TFLite model: NONE for float32, FLOAT16, or INT8
            for dynamic-range quantization.
        max_seq_length: length of the rows of a TFLite model, in tokens. Defaults to that of
            training, or else to the model's maximum.

    Returns:
        The largest difference of an output from the model's, for random ids.

    Raises:
        ValueError: the package of the format is not installed, it cannot represent the model, or
            the file computes something else.
    """
    form = FORMATS[output_format]
    if form.package and importlib.util.find_spec(form.package) is None:
        raise ValueError(
            f"--output_format={output_format} needs {form.package}: "
            f"pip install 'albert-tf2[{form.extra}]'"
        )
    with saved_model.float32_models(), dispatch.plain():
        made = make_export(source, find_task(source), max_seq_length)
        signature = _signature_of(made, form.is_fixed)
        record = source.run.record
        beside = saved_model.model_files(source.config_file, source.vocabulary_file, record)
        with files.publish_directory(files.real_path(output), "--output") as folder:
            run = form.write(folder, made, signature, quantization)
            difference = _compare(run, signature, form.is_fixed)
            if difference > _TOLERANCE and quantization == NONE:
                raise ValueError(
                    f"--output_format={output_format}: an output of the file differs from the "
                    f"model by {difference:.1e}; nothing was written"
                )
            place = os.path.join(folder, form.files_in)
            os.makedirs(place, exist_ok=True)
            for name, content in {**beside, **made.exported.files}.items():
                files.write_file(os.path.join(place, name), content)
    return difference


def _signature_of(made: ExportedModel, is_fixed: bool) -> Signature:
    """Returns the signature that takes ids; if fixed, with rows of full length."""
    exported = made.exported
    if is_fixed and exported.tflite is not None:
        return exported.tflite
    tensors = exported.signatures.get(TENSORS) or exported.signatures[DEFAULT]
    if not is_fixed:
        return tensors
    inputs = {
        name: tf.TensorSpec([*spec.shape[:-1], made.max_seq_length], spec.dtype)
        for name, spec in tensors.inputs.items()
    }
    if any(None in spec.shape[1:] for spec in inputs.values()):
        raise ValueError(
            "--output_format=tflite: a TFLite model has a fixed number of options, and a model for "
            "multiple choice has not. Use onnx, openvino or saved_model"
        )
    return Signature(inputs, tensors.compute)


def _compare(run: Run, signature: Signature, is_fixed: bool) -> float:
    """Returns the largest difference of an output of a file from that of the model."""
    random = np.random.default_rng(_PROBE_SEED)
    rows = 1 if is_fixed else _PROBE_ROWS
    batch = {}
    for name, spec in signature.inputs.items():
        shape = [rows, *(size or 7 for size in spec.shape[1:])]
        batch[name] = random.integers(0, 2, shape).astype(np.int32)
        if name == "input_ids":
            batch[name] = random.integers(5, 60, shape).astype(np.int32)
        elif name != "segment_ids":
            batch[name][..., 0] = 1  # a row has at least one token
    expected = signature.function(*map(tf.constant, batch.values()))
    found = run(batch)
    return max(
        float(np.max(np.abs(found[name] - value.numpy()), initial=0.0))
        for name, value in expected.items()
        if value.dtype.is_floating and value.shape.rank
    )


def _write_tflite(folder: str, made: ExportedModel, signature: Signature, quantization: str) -> Run:
    path = os.path.join(folder, tflite.TFLITE_FILE)
    tflite.write_tflite(path, saved_model.hold(made.variables), signature, quantization)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*tf.lite.Interpreter is deprecated", UserWarning)
        runner = tf.lite.Interpreter(path).get_signature_runner(DEFAULT)
    return lambda batch: dict(runner(**batch))


def _write_openvino(
    folder: str, made: ExportedModel, signature: Signature, quantization: str
) -> Run:
    runtime = openvino_engine.runtime()  # before the import, which would report it
    import openvino

    concrete = signature.function.get_concrete_function()
    model = openvino_engine.convert(concrete)
    path = os.path.join(folder, OPENVINO_FILE)
    openvino.save_model(model, path, compress_to_fp16=False)
    compiled = runtime.compile_model(
        path, openvino_engine.OPENVINO_DEVICE, {"INFERENCE_PRECISION_HINT": "f32"}
    )
    names, outputs = openvino_engine.ports_of(compiled, concrete)

    def run(batch: Arrays) -> Arrays:
        results = compiled({name: batch[name] for name in names})
        return {name: results[port] for name, port in outputs.items()}

    return run


def _write_onnx(folder: str, made: ExportedModel, signature: Signature, quantization: str) -> Run:
    import onnxruntime
    import tf2onnx

    path = os.path.join(folder, ONNX_FILE)
    specs = [tf.TensorSpec(s.shape, s.dtype, name) for name, s in signature.inputs.items()]
    tf2onnx.convert.from_function(
        signature.function, input_signature=specs, opset=_ONNX_OPSET, output_path=path
    )
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [node.name for node in session.get_inputs()]
    outputs = [node.name for node in session.get_outputs()]

    def run(batch: Arrays) -> Arrays:
        values = session.run(outputs, {name: batch[name] for name in names})
        return dict(zip(outputs, values, strict=True))

    return run


def _write_saved_model(
    folder: str, made: ExportedModel, signature: Signature, quantization: str
) -> Run:
    root = saved_model.hold(made.variables)
    saved_model.save(folder, root, made.exported.signatures)
    served = tf.saved_model.load(folder)
    name = TENSORS if TENSORS in made.exported.signatures else DEFAULT

    def run(batch: Arrays) -> Arrays:
        found = served.signatures[name](**{key: tf.constant(x) for key, x in batch.items()})
        return {key: value.numpy() for key, value in found.items()}

    return run


FORMATS: Mapping[str, DeploymentFormat] = {
    "tflite": DeploymentFormat(_write_tflite, is_fixed=True),
    "openvino": DeploymentFormat(_write_openvino, "openvino", "openvino"),
    "onnx": DeploymentFormat(_write_onnx, "tf2onnx", "onnx"),
    "saved_model": DeploymentFormat(_write_saved_model, files_in=finding.EXTRA_ASSETS),
}

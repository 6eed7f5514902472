"""Writes TFLite models, for phones and other small devices."""

from __future__ import annotations

import os
import warnings

import tensorflow as tf
from absl import logging

from albert_tf import files
from albert_tf.checkpoints.model_folder import TFLITE_FILE as TFLITE_FILE
from albert_tf.export.quantizations import FLOAT16, NONE
from albert_tf.export.runtimes import Step
from albert_tf.export.signatures import DEFAULT, ExportedModel, Signature, hold


def write_tflite(
    path: str, root: tf.train.Checkpoint, signature: Signature, quantization: str = NONE
) -> None:
    """Writes a TFLite model that takes one example of full length at a time.

        runner = tf.lite.Interpreter(path).get_signature_runner("serving_default")
        runner(input_ids=ids, input_mask=mask, segment_ids=segments)  # int32 [1, S] each

    Call it by its signature `serving_default` and the names of inputs and outputs, because the
    converter does not preserve their order.

    Args:
        path: the output file; its folder is created if needed.
        root: an object with all variables of the signature; see `hold`.
        signature: a signature whose inputs are [B, S]; those of the file are [1, S].
        quantization: quantization of the weights: NONE, FLOAT16, or INT8, which is dynamic-range
            quantization with 8-bit integer matmuls. Outputs and activations stay float32.

    Raises:
        ValueError: the folder cannot be written to.
    """
    files.ensure_directory(os.path.dirname(path), "--export_dir")
    single = {
        name: tf.TensorSpec([1, *spec.shape[1:]], spec.dtype)
        for name, spec in signature.inputs.items()
    }
    concrete = Signature(single, signature.compute).function.get_concrete_function()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([concrete], root)
    if quantization != NONE:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if quantization == FLOAT16:
        converter.target_spec.supported_types = [tf.float16]
    content = converter.convert()
    files.write_file(path, content)
    logging.info("Exported to %s (%.1f MB)", path, len(content) / 1e6)


def write_folder(folder: str, made: ExportedModel, signature: Signature) -> Step:
    """Writes `albert_model.tflite`, quantized as the export says."""
    path = os.path.join(folder, TFLITE_FILE)
    quantization = made.exported.quantization or NONE
    write_tflite(path, hold(made.variables), signature, quantization)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*tf.lite.Interpreter is deprecated", UserWarning)
        runner = tf.lite.Interpreter(path).get_signature_runner(DEFAULT)
    return lambda batch: dict(runner(**batch))

"""Exports fine-tuned models as TFLite files for mobile and embedded devices.

    runner = tf.lite.Interpreter("albert_model.tflite").get_signature_runner("serving_default")
    runner(input_ids=ids, input_mask=mask, segment_ids=segments)  # int32 [1, S] each

Letters: S sequence length.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
from absl import logging

from albert_tf import acceleration, files
from albert_tf.serving.saved_model import Tensors

FILE = "albert_model.tflite"  # official
NONE = "none"
FLOAT16 = "float16"
INT8 = "int8"


@acceleration.plain()
def export_tflite(
    path: str,
    model: Any,
    features: Mapping[str, tf.io.FixedLenFeature],
    outputs: Callable[[Tensors], Tensors],
    quantization: str = NONE,
) -> None:
    """Writes a TFLite model that takes one example of full length at a time.

    Call it by its signature `serving_default` and the names of `features` and `outputs`, because
    the converter does not preserve the order of inputs and outputs.

    Args:
        path: the output file; its folder is created if needed.
        model: as in `saved_model.export_saved_model`.
        features: as in `saved_model.export_saved_model`; the inputs are int32 [1, S].
        outputs: as in `saved_model.export_saved_model`.
        quantization: quantization of the weights: NONE, FLOAT16, or INT8, which is dynamic-range
            quantization with 8-bit integer matmuls. Outputs and activations stay float32.

    Raises:
        ValueError: the folder cannot be written to.
    """
    files.ensure_directory(os.path.dirname(path), "--export_dir")
    specs = [tf.TensorSpec([1, *form.shape], tf.int32, name) for name, form in features.items()]

    @tf.function(input_signature=specs, autograph=False)
    def serve(*tensors: tf.Tensor) -> Tensors:
        return outputs(model(dict(zip(features, tensors, strict=True)), training=False))

    root = tf.train.Checkpoint()
    root.variables = list(model.variables)
    concrete = serve.get_concrete_function()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([concrete], root)
    if quantization != NONE:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if quantization == FLOAT16:
        converter.target_spec.supported_types = [tf.float16]
    content = converter.convert()
    with files.write_atomically(path, "wb") as stream:
        stream.write(content)
    logging.info("Exported to %s (%.1f MB)", path, len(content) / 1e6)

"""The files of models that were exported for runtimes other than TensorFlow.

They answer without TensorFlow, but are no checkpoints: nothing can be trained or converted.
"""

from __future__ import annotations

import os

OPENVINO_FILE = "model.xml"
OPENVINO_WEIGHTS = "model.bin"
ONNX_FILE = "model.onnx"
TFLITE_FILE = "albert_model.tflite"  # official; for an app that tokenizes texts itself
ANSWERING = (OPENVINO_FILE, ONNX_FILE)  # those that a predictor opens


def is_exported(checkpoint: str) -> bool:
    """Returns whether the path of a checkpoint is that of a file for another runtime."""
    return os.path.basename(checkpoint) in ANSWERING

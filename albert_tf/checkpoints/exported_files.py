"""The files of models that were exported for runtimes other than TensorFlow.

They answer without TensorFlow, but are no checkpoints: nothing can be trained or converted.
"""

from __future__ import annotations

import os

from albert_tf import files

OPENVINO_FILE = "model.xml"
OPENVINO_WEIGHTS = "model.bin"
ONNX_FILE = "model.onnx"
TFLITE_FILE = "albert_model.tflite"  # official; for an app that tokenizes texts itself
# Those that a predictor opens → all files of the model.
_PARTS = {OPENVINO_FILE: (OPENVINO_FILE, OPENVINO_WEIGHTS), ONNX_FILE: (ONNX_FILE,)}
ANSWERING = _PARTS.keys()


def is_exported(checkpoint: str) -> bool:
    """Returns whether the path of a checkpoint is that of a file for another runtime."""
    return os.path.basename(checkpoint) in ANSWERING


def read(path: str) -> dict[str, bytes]:
    """Returns name → content of the files of an exported model, the graph first.

    Runtimes get the contents: they would map a file, which ends the process if it is truncated, and
    changes the answers if another one is copied over it.

    Args:
        path: a file whose name is in `ANSWERING`.

    Raises:
        FileNotFoundError: a file does not exist.
    """
    folder, name = os.path.split(path)
    return {part: files.read_bytes(os.path.join(folder, part)) for part in _PARTS[name]}

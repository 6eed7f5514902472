"""Runs ONNX files with ONNX Runtime on the CPU, without TensorFlow.

The package onnxruntime is an extra: pip install 'albert-tf2[onnxruntime]'.
"""

from __future__ import annotations

from collections.abc import Mapping

from albert_tf.finetuning.batching import Array, Batch, Step


def open_files(contents: Mapping[str, bytes], threads: int | None = None) -> Step:
    """Returns what computes a batch, which several threads may call at the same time.

    Features that are not inputs of the model are left out.

    Args:
        contents: name → content of the file.
        threads: number of threads; None for one per core.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or 0
    (model,) = contents.values()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    inputs = [node.name for node in session.get_inputs()]
    outputs = [node.name for node in session.get_outputs()]

    def compute(batch: Batch) -> dict[str, Array]:
        values = session.run(outputs, {name: batch[name] for name in inputs})
        return dict(zip(outputs, values, strict=True))

    return compute

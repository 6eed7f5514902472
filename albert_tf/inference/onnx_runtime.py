"""Runs ONNX files with ONNX Runtime on the CPU, without TensorFlow.

The package onnxruntime is an extra: pip install 'albert-tf2[onnxruntime]'.
"""

from __future__ import annotations

from albert_tf.finetuning.batching import Array, Batch, Step


def open_file(path: str, threads: int | None = None) -> Step:
    """Returns what computes a batch, which several threads may call at the same time.

    Features that are not inputs of the model are left out.

    Args:
        path: the file.
        threads: number of threads; None for one per core.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or 0
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    inputs = [node.name for node in session.get_inputs()]
    outputs = [node.name for node in session.get_outputs()]

    def compute(batch: Batch) -> dict[str, Array]:
        values = session.run(outputs, {name: batch[name] for name in inputs})
        return dict(zip(outputs, values, strict=True))

    return compute

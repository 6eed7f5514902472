"""Runs functions of TensorFlow by OpenVINO, which computes faster than TensorFlow on processors.

    run = compile_step(step, signature, "bfloat16")
    outputs = run({"input_ids": ids, "input_mask": mask, "segment_ids": segments})

The package openvino is an extra: pip install 'albert-tf2[openvino]'.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
from numpy.typing import NDArray

from albert_tf import kernels

Arrays = dict[str, NDArray[Any]]
DEVICE = "CPU"
# Precision of this library → OpenVINO's name. Only matmuls and what follows them are rounded to it.
_PRECISIONS = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}


def check_installed() -> None:
    """Checks that the package is there, before slow work begins.

    Raises:
        ValueError: it is not.
    """
    try:
        import openvino  # noqa: F401
    except ImportError:
        raise ValueError(
            "engine=openvino needs the package openvino: pip install 'albert-tf2[openvino]', or "
            "use engine=tensorflow"
        ) from None


@kernels.plain()
def compile_step(
    step: Callable[[dict[str, tf.Tensor]], Mapping[str, tf.Tensor]],
    signature: Mapping[str, tf.TensorSpec],
    precision: str = "float32",
) -> Callable[[Mapping[str, NDArray[Any]]], Arrays]:
    """Returns a function that computes the same as `step`, by OpenVINO on the processor.

    It uses as many threads as TensorFlow was told to.

    Args:
        step: of a batch, name → tensor. Its model is in float32, see `saved_model.float32_models`.
        signature: name → spec of the tensors of a batch; dimensions may be unknown.
        precision: to compute in, "float32", "bfloat16" or "float16".

    Returns:
        a function of a batch of arrays, which returns name → array.

    Raises:
        ValueError: openvino is not installed.
    """
    check_installed()
    import openvino

    specs = [tf.TensorSpec(spec.shape, spec.dtype, name) for name, spec in signature.items()]

    @tf.function(input_signature=specs, autograph=False)
    def traced(*tensors: tf.Tensor) -> dict[str, tf.Tensor]:
        return dict(step(dict(zip(signature, tensors, strict=True))))

    concrete = traced.get_concrete_function()
    hints = {
        "INFERENCE_PRECISION_HINT": _PRECISIONS[precision],
        "PERFORMANCE_HINT": "LATENCY",  # all cores for one batch
    }
    threads = tf.config.threading.get_intra_op_parallelism_threads()
    if threads:
        hints["INFERENCE_NUM_THREADS"] = str(threads)
    compiled = openvino.Core().compile_model(openvino.convert_model(concrete), DEVICE, hints)
    request = compiled.create_infer_request()
    inputs = [port.get_any_name() for port in compiled.inputs]  # without those that nothing needs
    outputs = {name: compiled.output(name) for name in concrete.structured_outputs}

    def run(batch: Mapping[str, NDArray[Any]]) -> Arrays:
        found = request.infer({name: batch[name] for name in inputs})
        return {name: found[port] for name, port in outputs.items()}

    return run

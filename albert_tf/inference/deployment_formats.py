"""The formats that `albert convert` writes for runtimes that do not need this library.

As in `finetuning.own_tasks`, a function imports what writes a format, with TensorFlow, when it is
called.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from albert_tf.checkpoints.finding import EXTRA_ASSETS

if TYPE_CHECKING:
    from albert_tf.export.signatures import Signature
    from albert_tf.finetuning.batching import Step
    from albert_tf.inference.exporting import ExportedModel


@dataclasses.dataclass(frozen=True)
class DeploymentFormat:
    """A format for another runtime.

    Attributes:
        name: what `--output_format` calls it.
        write: writes a signature of a model to a folder, and returns what computes a batch with the
            file.
        packages: the Python packages that write and check it, of the extra with the name of the
            format; () for none besides TensorFlow.
        is_fixed: whether the file takes one row of full length.
        is_quantized: whether its weights can be stored in fewer bits.
        files_in: folder for config, vocabulary, labels and record, within the new one.
    """

    name: str
    write: Callable[[str, ExportedModel, Signature], Step]
    packages: tuple[str, ...] = ()
    is_fixed: bool = False
    is_quantized: bool = False
    files_in: str = ""

    def check_packages(self) -> None:
        """Raises ValueError if a package is not installed."""
        for package in self.packages:
            if importlib.util.find_spec(package) is None:
                raise ValueError(
                    f"--output_format={self.name} needs {package}: "
                    f"pip install 'albert-tf2[{self.name}]'"
                )


def _write_tflite(folder: str, made: ExportedModel, signature: Signature) -> Step:
    from albert_tf.inference.deployment_writers import write_tflite

    return write_tflite(folder, made, signature)


def _write_openvino(folder: str, made: ExportedModel, signature: Signature) -> Step:
    from albert_tf.inference.deployment_writers import write_openvino

    return write_openvino(folder, signature)


def _write_onnx(folder: str, made: ExportedModel, signature: Signature) -> Step:
    from albert_tf.inference.deployment_writers import write_onnx

    return write_onnx(folder, signature)


def _write_saved_model(folder: str, made: ExportedModel, signature: Signature) -> Step:
    from albert_tf.inference.deployment_writers import write_saved_model

    return write_saved_model(folder, made)


FORMATS: Mapping[str, DeploymentFormat] = {
    form.name: form
    for form in (
        DeploymentFormat("saved_model", _write_saved_model, files_in=EXTRA_ASSETS),
        DeploymentFormat("tflite", _write_tflite, is_fixed=True, is_quantized=True),
        DeploymentFormat("onnx", _write_onnx, ("tf2onnx", "onnxruntime")),
        DeploymentFormat("openvino", _write_openvino, ("openvino",)),
    )
}

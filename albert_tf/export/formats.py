"""The formats of `albert convert`: one table, with what writes each of them and what that needs.

Some formats have the weights of a model, others what it computes, and a SavedModel either: what a
fine-tuned model computes, or the embeddings of any other. TensorFlow is imported by what writes.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from albert_tf.checkpoints.model_folder import EXTRA_ASSETS
from albert_tf.export import weights
from albert_tf.export.quantizations import INT8, NONE, QUANTIZATIONS
from albert_tf.export.runtimes import Step

if TYPE_CHECKING:  # what needs TensorFlow
    from albert_tf.export.signatures import ExportedModel, Signature


@dataclasses.dataclass(frozen=True)
class Format:
    """A format.

    Attributes:
        name: what `--output_format` calls it.
        write_weights: writes the weights of a model; None if it has what the model computes.
        write_model: writes what a model computes to a folder, given a signature of the export, and
            returns what computes a batch with the file; None if it has weights.
        packages: the Python packages that write and check it, of the extra with the name of the
            format; () for none besides TensorFlow.
        has_own_files: whether config and vocabulary have other names, which `write_weights` gives.
        has_task: whether `write_weights` writes heads of fine-tuning.
        is_fixed: whether the file takes one row of full length.
        quantizations: how its weights can be stored.
        files_in: folder for config, vocabulary, labels and record, within the new one.
    """

    name: str
    write_weights: Callable[[weights.Output], None] | None = None
    write_model: Callable[[str, ExportedModel, Signature], Step] | None = None
    packages: tuple[str, ...] = ()
    has_own_files: bool = False
    has_task: bool = True
    is_fixed: bool = False
    quantizations: tuple[str, ...] = (NONE,)
    files_in: str = ""

    def check_packages(self) -> None:
        """Raises ValueError if a package is not installed."""
        for package in self.packages:
            if importlib.util.find_spec(package) is None:
                raise ValueError(
                    f"--output_format={self.name} needs {package}: "
                    f"pip install 'albert-tf2[{self.name}]'"
                )


def _write_saved_model(folder: str, made: ExportedModel, signature: Signature) -> Step:
    from albert_tf.export import saved_model

    return saved_model.write_folder(folder, made, signature)


def _write_tflite(folder: str, made: ExportedModel, signature: Signature) -> Step:
    from albert_tf.export import tflite

    return tflite.write_folder(folder, made, signature)


def _write_onnx(folder: str, made: ExportedModel, signature: Signature) -> Step:
    from albert_tf.export import onnx_openvino

    return onnx_openvino.write_onnx(folder, made, signature)


def _write_openvino(folder: str, made: ExportedModel, signature: Signature) -> Step:
    from albert_tf.export import onnx_openvino

    return onnx_openvino.write_openvino(folder, made, signature)


FORMATS: Mapping[str, Format] = {
    row.name: row
    for row in (
        Format("tensorflow", weights.write_tensorflow),
        Format("huggingface", weights.write_hugging_face, has_own_files=True),
        Format("tf_hub", weights.write_tf_hub, has_own_files=True, has_task=False),
        Format(
            "saved_model",
            weights.write_saved_model,
            _write_saved_model,
            has_task=False,
            files_in=EXTRA_ASSETS,
        ),
        Format("tflite", write_model=_write_tflite, is_fixed=True, quantizations=QUANTIZATIONS),
        Format(
            "onnx",
            write_model=_write_onnx,
            packages=("tf2onnx", "onnxruntime"),
            quantizations=(NONE, INT8),
        ),
        Format("openvino", write_model=_write_openvino, packages=("openvino",)),
    )
}

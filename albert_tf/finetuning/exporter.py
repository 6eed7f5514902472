"""What is exported of a model that was fine-tuned for a task.

Shapes: B batch size, S sequence length.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Protocol

import tensorflow as tf
import tf_keras

from albert_tf.checkpoints import finding
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.signatures import Export, Tensors, token_inputs, token_signatures


class ExportedTask(Protocol):
    """What an export reads of a task; see `FineTuningTask`."""

    labels: tuple[str, ...]

    def predictions(self, outputs: tf.Tensor) -> Mapping[str, tf.Tensor]:
        """Converts the model's outputs to predictions, name → [B, …]."""


class Exporter:
    """Makes the export of a task; by default, of its predictions for tokens.

    Args:
        task: the task.

    Attributes:
        task: the argument.
    """

    def __init__(self, task: ExportedTask) -> None:
        self.task = task

    def served_outputs(self, outputs: tf.Tensor) -> Tensors:
        """Converts the model's outputs to the outputs of the exported model, name → tensor."""
        return dict(self.task.predictions(outputs))

    def serve(self, model: tf_keras.layers.Layer, batch: Tensors) -> Tensors:
        """Returns `served_outputs` of a model for a batch of tokens."""
        return self.served_outputs(model(batch, training=False))

    @property
    def label_files(self) -> dict[str, bytes]:
        """Name → content of `labels.txt`, for the folder of an export; {} without labels."""
        lines = "".join(f"{label}\n" for label in self.task.labels)
        return {finding.LABELS_FILE: lines.encode()} if lines else {}

    def make_export(
        self, model: tf_keras.layers.Layer, max_seq_length: int, folder: RunFolder
    ) -> Export:
        """Returns what is exported: by default, `served_outputs` for inputs of any length.

        Args:
            model: a model of the task's `build_model`, in float32, with its weights loaded.
            max_seq_length: sequence length of serialized examples.
            folder: folder with the record of the run.
        """
        inputs = token_inputs(max_seq_length)
        signatures = token_signatures(inputs, functools.partial(self.serve, model))
        return Export(signatures, self.label_files)

"""What is exported of a classifier: signatures for tokens and raw strings, and a TFLite file.

Shapes: B batch size, K labels.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

import tensorflow as tf
import tf_keras

from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.signatures import (
    Export,
    Signature,
    Tensors,
    token_inputs,
    token_signatures,
)
from albert_tf.checkpoints.text_signature import text_signatures
from albert_tf.finetuning.exporter import Exporter

if TYPE_CHECKING:
    from albert_tf.finetuning.classification.task import Classifier


class ClassifierExporter(Exporter):
    """Makes the export of a classifier, as Google's program does."""

    task: Classifier

    def served_outputs(self, outputs: tf.Tensor) -> Tensors:
        """Returns `probabilities` [B, K] and `predictions` [B]; both are the scores in regression.

        In multi-label tasks, `predictions` are 1 for each predicted label, int32 [B, K].

        `threshold`, the constant of `--threshold_to_export`, is only returned, not applied.
        """
        if self.task.definition.is_regression:
            predictions = outputs[:, 0]
        elif self.task.definition.is_multi_label:
            predictions = tf.cast(outputs > 0, tf.int32)
        else:
            predictions = tf.argmax(outputs, axis=-1, output_type=tf.int32)
        probabilities = self.task.predictions(outputs)["probabilities"]
        served = {"probabilities": probabilities, "predictions": predictions}
        if not math.isnan(self.task.settings.threshold_to_export):
            served["threshold"] = tf.constant(self.task.settings.threshold_to_export, tf.float32)
        return served

    def make_export(
        self, model: tf_keras.layers.Layer, max_seq_length: int, folder: RunFolder
    ) -> Export:
        """Returns an export like that of Google's program, with `labels.txt` and for raw strings.

        With `tflite_quantization`, there is a TFLite file as well.
        """
        call = functools.partial(model, training=False)
        inputs = token_inputs(max_seq_length)
        # Without the pooled output, padding affects the result; see `padding`.
        any_length = self.task.settings.use_pooled_output
        signatures = token_signatures(
            inputs, functools.partial(self.serve, model), any_length=any_length
        )
        if self.task.settings.export_texts:
            pad_to = None if any_length else max_seq_length
            signatures |= text_signatures(
                self.task.tokenizer, call, self._served_texts, max_seq_length, pad_to
            )

        def probabilities(batch: Tensors) -> Tensors:
            return {"probabilities": self.task.predictions(call(batch))["probabilities"]}

        return Export(
            signatures,
            self.label_files,
            Signature(inputs, probabilities),
            self.task.settings.tflite_quantization,
        )

    def _served_texts(self, outputs: tf.Tensor) -> Tensors:
        """Returns `served_outputs`, and the names of the predicted `labels`, string [B].

        In multi-label tasks, these are [B, K], with "" for labels that are not predicted.
        """
        served = self.served_outputs(outputs)
        names = tf.constant(self.task.labels)
        if self.task.definition.is_multi_label:
            served["labels"] = tf.where(served["predictions"] > 0, names, "")
        elif not self.task.definition.is_regression:
            served["labels"] = tf.gather(names, served["predictions"])
        return served

"""What is exported of a model for multiple choice.

Shapes: B batch size, C options, S sequence length.
"""

from __future__ import annotations

import functools

import tensorflow as tf
import tf_keras

from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.signatures import Export, Tensors, token_inputs, token_signatures
from albert_tf.finetuning.exporter import Exporter


class RaceExporter(Exporter):
    """Makes the export of a model that scores options."""

    def served_outputs(self, outputs: tf.Tensor) -> Tensors:
        """Returns `probabilities` [B, C] and `predictions` [B], the indices of the best options."""
        return {
            "probabilities": tf.nn.softmax(outputs),
            "predictions": tf.argmax(outputs, axis=-1, output_type=tf.int32),
        }

    def make_export(
        self, model: tf_keras.layers.Layer, max_seq_length: int, folder: RunFolder
    ) -> Export:
        """Returns an export with inputs [B, C, S], for any number of options C.

        A missing option is a row of zeros. A serialized example contains the concatenated sequences
        of all options, as in Google's records.
        """
        options = tf.TensorSpec([None, None, max_seq_length], tf.int32)
        inputs = dict.fromkeys(token_inputs(max_seq_length), options)
        serve = functools.partial(self.serve, model)
        return Export(token_signatures(inputs, serve, takes_examples=False))

"""What is exported of a model that tags tokens.

Shapes: B batch size, S sequence length, K labels.
"""

from __future__ import annotations

import tensorflow as tf

from albert_tf.checkpoints.signatures import Tensors
from albert_tf.finetuning.exporter import Exporter


class TokenExporter(Exporter):
    """Makes the export of a model that tags tokens."""

    def served_outputs(self, outputs: tf.Tensor) -> Tensors:
        """Returns `probabilities`, float32 [B, S, K], and `predictions`, int32 [B, S]."""
        predictions = self.task.predictions(outputs)["predictions"]
        return {"probabilities": tf.nn.softmax(outputs), "predictions": predictions}

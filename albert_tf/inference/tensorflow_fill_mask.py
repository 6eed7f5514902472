"""Words for masks, computed by a model of TensorFlow.

Shapes: B batch size, P masks, V vocabulary size, K results.
"""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf
import tf_keras

from albert_tf.inference.fill_mask import FillMask


class TensorFlowFillMask(FillMask):
    """Adds what TensorFlow computes."""

    def compute(
        self, model: tf_keras.layers.Layer, batch: Mapping[str, tf.Tensor]
    ) -> Mapping[str, tf.Tensor]:
        """Returns the token ids and probabilities of the best words, [B, P, K] each."""
        logits = model(batch, training=False)["masked_lm_logits"]  # [B, P, V or more]
        count = len(self.is_word)  # V; the embedding table may be larger
        scores = tf.nn.softmax(logits)[:, :, :count] * self.is_word
        best = tf.math.top_k(scores, min(self.top_k, count))
        return {"ids": best.indices, "scores": best.values}

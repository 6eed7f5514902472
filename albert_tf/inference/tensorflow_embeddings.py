"""Embeddings of texts, computed by a model of TensorFlow.

Shapes: B batch size, K size of an embedding.
"""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf
import tf_keras

from albert_tf.checkpoints.sentence_embeddings import embed
from albert_tf.inference.embeddings import Embeddings
from albert_tf.model.poolings import MEAN_LAST_4


class TensorFlowEmbeddings(Embeddings):
    """Adds what TensorFlow computes."""

    def compute(
        self, model: tf_keras.layers.Layer, batch: Mapping[str, tf.Tensor]
    ) -> Mapping[str, tf.Tensor]:
        """Returns the embeddings, float32 [B, K]."""
        has_layers = MEAN_LAST_4 in self.modules.poolings
        outputs = model(dict(batch), training=False, output_hidden_states=has_layers)
        return {"embedding": embed(outputs, batch["input_mask"], self.modules)}

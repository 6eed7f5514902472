"""Embeddings of texts, computed by a model of TensorFlow.

Shapes: B batch size, H hidden size, K size of an embedding after a module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import tensorflow as tf
import tf_keras

from albert_tf.checkpoints.embeddings_export import pool
from albert_tf.checkpoints.sentence_modules import Dense, Normalize
from albert_tf.inference.embeddings import Embeddings
from albert_tf.model.poolings import MEAN_LAST_4


class TensorFlowEmbeddings(Embeddings):
    """Adds what TensorFlow computes."""

    def compute(
        self, model: tf_keras.layers.Layer, batch: Mapping[str, tf.Tensor]
    ) -> Mapping[str, tf.Tensor]:
        """Returns the embeddings, float32 [B, H], or of the size that a module gives them."""
        poolings = self.modules.poolings
        has_layers = MEAN_LAST_4 in poolings
        outputs = model(dict(batch), training=False, output_hidden_states=has_layers)
        pooled = pool(outputs, batch["input_mask"], poolings)
        x = tf.concat([pooled[pooling] for pooling in poolings], -1)  # [B, H · poolings]
        for module in self.modules.others:
            x = apply_module(module, x)  # [B, K]
        return {"embedding": x}


_ACTIVATIONS: Mapping[str, Callable[[tf.Tensor], tf.Tensor]] = {  # of `torch.nn`
    "GELU": tf.nn.gelu,  # the exact one
    "Identity": tf.identity,
    "ReLU": tf.nn.relu,
    "Sigmoid": tf.math.sigmoid,
    "Tanh": tf.math.tanh,
}


def apply_module(module: Dense | Normalize, x: tf.Tensor) -> tf.Tensor:
    """Returns what a module of sentence-transformers makes of embeddings, float32 [B, K]."""
    if isinstance(module, Normalize):
        length = tf.norm(x, axis=-1, keepdims=True)  # [B, 1]
        return x / tf.maximum(length, 1e-12)  # [B, K]
    return _ACTIVATIONS[module.activation](tf.matmul(x, module.kernel) + module.bias)  # [B, K]

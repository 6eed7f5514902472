"""Embeddings of texts from the outputs of an encoder: poolings, which may be normalized.

Letters: B batch size, S sequence length, H hidden size, K size of an embedding.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import tensorflow as tf

from albert_tf.checkpoints.sentence_modules import SentenceModules
from albert_tf.model.poolings import CLS, MAX, MEAN, POOLED

_LAST_LAYERS = 4


def pool(
    outputs: Mapping[str, tf.Tensor | list[tf.Tensor]],
    input_mask: tf.Tensor,
    poolings: Iterable[str],
) -> dict[str, tf.Tensor]:
    """Returns embeddings of texts, pooling → float32 [B, H].

    Args:
        outputs: outputs of an encoder, including `hidden_states` for "mean_last_4".
        input_mask: [B, S], 1 for tokens and 0 for padding, which is ignored.
        poolings: the poolings to compute, out of `model.poolings.POOLINGS`.
    """
    mask = tf.cast(input_mask, tf.float32)[:, :, None]  # [B, S, 1]

    def mean(layers: Iterable[tf.Tensor]) -> tf.Tensor:
        floats = [tf.cast(layer, tf.float32) for layer in layers]
        x = tf.add_n(floats) / len(floats)  # [B, S, H]
        return tf.reduce_sum(x * mask, axis=1) / tf.reduce_sum(mask, axis=1)

    pooled = {}
    for pooling in poolings:
        if pooling == POOLED:
            pooled[pooling] = tf.cast(outputs["pooled_output"], tf.float32)
        elif pooling == MEAN:
            pooled[pooling] = mean([outputs["sequence_output"]])
        elif pooling == CLS:
            pooled[pooling] = tf.cast(outputs["sequence_output"], tf.float32)[:, 0]
        elif pooling == MAX:
            x = tf.cast(outputs["sequence_output"], tf.float32)  # [B, S, H]
            pooled[pooling] = tf.reduce_max(tf.where(mask > 0, x, x.dtype.min), axis=1)
        else:
            pooled[pooling] = mean(outputs["hidden_states"][1:][-_LAST_LAYERS:])
    return pooled


def embed(
    outputs: Mapping[str, tf.Tensor | list[tf.Tensor]],
    input_mask: tf.Tensor,
    modules: SentenceModules,
) -> tf.Tensor:
    """Returns embeddings of texts, float32 [B, K].

    Args:
        outputs: as in `pool`.
        input_mask: as in `pool`.
        modules: how the embeddings are computed.
    """
    pooled = pool(outputs, input_mask, modules.poolings)
    x = tf.concat([pooled[pooling] for pooling in modules.poolings], -1)  # [B, K], H · poolings
    if modules.are_normalized:
        length = tf.norm(x, axis=-1, keepdims=True)  # [B, 1]
        x = x / tf.maximum(length, 1e-12)  # [B, K]
    return x

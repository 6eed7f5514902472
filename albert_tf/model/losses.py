"""The losses of Google's fine-tuning programs, and of multi-label classification.

Each returns one value for each example.

Dimensions: B batch size, S sequence length, K labels.
"""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf


def classification_losses(logits: tf.Tensor, label_ids: tf.Tensor) -> tf.Tensor:
    """Returns each example's cross-entropy, float32 [B], for logits [B, K] and label ids [B]."""
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label_ids, logits=logits)


def multi_label_losses(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Returns each example's mean binary cross-entropy, float32 [B]; PyTorch's BCEWithLogitsLoss.

    Args:
        logits: [B, K].
        labels: [B, K], 1 for labels that are true of the example and 0 for the others.
    """
    targets = tf.cast(labels, logits.dtype)  # [B, K]
    losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=targets, logits=logits)  # [B, K]
    return tf.reduce_mean(losses, axis=-1)  # [B]


def regression_losses(scores: tf.Tensor, label_ids: tf.Tensor) -> tf.Tensor:
    """Returns each example's squared error, float32 [B], for scores [B] and labels [B]."""
    return tf.square(scores - tf.cast(label_ids, scores.dtype))


def span_losses(
    outputs: Mapping[str, tf.Tensor], start_positions: tf.Tensor, end_positions: tf.Tensor
) -> tf.Tensor:
    """Returns the mean cross-entropy of start and end, float32 [B], for `AlbertForSpans`."""
    start = classification_losses(outputs["start_logits"], start_positions)  # [B]
    return (start + classification_losses(outputs["end_logits"], end_positions)) / 2


def answerable_span_losses(
    outputs: Mapping[str, tf.Tensor],
    start_positions: tf.Tensor,
    end_positions: tf.Tensor,
    is_impossible: tf.Tensor,
) -> tf.Tensor:
    """Returns each example's loss, float32 [B], for `AlbertForAnswerableSpans`.

    The loss is half the sum of the cross-entropies of start, end and answerability. The outputs
    must have been computed with `start_positions`. The answer to an unanswerable question starts
    and ends at [CLS].
    """
    start = tf.gather(outputs["start_log_probs"], start_positions, batch_dims=1)  # [B]
    end = tf.gather(outputs["end_log_probs"], end_positions, batch_dims=1)  # [B]
    none = tf.nn.sigmoid_cross_entropy_with_logits(
        labels=tf.cast(is_impossible, tf.float32), logits=outputs["cls_logits"]
    )  # [B]
    return 0.5 * (none - start - end)

"""Training batches as a `tf.data.Dataset`, which prepares them while the model trains."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from albert_tf.finetuning.batching import Batch, Features, Padding, TrainingOrder, training_batches
from albert_tf.training.task import prefetch


def batch_signature(features: Features) -> dict[str, tf.TensorSpec]:
    """Returns name → TensorSpec of the features of a batch, with all dimensions unknown."""
    batch = features.batch(np.zeros(1, np.int64), int(features.lengths[0]))
    return {
        name: tf.TensorSpec([None] * value.ndim, tf.as_dtype(value.dtype))
        for name, value in batch.items()
    }


def training_dataset(
    features: Features,
    order: TrainingOrder,
    padding: Padding,
    start_step: int = 0,
    rows: slice = slice(None),
) -> tf.data.Dataset:
    """Returns the batches of `batching.training_batches` as a prefetching dataset.

    Args:
        features: the features of the examples.
        order: how the examples are shuffled and batched.
        padding: how batches are padded.
        start_step: step of the first batch.
        rows: the rows of each batch that this process trains on; by default, all.
    """

    def make() -> Iterator[Batch]:
        for batch in training_batches(features, order, padding, start_step):
            yield {name: value[rows] for name, value in batch.items()}

    signature = batch_signature(features)
    return prefetch(tf.data.Dataset.from_generator(make, output_signature=signature))

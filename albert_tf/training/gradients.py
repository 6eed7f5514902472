"""Gradients of a batch: their global norm, as in Google's programs, and their clipping."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

CLIP_NORM = 1.0


class Gradients(NamedTuple):
    """Gradients, keyed by the index of the variable in `TrainStep.variables`.

    Variables that the loss does not depend on are omitted and not updated.

    Attributes:
        dense: index → gradient, in the shape of the variable.
        embedding: the same for embedding tables. TensorFlow computes their gradients as
            `tf.IndexedSlices` with a row for each token of the batch; here they are dense.
    """

    dense: dict[int, tf.Tensor]
    embedding: dict[int, tf.Tensor]


def global_norm(gradients: Gradients, squares: tf.Tensor) -> tf.Tensor:
    """Returns the global norm for clipping as computed by Google's programs, float32 scalar.

    They call `tf.clip_by_global_norm`, which treats each row of `tf.IndexedSlices` separately: the
    gradient of an embedding table contributes the squares of its rows, one row for each token of
    the batch, without first adding up the rows of the same word. These squares are therefore
    computed in each micro-batch and added up. All other gradients are squared after summation.

    Args:
        gradients: gradients of the batch.
        squares: sum of the squared rows of the embedding gradients, float32 scalar.
    """
    dense = [tf.reduce_sum(tf.square(gradient)) for gradient in gradients.dense.values()]
    # Not `tf.add_n`: it begins with any input whose memory it can reuse, which differs between runs
    # if another operation reads `squares` as well.
    return tf.sqrt(tf.reduce_sum(tf.stack([squares, *dense])))


def clipping_factor(norm: tf.Tensor) -> tf.Tensor:
    """Returns the factor that scales gradients of the given global norm to at most CLIP_NORM."""
    return CLIP_NORM * tf.minimum(1.0 / norm, 1.0 / CLIP_NORM)


def scale_gradients(gradients: Gradients, factor: tf.Tensor) -> Gradients:
    """Returns gradients times a scalar; a factor of 0 turns even non-finite values into 0."""
    scaled: Gradients = tf.nest.map_structure(
        lambda x: tf.math.multiply_no_nan(x, factor), gradients
    )
    return scaled

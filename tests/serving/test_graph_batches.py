"""Tests of batches inside graphs, with a model that returns what it was called with."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.serving import graph_batches
from albert_tf.serving.graph_batches import BATCH_SIZE as SIZE


def describe(batch):
    """Returns a number that depends on all tokens of a row, and the shape of the row's batch."""
    ids = batch["input_ids"] * batch["input_mask"]
    shape = tf.tile(tf.shape(ids)[None], [tf.shape(ids)[0], 1])
    return {"sums": tf.reduce_sum(ids, 1), "shapes": shape, "rows": [batch["input_ids"]]}


def features_of(count, length):
    rng = np.random.default_rng(count)
    lengths = rng.integers(0, length + 1, count)
    mask = np.int32(np.arange(length) < lengths[:, None])
    ids = rng.integers(1, 100, (count, length), np.int32)
    return {"input_ids": tf.constant(ids), "input_mask": tf.constant(mask)}, lengths


def compute(features):
    specs = [tf.TensorSpec([None] * x.shape.rank, x.dtype) for x in features.values()]

    @tf.function(input_signature=specs)
    def run(*values):
        batch = dict(zip(features, values, strict=True))
        return graph_batches.compute(describe, batch)

    return run(*features.values())


@pytest.mark.parametrize("count", [0, 1, SIZE, SIZE + 1, 3 * SIZE - 1])
def test_all_rows_are_computed_in_their_order_in_batches_of_limited_size(count):
    features, _ = features_of(count, 7)
    outputs = compute(features)
    expected = describe(features)
    np.testing.assert_array_equal(outputs["sums"], expected["sums"])
    np.testing.assert_array_equal(outputs["rows"][0], features["input_ids"])
    sizes = [min(SIZE, count - row // SIZE * SIZE) for row in range(count)]
    np.testing.assert_array_equal(
        outputs["shapes"], np.reshape([(size, 7) for size in sizes], (-1, 2))
    )


def test_rows_of_similar_length_are_cut_to_the_longest_of_them():
    def model(batch):
        outputs = describe(batch)
        return outputs["sums"], outputs["shapes"]

    features, lengths = features_of(2 * SIZE + 3, 20)
    sums, shapes = tf.function(graph_batches.compute)(model, features, is_trimmed=True)
    np.testing.assert_array_equal(sums, describe(features)["sums"])
    descending = np.argsort(-lengths, kind="stable")
    widths = np.empty(len(lengths))
    for begin in range(0, len(lengths), SIZE):
        rows = descending[begin : begin + SIZE]
        widths[rows] = lengths[rows].max()
    np.testing.assert_array_equal(shapes[:, -1], widths)
    assert len(set(widths)) == 3

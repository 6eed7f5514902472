"""Embeddings by pooling, beside plain formulas."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from albert_tf.export.embeddings import pool, poolings_of


def test_embeddings_are_poolings_of_the_last_layer_or_the_last_four():
    rng = np.random.default_rng(7)
    states = rng.normal(size=(7, 2, 5, 3)).astype(np.float32)  # embeddings and 6 layers, [B, S, H]
    pooled = rng.normal(size=(2, 3)).astype(np.float32)
    outputs = {
        "hidden_states": [tf.constant(layer) for layer in states],
        "sequence_output": tf.constant(states[-1]),
        "pooled_output": tf.constant(pooled),
    }
    lengths = 5, 2
    mask = tf.sequence_mask(lengths, 5, tf.int32)
    found = pool(outputs, mask, ("mean", "mean_last_4", "pooled", "cls", "max"))
    for row, length in enumerate(lengths):
        expected = {
            "mean": states[6, row, :length].mean(0),
            "mean_last_4": states[3:, row, :length].mean((0, 1)),
            "pooled": pooled[row],
            "cls": states[6, row, 0],
            "max": states[6, row, :length].max(0),
        }
        for name, vector in expected.items():
            np.testing.assert_allclose(found[name][row], vector, rtol=1e-5)


def test_the_pooled_output_needs_a_pooler():
    assert poolings_of({"pooler", "encoder"}) == ("mean", "mean_last_4", "pooled")
    assert poolings_of({"encoder"}) == ("mean", "mean_last_4")

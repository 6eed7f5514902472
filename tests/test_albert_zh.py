"""The differences of brightmart's layout; its goldens are in test_modeling.py."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.model import modeling
from albert_tf.model.modeling import AlbertEncoder


def zh_config(tiny_config, ln_type):
    return dataclasses.replace(
        tiny_config, layout="albert_zh", ln_type=ln_type, num_hidden_groups=1
    )


class SegmentLookup(modeling.Embeddings):
    def call(self, segment_ids):
        return self.embed_segments(segment_ids)


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_the_gradient_of_the_segments_is_dense_and_summed_in_float32(tiny_config, policy):
    """In bfloat16, a sum of ones would end at 256."""
    layer = SegmentLookup(zh_config(tiny_config, "postln"), dtype=policy)
    with tf.GradientTape() as tape:
        found = layer(tf.ones((8, 500), tf.int32))
    np.testing.assert_array_equal(found[3, 7], tf.cast(layer.segment_table[1], found.dtype))
    gradient = tape.gradient(found, layer.segment_table)
    assert isinstance(gradient, tf.Tensor)
    np.testing.assert_array_equal(gradient, np.outer([0, 4000, 0], np.ones(12)))


def test_pre_ln_can_be_computed_at_given_positions_only(tiny_config, tiny_batch):
    config = zh_config(tiny_config, "preln")
    encoder, positions = AlbertEncoder(config), tiny_batch["masked_lm_positions"]
    everywhere = encoder(tiny_batch)
    there = encoder(tiny_batch, output_positions=positions)
    np.testing.assert_allclose(there["pooled_output"], everywhere["pooled_output"], atol=1e-6)
    expected = tf.gather(everywhere["sequence_output"], positions, batch_dims=1)
    np.testing.assert_allclose(there["position_output"], expected, atol=1e-6)

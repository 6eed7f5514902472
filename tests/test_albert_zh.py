"""The differences of brightmart's layout; its goldens are in test_modeling.py."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints.families import variable_name
from albert_tf.model import modeling
from albert_tf.model.modeling import AlbertEncoder


def zh_config(tiny_config, ln_type):
    return dataclasses.replace(
        tiny_config, layout="albert_zh", ln_type=ln_type, num_hidden_groups=1
    )


@pytest.mark.parametrize("ln_type", ["postln", "preln"])
def test_names_and_shapes_match_its_checkpoints(tiny_config, ln_type):
    encoder = AlbertEncoder(zh_config(tiny_config, ln_type))
    assert encoder.embedding_projection is None
    shapes = {variable_name(v): tuple(v.shape) for v in encoder.variables}
    embeddings = {n.split("/")[2]: s for n, s in shapes.items() if "/embeddings/" in n}
    assert embeddings == {
        "word_embeddings": (97, 8),
        "word_embeddings_2": (8, 12),
        "token_type_embeddings": (3, 12),
        "position_embeddings": (13, 12),
        "LayerNorm": (12,),
    }
    layer = "bert/encoder/layer_shared"
    assert {n: s for n, s in shapes.items() if n.startswith(layer) and "kernel" in n} == {
        f"{layer}/attention/self/query/kernel": (12, 12),
        f"{layer}/attention/self/key/kernel": (12, 12),
        f"{layer}/attention/self/value/kernel": (12, 12),
        f"{layer}/attention/output/dense/kernel": (12, 12),
        f"{layer}/intermediate/dense/kernel": (12, 20),
        f"{layer}/output/dense/kernel": (20, 12),
    }


def test_one_matrix_projects_words_to_the_hidden_size_and_back(tiny_config, tiny_batch):
    layer = modeling.Embeddings(zh_config(tiny_config, "postln"))
    ids = tiny_batch["input_ids"]
    words, projection = layer.word_table.numpy(), layer.projection.numpy()
    others = layer.position_table[:11] + layer.segment_table[0]
    expected = layer.norm(words[ids] @ projection + others)
    np.testing.assert_allclose(layer(ids), expected, atol=1e-5)
    x = np.random.default_rng(3).normal(size=(5, 7, 12)).astype(np.float32)
    np.testing.assert_allclose(layer.logits(tf.constant(x)), x @ projection.T @ words.T, atol=1e-6)


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


def test_pre_ln_does_not_normalize_the_residual(tiny_config):
    """With zero kernels a pre-LN block is the identity; a post-LN block still normalizes."""
    x = tf.random.stateless_normal((5, 11, 12), (1, 2))
    for ln_type, is_unchanged in (("preln", True), ("postln", False)):
        config = zh_config(tiny_config, ln_type)
        block = AlbertEncoder(config).blocks[0]
        for variable in block.variables:
            if "kernel" in variable.name:
                variable.assign(tf.zeros_like(variable))
        assert np.allclose(block(x), x, atol=1e-6) == is_unchanged


def test_pre_ln_can_be_computed_at_given_positions_only(tiny_config, tiny_batch):
    config = zh_config(tiny_config, "preln")
    encoder, positions = AlbertEncoder(config), tiny_batch["masked_lm_positions"]
    everywhere = encoder(tiny_batch)
    there = encoder(tiny_batch, output_positions=positions)
    np.testing.assert_allclose(there["pooled_output"], everywhere["pooled_output"], atol=1e-6)
    expected = tf.gather(everywhere["sequence_output"], positions, batch_dims=1)
    np.testing.assert_allclose(there["position_output"], expected, atol=1e-6)

"""The costs of a step, compared with the traced model."""

from __future__ import annotations

import dataclasses

import pytest
import tensorflow as tf

from albert_tf import costs
from albert_tf.config import AlbertConfig
from albert_tf.costs import StepShape
from albert_tf.modeling import AlbertForPretraining

SHAPE = StepShape(rows=5, length=14, predictions=4)
CONFIG = AlbertConfig(
    vocab_size=97,
    embedding_size=16,
    hidden_size=24,
    num_hidden_layers=3,
    num_attention_heads=3,
    intermediate_size=40,
    max_position_embeddings=32,
)
CONFIGS = {
    "google": CONFIG,
    "two groups of two blocks": dataclasses.replace(CONFIG, num_hidden_groups=2, inner_group_num=2),
    "equal sizes": dataclasses.replace(CONFIG, embedding_size=24),
    "albert_zh": dataclasses.replace(CONFIG, layout="albert_zh"),
}


def matmul_flops(graph):
    """Returns the FLOPs of all matmuls in a graph and in the functions that it calls."""
    total = 0
    for op in graph.get_operations():
        if op.type in ("MatMul", "BatchMatMulV2"):
            is_transposed = op.get_attr("transpose_a" if op.type == "MatMul" else "adj_x")
            summed = op.inputs[0].shape[-2 if is_transposed else -1]
            total += 2 * op.outputs[0].shape.num_elements() * summed
        elif op.type in ("PartitionedCall", "StatefulPartitionedCall"):
            total += matmul_flops(graph._get_function(op.get_attr("f").name).graph)
    return total


@pytest.mark.ci
@pytest.mark.parametrize("name", CONFIGS)
def test_flops_and_parameters_are_those_of_the_traced_model(name):
    config = CONFIGS[name]
    model = AlbertForPretraining(config)
    tokens, masked = (SHAPE.rows, SHAPE.length), (SHAPE.rows, SHAPE.predictions)
    model(tf.ones(tokens, tf.int32), masked_lm_positions=tf.zeros(masked, tf.int32))

    @tf.function(input_signature=[tf.TensorSpec(tokens, tf.int32), tf.TensorSpec(masked, tf.int32)])
    def forward(input_ids, positions):
        return model(input_ids, masked_lm_positions=positions)

    @tf.function(input_signature=[tf.TensorSpec(tokens, tf.int32)])
    def encode(input_ids):
        return model.encoder(input_ids)

    flops = matmul_flops(encode.get_concrete_function().graph)
    assert costs.encoder_flops(config, SHAPE) == flops
    flops = costs.step_flops(config, SHAPE)
    assert flops == 3 * matmul_flops(forward.get_concrete_function().graph)
    weights = sum(int(tf.size(variable)) for variable in model.trainable_variables)
    assert costs.count_parameters(config) == weights


def test_the_state_holds_the_moments():
    parameters = costs.count_parameters(CONFIG)
    assert costs.state_bytes(CONFIG, 4) == 16 * parameters  # and the gradients
    assert costs.state_bytes(CONFIG, 2) == 18 * parameters  # and a copy in bfloat16

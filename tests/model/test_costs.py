"""The costs of a step, compared with the traced model."""

from __future__ import annotations

import dataclasses

import pytest
import tensorflow as tf

from albert_tf.model import costs
from albert_tf.model.config import AlbertConfig
from albert_tf.model.modeling import AlbertForPretraining
from tests.conftest import TINY_SHAPE

SHAPE = costs.StepShape(rows=5, length=11, predictions=7)
CONFIG = AlbertConfig(**TINY_SHAPE | {"num_hidden_groups": 1})


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
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"num_hidden_groups": 2, "inner_group_num": 2},
        {"embedding_size": 12},
        {"layout": "albert_zh"},
    ],
)
def test_flops_and_parameters_are_those_of_the_traced_model(changes):
    config = dataclasses.replace(CONFIG, **changes)
    model = AlbertForPretraining(config)
    inputs = {
        "input_ids": tf.TensorSpec((SHAPE.rows, SHAPE.length), tf.int32),
        "masked_lm_positions": tf.TensorSpec((SHAPE.rows, SHAPE.predictions), tf.int32),
    }
    forward = tf.function(model).get_concrete_function(inputs)
    encode = tf.function(model.encoder).get_concrete_function(inputs["input_ids"])
    assert costs.step_flops(config, SHAPE) == 3 * matmul_flops(forward.graph)
    assert costs.encoder_flops(config, SHAPE) == matmul_flops(encode.graph)
    weights = sum(int(tf.size(variable)) for variable in model.trainable_variables)
    assert costs.count_parameters(config) == weights


def test_the_state_has_weights_gradients_moments_and_a_copy_in_bfloat16():
    parameters = costs.count_parameters(CONFIG)
    assert costs.state_bytes(CONFIG, 4) == 16 * parameters
    assert costs.state_bytes(CONFIG, 2) == 18 * parameters

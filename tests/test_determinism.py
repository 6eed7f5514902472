"""Training twice on the same CPU gives the same bits: no sum depends on which thread is first.

`AddN` begins with the first input whose memory it can reuse. If that memory is read by another
operation as well, this depends on which one is first, and with it the order of the sum.
"""

from __future__ import annotations

import collections

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.model import config
from tests.conftest import TINY_SHAPE
from tests.training.distributed_steps import batch_of, make_step, pretraining_task

MAY_UPDATE = tf.constant(True)
NO_STOP = tf.constant(False)


# The results of these operations are parts of their input's memory, or all of it.
SHARED_MEMORY = {"ExpandDims", "Identity", "Reshape", "Slice", "Split", "Squeeze", "StridedSlice"}
SHARED_MEMORY |= {"SplitV", "Unpack", "Placeholder"}


def racing_sums(graph_def):
    """Returns the names of the sums of a graph and its functions whose order may differ."""
    functions = [function.node_def for function in graph_def.library.function]
    return [name for nodes in [graph_def.node, *functions] for name in racing_sums_of(nodes)]


def racing_sums_of(nodes):
    """Yields the names of these sums among the nodes of one graph or function."""
    operations = {node.name: node.op for node in nodes}
    # Control inputs, as in `^name`, read nothing. `x:0` and `x` are the same tensor of a graph.
    read = [
        name.removesuffix(":0") for node in nodes for name in node.input if not name.startswith("^")
    ]
    counts = collections.Counter(read)
    for node in nodes:
        # The order of two summands does not matter.
        if node.op == "AddN" and node.attr["N"].i > 2:
            inputs = [name.removesuffix(":0") for name in node.input if not name.startswith("^")]
            # The arguments of a function have no node in it, and belong to its caller.
            producers = {operations.get(name.split(":")[0], "Placeholder") for name in inputs}
            if producers & SHARED_MEMORY or any(counts[name] > 1 for name in inputs):
                yield node.name


# Sums of three gradients, one from each layer.
CONFIG = config.AlbertConfig(**TINY_SHAPE | {"num_hidden_groups": 1})


def tensors_of(batch):
    return {name: tf.constant(value) for name, value in batch.items()}


@pytest.mark.ci
@pytest.mark.parametrize(
    "case",
    [
        {},
        {"optimizer": "lamb", "precision_name": "bfloat16", "micro_batches": 3},
        {"recompute": True, "clip_per_replica": True},
    ],
    ids=str,
)
def test_no_sum_of_a_step_depends_on_the_order_of_threads(case):
    step = make_step(pretraining_task(CONFIG), **case)
    batch = tensors_of(batch_of(0))
    concrete = step.function.get_concrete_function(batch, MAY_UPDATE, NO_STOP)
    assert racing_sums(concrete.graph.as_graph_def()) == []


@pytest.mark.ci
def test_the_same_steps_give_the_same_bits():
    batches = [tensors_of(batch_of(number)) for number in range(3)]
    step, trained = make_step(pretraining_task(CONFIG)), []
    variables = [*step.variables, *step.optimizer.variables]
    start = [variable.numpy() for variable in variables]
    for _ in range(2):
        for variable, value in zip(variables, start, strict=True):
            variable.assign(value)
        norms = []
        for batch in batches * 5:
            result = step.function(batch, MAY_UPDATE, NO_STOP)
            norms.append(result.gradient_norm.numpy())
        trained.append([np.stack(norms), *(weight.numpy() for weight in step.variables)])
    for value, expected in zip(*trained, strict=True):
        np.testing.assert_array_equal(value, expected)

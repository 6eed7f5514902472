"""Shared layers applied repeatedly: the same results, traced once, with and without recomputing."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from albert_tf import ops
from albert_tf.repeated import Weight, apply_repeatedly

N, H = 55, 12


class Layer(tf_keras.layers.Layer):
    """A layer with dropout, two weights of its own, and one that another library's layer reads."""

    kernel, gamma = Weight(), Weight()

    def __init__(self):
        super().__init__()
        kernel = tf.random.stateless_normal((H, H), (3, 4))
        self.kernel = self.add_weight("kernel", (H, H))
        self.kernel.assign(kernel)
        self.gamma = self.add_weight("gamma", (H,), initializer="ones")
        self.foreign = tf_keras.layers.Dense(
            H, kernel_initializer=tf_keras.initializers.Constant(kernel)
        )
        self.foreign.build((None, H))

    def call(self, x, seed):
        y = tf.matmul(x, self.kernel) + self.foreign(x)
        return ops.add_and_norm(y, x, self.gamma, tf.zeros(H), 0.3, seed)


@pytest.fixture
def layer():
    return Layer()


@pytest.fixture
def x():
    return tf.random.stateless_normal((N, H), (1, 2), stddev=1.5)


def test_shared_layers_compute_the_same_with_and_without_gradient_checkpointing(layer, x):
    """The same as calling the layer repeatedly, with dropout."""
    seeds = tf.constant(((1, 2), (3, 4)))

    def run(make_apply):
        with tf.GradientTape() as tape:
            tape.watch(x)
            apply = make_apply()
            y = apply(layer, apply(layer, x, seed=seeds[0]), seed=seeds[1])
            loss = tf.reduce_sum(tf.sin(y))
        gradients = tape.gradient(loss, [x, *layer.trainable_variables])
        return y, *map(tf.convert_to_tensor, gradients)

    expected = run(lambda: lambda layer, x, seed: layer(x, seed))
    assert len(expected) == 6
    for is_recomputed in (False, True):
        for wrap in (tf.function, lambda function: function):
            found = wrap(lambda f=is_recomputed: run(lambda: apply_repeatedly([layer] * 2, f)))()
            for ours, theirs in zip(found, expected, strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-4)


def test_a_shared_layer_is_traced_once_and_its_weights_are_read_once(layer, x):
    @tf.function
    def run(x):
        apply = apply_repeatedly([layer] * 5)
        for _ in range(5):
            x = apply(layer, x, seed=tf.constant((1, 2)))
        return x

    operations = run.get_concrete_function(x).graph.get_operations()
    assert [operation.type for operation in operations].count("ReadVariableOp") == 2
    called = {operation.get_attr("f").name for operation in operations if "Call" in operation.type}
    assert len(called) == 1


@pytest.mark.parametrize("is_recomputed", [False, True])
def test_the_gradients_of_a_shared_kernel_are_added_up_one_call_at_a_time(layer, x, is_recomputed):
    """So that they need not be kept until the last one is there."""

    @tf.function
    def run(x):
        with tf.GradientTape() as tape:
            apply = apply_repeatedly([layer] * 5, is_recomputed)
            for _ in range(5):
                x = apply(layer, x, seed=tf.constant((1, 2)))
        return tape.gradient(x, [type(layer).kernel.variable(layer), *layer.foreign.variables])

    operations = run.get_concrete_function(x).graph.get_operations()
    sums = [op for op in operations if op.type == "AddN" and op.outputs[0].shape == (H, H)]
    assert len(sums) <= 1  # that of the other library's layer


def test_a_weight_is_a_variable_outside_of_shared_calls(layer):
    assert isinstance(layer.kernel, tf.Variable)
    assert isinstance(Layer.kernel, Weight)
    del layer.kernel
    with pytest.raises(AttributeError, match="Layer has no 'kernel'"):
        layer.kernel  # noqa: B018

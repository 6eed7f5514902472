"""Dynamic loss scaling in float16."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from albert_tf.training.loss_scale import LossScale


def one_step(scale, weight, factor):
    """Minimizes factor · mean(weight) in float16 by one step, in a graph like training."""

    @tf.function
    def step(factor):
        with tf.GradientTape() as tape:
            loss = scale.scale(factor * tf.reduce_mean(tf.cast(weight, tf.float16)))
        gradients = scale.unscale([tape.gradient(loss, weight), None])
        assert gradients[1] is None
        is_finite = tf.reduce_all(tf.math.is_finite(gradients[0]))
        weight.assign_sub(tf.math.multiply_no_nan(gradients[0], tf.cast(is_finite, tf.float32)))
        scale.update(is_finite)

    step(tf.constant(factor, tf.float16))


def test_small_gradients_do_not_underflow_and_are_unscaled():
    for initial, expected in ((2.0**15, -(2.0**-26)), (1.0, 0.0)):
        scale, weight = LossScale(initial), tf.Variable(tf.zeros((64,)))
        one_step(scale, weight, 2.0**-20)
        np.testing.assert_array_equal(weight, np.full(64, expected))


def test_an_overflow_skips_the_step_and_halves_the_scale():
    scale, weight = LossScale(initial=8.0), tf.Variable((1.0, 2.0))
    one_step(scale, weight, 10000.0)  # 8 · 10000 overflows float16
    np.testing.assert_array_equal(weight, (1.0, 2.0))
    assert float(scale.value) == 4.0
    one_step(scale, weight, 4096.0)
    np.testing.assert_array_equal(weight, (1.0 - 2048, 2.0 - 2048))
    assert float(scale.value) == 4.0


def test_the_scale_grows_after_consecutive_good_steps_and_stays_in_range():
    scale = LossScale(initial=4.0, growth_steps=3, minimum=2.0)
    values = []
    for is_good in (True, True, False, True, True, True, True, False, False, False):
        scale.update(tf.constant(is_good))
        values.append(float(scale.value))
    assert values == [4, 4, 2, 2, 2, 4, 4, 2, 2, 2]
    largest = LossScale(initial=2.0**127, growth_steps=1)
    largest.update(tf.constant(True))
    assert float(largest.value) == 2.0**127


def test_gradients_of_embeddings_stay_sparse():
    scale = LossScale(initial=16.0)
    slices = tf.IndexedSlices(tf.constant(((16.0, 32.0),)), tf.constant((3,)), tf.constant((7, 2)))
    (found,) = scale.unscale([slices])
    assert isinstance(found, tf.IndexedSlices)
    np.testing.assert_array_equal(found.values, ((1.0, 2.0),))
    np.testing.assert_array_equal(found.indices, slices.indices)

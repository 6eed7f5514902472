"""The precision chosen for each kind of hardware, and loss scaling for float16."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from albert_tf.training import precision
from albert_tf.training.precision import LossScale


@pytest.fixture
def no_devices(monkeypatch):
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: [])
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [])


@pytest.mark.parametrize(
    ("flags", "expected", "reason"),
    [
        ("fpu avx2 amx_tile amx_bf16 avx512_bf16", "bfloat16", "AMX"),
        ("fpu avx512f avx512_bf16 avx512_fp16", "bfloat16", "AVX-512"),
        ("fpu avx2 avx512f avx512_vnni", "float32", "does not"),
        ("", "float32", "does not"),
    ],
)
def test_cpus_use_bfloat16_if_they_support_it(no_devices, monkeypatch, flags, expected, reason):
    monkeypatch.setattr(precision, "_read_cpu_info", lambda: f"flags\t\t: {flags}\nbugs\t:\n")
    found, why = precision.resolve("auto")
    assert found == expected
    assert reason in why


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        ([(9, 0)], "bfloat16"),
        ([(8, 0)], "bfloat16"),
        ([(7, 5)], "float16"),
        ([(7, 0)], "float16"),
        ([(6, 1)], "float32"),
        ([None], "float32"),
        ([(9, 0), (7, 5)], "float16"),
    ],
)
def test_gpus_use_the_precision_of_the_least_capable_one(monkeypatch, capabilities, expected):
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: [])
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: capabilities)
    monkeypatch.setattr(
        tf.config.experimental,
        "get_device_details",
        lambda gpu: {} if gpu is None else {"compute_capability": gpu},
    )
    assert precision.resolve("auto")[0] == expected


def test_tpus_use_bfloat16(monkeypatch):
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: ["TPU:0"])
    assert precision.resolve("auto")[0] == "bfloat16"


def test_an_explicit_precision_is_used():
    for name in ("float32", "bfloat16", "float16"):
        assert precision.resolve(name) == (name, f"--precision={name}")


def test_precisions_other_than_googles_say_how_to_get_its_numbers():
    assert precision.difference("float32") == ""
    assert "about 1e-3; --precision=float32 gives Google's" in precision.difference("bfloat16")


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16"])
def test_models_compute_in_the_precision_and_keep_float32_weights(name):
    precision.apply(name)
    try:
        assert precision.current() == name
        layer = tf_keras.layers.Dense(3)
        result = layer(tf.ones((2, 5)))
    finally:
        precision.apply("float32")
    assert result.dtype == tf.as_dtype(name)
    assert layer.kernel.dtype == tf.float32


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

"""Tests that OpenVINO computes the same as TensorFlow."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.serving import openvino_engine

SIGNATURE = {
    "input_ids": tf.TensorSpec([None, None], tf.int32),
    "unused": tf.TensorSpec([None], tf.int32),
    "scale": tf.TensorSpec([None], tf.float32),
}
BATCH = {
    "input_ids": np.array([[3, 1, 2], [2, 2, 0]], np.int32),
    "unused": np.zeros(2, np.int32),
    "scale": np.array([0.5, 3.0], np.float32),
}


@pytest.fixture(name="step")
def make_step():
    kernel = tf.Variable(np.random.default_rng(5).normal(size=(5, 7)).astype(np.float32))

    def step(batch):
        logits = tf.gather(kernel, batch["input_ids"]) * batch["scale"][:, None, None]  # [B, S, 7]
        # Two names for the same tensor, as in regression.
        return {"scores": logits, "again": logits, "best": tf.argmax(logits, -1, tf.int32)}

    return step


def test_outputs_have_the_same_names_and_values(step):
    pytest.importorskip("openvino", reason="openvino is an extra")
    run = openvino_engine.compile_step(step, SIGNATURE)
    for batch in (BATCH, {name: value[:1] for name, value in BATCH.items()}):
        found, wanted = run(batch), step(batch)
        assert found.keys() == wanted.keys()
        for name, value in wanted.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-6)
            assert found[name].dtype == value.dtype.as_numpy_dtype


def test_weights_are_those_of_the_time_of_compilation():
    """TensorFlow moves and frees the memory of weights, also without an assignment."""
    pytest.importorskip("openvino", reason="openvino is an extra")
    kernel = tf.Variable(np.random.default_rng(6).normal(size=(5, 64)).astype(np.float32))
    run = openvino_engine.compile_step(
        lambda batch: {"x": tf.gather(kernel, batch["ids"]) + kernel[0]},
        {"ids": tf.TensorSpec([None], tf.int32)},
    )
    batch = {"ids": np.arange(5, dtype=np.int32)}
    wanted = kernel.numpy() + kernel.numpy()[0]
    kernel.assign(tf.zeros_like(kernel))
    kept = [np.full((5, 64), 7, np.float32) for _ in range(1000)]  # reuses what is free
    np.testing.assert_allclose(run(batch)["x"], wanted, rtol=1e-6)
    assert len(kept) == 1000


def test_unsupported_operations_are_reported():
    pytest.importorskip("openvino", reason="openvino is an extra")
    with pytest.raises(openvino_engine.ConversionError, match=r"use engine=tensorflow: .*Betainc"):
        openvino_engine.compile_step(
            lambda batch: {"y": tf.math.betainc(batch["x"], batch["x"], batch["x"])},
            {"x": tf.TensorSpec([None])},
        )


NEW_PROCESS = """
import logging, signal, sys, threading, absl.logging, tensorflow as tf
from albert_tf.serving import openvino_engine
absl.logging.use_absl_handler()
handlers = list(logging.getLogger().handlers)
steps = [openvino_engine.compile_step(lambda batch: batch, {"x": tf.TensorSpec([None])})]
print(sys.modules.get("openvino_telemetry"), logging.getLogger().handlers == handlers)
thread = threading.Thread(target=steps.clear)
thread.start()
thread.join()
signal.signal(signal.SIGTERM, lambda *_: print("signal handled"))
signal.raise_signal(signal.SIGTERM)
"""


@pytest.mark.slow
def test_openvino_leaves_the_process_as_it_is():
    """It reports nothing to its makers, the log continues, and a released step can be forgotten."""
    pytest.importorskip("openvino", reason="openvino is an extra")
    done = subprocess.run([sys.executable, "-c", NEW_PROCESS], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "None True\nsignal handled\n"), done.stderr


def test_shared_weights_are_stored_once():
    openvino = pytest.importorskip("openvino", reason="openvino is an extra")
    weights = np.random.default_rng(5).normal(size=(2, 5, 5)).astype(np.float32)
    shared, other = map(tf.Variable, weights)

    @tf.function(input_signature=[tf.TensorSpec([None, 5])], autograph=False)
    def step(x):
        for kernel in (shared, shared, other, shared):
            x = tf.tanh(tf.matmul(x, kernel))
        return x

    model = openvino.convert_model(step.get_concrete_function())

    def kernels():
        nodes = [node for node in model.get_ops() if node.get_type_name() == "Constant"]
        return [node for node in nodes if tuple(node.get_output_shape(0)) == (5, 5)]

    assert len(kernels()) == 4  # otherwise, sharing them has become unnecessary
    openvino_engine.share_weights(model)
    assert len(kernels()) == 2
    x = np.random.default_rng(6).normal(size=(3, 5)).astype(np.float32)
    found = openvino.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})(x)[0]
    np.testing.assert_allclose(found, step(x), rtol=1e-5, atol=1e-6)


def test_a_missing_package_is_reported(step, monkeypatch):
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(ValueError, match=r"pip install 'albert-tf2\[openvino\]'"):
        openvino_engine.compile_step(step, SIGNATURE)

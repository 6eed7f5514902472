"""OpenVINO computes the same as TensorFlow; tests/test_folders_and_doors.py has whole models."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.export import onnx_openvino

openvino = pytest.importorskip("openvino", reason="openvino is an extra")

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


@pytest.fixture(autouse=True, scope="module")
def _eager():
    """Replaces the folder's fixture, which computes eagerly and hides OpenVINO."""


def test_outputs_have_the_names_and_values_of_the_time_of_compilation():
    """TensorFlow moves and frees the memory of weights, also without an assignment."""
    kernel = tf.Variable(np.random.default_rng(5).normal(size=(5, 64)).astype(np.float32))

    def step(batch):
        logits = tf.gather(kernel, batch["input_ids"]) * batch["scale"][:, None, None]  # [B, S, 64]
        # Two names for the same tensor, as in regression.
        return {"scores": logits, "again": logits, "best": tf.argmax(logits, -1, tf.int32)}

    run = onnx_openvino.compile_with_openvino(step, SIGNATURE)
    batches = [BATCH, {name: value[:1] for name, value in BATCH.items()}]
    expected = [{n: x.numpy() for n, x in step(batch).items()} for batch in batches]
    kernel.assign(tf.zeros_like(kernel))
    kept = [np.full((5, 64), 7, np.float32) for _ in range(1000)]  # reuses what is free
    for batch, wanted in zip(batches, expected, strict=True):
        found = run(batch)
        assert found.keys() == wanted.keys()
        for name, value in wanted.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-6)
            assert found[name].dtype == value.dtype
    assert len(kept) == 1000


def test_shared_weights_are_stored_once():
    weights = np.random.default_rng(5).normal(size=(2, 5, 5)).astype(np.float32)
    shared, other = map(tf.Variable, weights)

    @tf.function(input_signature=[tf.TensorSpec([None, 5])], autograph=False)
    def step(x):
        for kernel in (shared, shared, other, shared):
            x = tf.tanh(tf.matmul(x, kernel))
        return x

    model = openvino.convert_model(step.get_concrete_function())

    def count_kernels():
        nodes = [node for node in model.get_ops() if node.get_type_name() == "Constant"]
        return sum(tuple(node.get_output_shape(0)) == (5, 5) for node in nodes)

    assert count_kernels() == 4  # otherwise, sharing them has become unnecessary
    onnx_openvino.share_weights(model)
    assert count_kernels() == 2
    x = np.random.default_rng(6).normal(size=(3, 5)).astype(np.float32)
    found = openvino.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})(x)[0]
    np.testing.assert_allclose(found, step(x), rtol=1e-5, atol=1e-6)

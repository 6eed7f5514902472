"""Steps that TensorFlow computes."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from albert_tf.finetuning.engine import tensorflow_step

SIGNATURE = {"x": tf.TensorSpec([None, None], tf.float32)}


def test_many_steps_are_traced_without_warnings(caplog):
    tf.get_logger().addHandler(caplog.handler)
    try:
        for factor in range(7):  # TensorFlow warns from the fifth trace of a function on
            step = tensorflow_step(
                lambda batch, factor=factor: {"y": factor * batch["x"], "z": batch["x"]},
                SIGNATURE,
                ["y"],
            )
            outputs = step({"x": np.ones((2, 3), np.float32)})
            assert list(outputs) == ["y"]
            np.testing.assert_array_equal(outputs["y"], np.full((2, 3), factor, np.float32))
    finally:
        tf.get_logger().removeHandler(caplog.handler)
    assert "retracing" not in caplog.text

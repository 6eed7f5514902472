"""The measurement of training steps."""

from __future__ import annotations

import tensorflow as tf
import tf_keras

from albert_tf.planning import step_time
from albert_tf.planning.model_costs import StepShape
from albert_tf.pretraining import step_timing
from albert_tf.training.settings import DeviceSettings


def test_steps_are_measured_and_described(tiny_config, tmp_path, monkeypatch):
    monkeypatch.setattr(step_timing, "SECONDS_PER_SHAPE", 0.01)
    points = [("tiny", tiny_config, StepShape(3, 11, 2), True)]
    steps, conditions = step_timing.measure(points, DeviceSettings(precision="float32"))
    assert [step.shape for step in steps] == [point[2] for point in points]
    assert [step.is_held_out for step in steps] == [True]
    assert all(0 < step.seconds < 10 for step in steps)
    assert conditions["precision"] == "float32"
    assert conditions["tensorflow"] == tf.__version__
    assert conditions["device"]
    assert tf_keras.mixed_precision.global_policy().name == "float32"

    path = str(tmp_path / "steps.json")
    step_time.write_measured(path, steps, conditions)
    assert step_time.read_measured(path)[0][0].config == tiny_config

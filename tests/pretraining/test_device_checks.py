"""The checks of a device, on the CPU."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.pretraining import device_checks
from albert_tf.pretraining.task import PretrainingTask


@pytest.fixture
def _small(monkeypatch):
    """A model so small that its operations are not compiled."""
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1}
    config = dataclasses.replace(device_checks.SMALL, **sizes)
    monkeypatch.setattr(device_checks, "SMALL", config)


def test_the_batch_has_the_shapes_of_the_task():
    batch = device_checks.random_batch(3, 16, 5, 1000)
    task = PretrainingTask(device_checks.SMALL, 16, 5)
    assert {name: value.shape[1:] for name, value in batch.items()} == {
        name: feature.shape for name, feature in task.features.items()
    }
    assert 5 <= batch["input_ids"].min() <= batch["input_ids"].max() < 1000
    assert set(batch["segment_ids"].ravel()) == {0, 1}


def test_the_error_is_relative_to_the_expected_values():
    assert device_checks.relative_error(np.array([3.0, 4.5]), np.array([3.0, 4.0])) == 0.1


@pytest.mark.usefixtures("_small")
def test_outputs_and_gradients_in_float32_match_plain_operations_on_the_cpu():
    outcome = device_checks.check_float32("cpu", "")
    assert outcome.is_passed, outcome.text


@pytest.mark.usefixtures("_small")
def test_a_device_that_computes_something_else_fails(monkeypatch):
    exact = device_checks._outputs_and_gradients
    monkeypatch.setattr(
        device_checks,
        "_outputs_and_gradients",
        lambda *args: (
            [part if n == 0 else part + 0.01 for n, part in enumerate(exact(*args))]
            if len(args) == 3  # on the device, with the weights of the CPU
            else exact(*args)
        ),
    )
    outcome = device_checks.check_float32("cpu", "")
    assert outcome.is_passed is False
    assert "(at most 0.0001)" in outcome.text


def test_a_missing_gpu_is_explained():
    if tf.config.list_physical_devices("GPU"):
        pytest.skip("this machine has a GPU")
    with pytest.raises(ValueError, match=r"^TensorFlow finds no GPU"):
        device_checks.find_strategy("gpu")


def test_one_gpu_is_not_two(monkeypatch):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["GPU:0"])
    assert device_checks.check_two_devices("gpu", "") == device_checks.Outcome(
        None, "needs two GPUs; this machine has 1"
    )

"""Where a run computes: devices, replicas and workers."""

from __future__ import annotations

import contextlib
import json
import types

import pytest
import tensorflow as tf
import tf_keras
from absl import logging

from albert_tf.training import devices, replicas, strategies
from albert_tf.training import settings as training_settings
from albert_tf.training.interruption import InterruptedRunError
from albert_tf.training.replicas import losses_interrupt
from albert_tf.training.settings import DeviceSettings


def workers(count):
    hosts = [f"127.0.0.1:{23501 + i}" for i in range(count)]
    return json.dumps({"cluster": {"worker": hosts}, "task": {"type": "worker", "index": 0}})


@pytest.fixture(name="machine")
def make_machine(monkeypatch):
    """A function that gives this machine GPUs and workers, and returns the list of warnings."""
    warnings = []

    def make(gpus=0, tf_config=""):
        names = [f"GPU:{number}" for number in range(gpus)]
        monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: names)
        monkeypatch.setattr(training_settings, "NVIDIA_FILES", ())
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        monkeypatch.setenv("TF_CONFIG", tf_config)
        monkeypatch.setattr(logging, "warning", lambda text, *args: warnings.append(text % args))
        return warnings

    return make


@pytest.mark.parametrize(
    ("settings", "gpus", "tf_config", "expected"),
    [
        ({}, 0, "", "one_device"),
        ({}, 1, "", "one_device"),
        ({}, 3, "", "mirrored"),
        ({}, 3, workers(2), "multi_worker"),
        ({}, 3, workers(1), "mirrored"),
        ({}, 0, '{"task": {"type": "worker", "index": 0}}', "one_device"),
        ({"num_devices": 2}, 0, "", "mirrored"),
        ({"use_tpu": True}, 0, "", "tpu"),
        ({"use_tpu": True, "distribution": "tpu"}, 0, "", "tpu"),
        ({"distribution": "one_device", "num_devices": 2}, 0, "", "one_device"),
    ],
)
def test_auto_uses_the_available_devices(machine, settings, gpus, tf_config, expected):
    machine(gpus, tf_config)
    assert strategies.choose_distribution(DeviceSettings(**settings)) == expected


@pytest.mark.parametrize(
    ("settings", "gpus", "tf_config", "said"),
    [
        ({"distribution": "mirrored"}, 0, "", "finds no GPU: .*--num_devices=2"),
        ({"num_devices": 4}, 3, "", "--num_devices=4: this machine has 3"),
        ({"num_devices": 4}, 3, workers(2), "--num_devices=4: this worker can only use 3"),
        ({"distribution": "mirrored", "use_tpu": True}, 0, "", "--use_tpu and --distribution=mirr"),
        ({"distribution": "multi_worker"}, 0, "", "TF_CONFIG must list the workers"),
        ({}, 0, "not json", "TF_CONFIG is invalid .*'not json'"),
    ],
)
def test_devices_that_do_not_exist_are_refused(machine, settings, gpus, tf_config, said):
    warnings = machine(gpus, tf_config)
    with pytest.raises(ValueError, match=said):
        strategies.make_strategy(DeviceSettings(**settings))
    assert not warnings


@pytest.mark.parametrize(
    ("has_cuda", "visible", "reason"),
    [
        (False, "", "it is built without CUDA. Run: pip install 'tensorflow[and-cuda]"),
        (True, "", "CUDA_VISIBLE_DEVICES='' hides them"),
        (True, "0", "check the driver with nvidia-smi, and"),
    ],
)
def test_the_reason_why_there_is_no_gpu_is_said(monkeypatch, has_cuda, visible, reason):
    monkeypatch.setattr(tf.test, "is_built_with_cuda", lambda: has_cuda)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert strategies.why_no_gpu().startswith(reason)


def test_several_logical_cpu_devices_and_an_unused_gpu_cause_warnings(
    machine, monkeypatch, tmp_path
):
    warnings = machine()
    monkeypatch.setattr(training_settings, "NVIDIA_FILES", (f"{tmp_path}/nvidia[0-9]*",))
    (tmp_path / "nvidia-modeset").touch()
    strategies.make_strategy(DeviceSettings(distribution="one_device"))
    assert not warnings
    (tmp_path / "nvidia0").touch()
    monkeypatch.setattr(strategies, "_split_cpu", lambda count: None)
    monkeypatch.setattr(tf.distribute, "MirroredStrategy", lambda names: names)
    assert strategies.make_strategy(DeviceSettings(num_devices=2)) == ["/cpu:0", "/cpu:1"]
    assert "Using 2 logical devices of the CPU" in warnings[0]
    assert warnings[1].startswith("This machine has an NVIDIA GPU, but TensorFlow finds none: ")


def test_a_tpu_is_connected_initialized_and_used_or_reported_as_missing(monkeypatch):
    """With fakes for everything that needs the hardware."""
    calls = []

    class StandIn:
        num_replicas_in_sync = 8

        def __init__(self, resolver):
            calls.append(("strategy", resolver))

    def record(name):
        return lambda resolver: calls.append((name, resolver))

    resolvers = tf.distribute.cluster_resolver
    monkeypatch.setattr(resolvers, "TPUClusterResolver", lambda tpu, **_: tpu)
    monkeypatch.setattr(tf.config, "experimental_connect_to_cluster", record("connect"))
    monkeypatch.setattr(tf.tpu.experimental, "initialize_tpu_system", record("initialize"))
    monkeypatch.setattr(tf.distribute, "TPUStrategy", StandIn)
    strategy = strategies.make_strategy(DeviceSettings(use_tpu=True, tpu_name="pod"))
    assert calls == [("connect", "pod"), ("initialize", "pod"), ("strategy", "pod")]
    assert replicas.is_tpu(strategy)
    assert replicas.describe(strategy) == "8 TPU core(s)"
    calls.clear()
    strategies.make_strategy(DeviceSettings(use_tpu=True))
    assert calls == [("initialize", "local"), ("strategy", "local")]

    def find_nothing(**arguments):
        assert arguments == {"tpu": "mine", "zone": "z", "project": "p"}
        raise ValueError("no such host")

    monkeypatch.setattr(resolvers, "TPUClusterResolver", find_nothing)
    settings = DeviceSettings(use_tpu=True, tpu_name="mine", tpu_zone="z", gcp_project="p")
    with pytest.raises(ValueError, match=r"--tpu_name=mine: no such host\ndocs/tpu\.md"):
        strategies.make_strategy(settings)


def test_micro_batches_must_divide_the_rows_of_each_device():
    strategy = types.SimpleNamespace(num_replicas_in_sync=2)
    replicas.check_batch_size(strategy, 24, 3)
    for size, parts in ((25, 1), (24, 5)):
        with pytest.raises(ValueError, match=rf"={size} is not .* 2 device\(s\) x --gradient_acc"):
            replicas.check_batch_size(strategy, size, parts)


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16"])
def test_the_precision_is_that_of_the_block_also_if_it_fails(name):
    with contextlib.suppress(KeyError), devices.open_devices(DeviceSettings(precision=name)) as it:
        assert (it.precision, it.is_chief, devices.current_precision()) == (name, True, name)
        difference = devices.precision_difference(name)
        assert ("--precision=float32 gives Google's numbers" in difference) == (name != "float32")
        layer = tf_keras.layers.Dense(3)
        assert layer(tf.ones((2, 5))).dtype == tf.as_dtype(name)
        assert layer.kernel.dtype == tf.float32
        raise KeyError
    assert tf_keras.mixed_precision.global_policy().name == "float32"


def test_the_number_of_threads_cannot_change_after_initialization():
    tf.zeros(()).numpy()  # initializes TensorFlow
    with (
        pytest.raises(ValueError, match=r"--threads=3: TensorFlow is already initialized"),
        devices.open_devices(DeviceSettings(threads=3)),
    ):
        pass


@pytest.mark.parametrize(
    "before",
    [
        "{{function_node __wrapped__Send}} ",
        "Graph execution error:\n\nDetected at node x defined at (most recent call last):\n"
        '  File "a.py", line 3, in <module>\n<stack traces unavailable>\n',
    ],
)
def test_a_lost_worker_interrupts_the_run(before):
    message = before + "Collective ops is aborted by: Socket closed\nmore"
    with (
        pytest.raises(InterruptedRunError, match=r"lost \(Collective ops is aborted by: Socket cl"),
        losses_interrupt(),
    ):
        raise tf.errors.UnavailableError(None, None, message)

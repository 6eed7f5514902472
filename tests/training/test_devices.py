"""The choice of the distribution strategy, and how it divides batches."""

from __future__ import annotations

import contextlib
import json
import types

import pytest
import tensorflow as tf
import tf_keras
from absl import logging

from albert_tf.training import devices
from albert_tf.training.settings import DeviceSettings


def with_workers(monkeypatch, count, index=0):
    hosts = [f"127.0.0.1:{23501 + i}" for i in range(count)]
    config = {"cluster": {"worker": hosts}, "task": {"type": "worker", "index": index}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "one_device"),
        ({"num_devices": 2}, "mirrored"),
        ({"use_tpu": True}, "tpu"),
        ({"use_tpu": True, "distribution": "tpu"}, "tpu"),
        ({"distribution": "one_device", "num_devices": 2}, "one_device"),
    ],
)
def test_auto_uses_the_available_devices(settings, expected, monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [])
    assert devices.choose_distribution(DeviceSettings(**settings)) == expected


def test_auto_uses_all_gpus_and_all_workers(monkeypatch):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["a", "b", "c"])
    assert devices.choose_distribution(DeviceSettings()) == "mirrored"
    with_workers(monkeypatch, 2)
    assert devices.choose_distribution(DeviceSettings()) == "multi_worker"
    with_workers(monkeypatch, 1)
    assert devices.choose_distribution(DeviceSettings()) == "mirrored"


@pytest.fixture(name="no_gpu")
def hide_gpus(monkeypatch):
    """Hides GPUs of this machine and of TensorFlow, and returns the list of warnings."""
    warnings = []
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [])
    monkeypatch.setattr(devices, "_GPU_FILES", ())
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(logging, "warning", lambda text, *args: warnings.append(text % args))
    return warnings


def test_requested_gpus_must_exist(no_gpu, monkeypatch):
    with pytest.raises(ValueError, match=r"finds no GPU: .*--num_devices=2"):
        devices.make_strategy(DeviceSettings(distribution="mirrored"))
    assert not no_gpu
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["a", "b", "c"])
    with pytest.raises(ValueError, match="--num_devices=4: this machine has 3"):
        devices.make_strategy(DeviceSettings(num_devices=4))
    with_workers(monkeypatch, 2)
    with pytest.raises(ValueError, match="--num_devices=4: this worker can only use 3"):
        devices.make_strategy(DeviceSettings(num_devices=4))


@pytest.mark.parametrize(
    ("has_cuda", "visible", "reason"),
    [
        (False, "", "it is built without CUDA. Run: pip install 'tensorflow[and-cuda]"),
        (True, "-1", "CUDA_VISIBLE_DEVICES='-1' hides them"),
        (True, "", "CUDA_VISIBLE_DEVICES='' hides them"),
        (True, "0", "check the driver with nvidia-smi, and"),
    ],
)
def test_the_build_the_environment_or_the_libraries_hide_gpus(
    monkeypatch, has_cuda, visible, reason
):
    monkeypatch.setattr(tf.test, "is_built_with_cuda", lambda: has_cuda)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert devices.why_no_gpu().startswith(reason)


@pytest.mark.parametrize("distribution", ["auto", "mirrored"])
def test_several_logical_cpu_devices_cause_a_warning(no_gpu, monkeypatch, distribution):
    monkeypatch.setattr(devices, "_split_cpu", lambda count: None)
    monkeypatch.setattr(tf.distribute, "MirroredStrategy", lambda names: names)
    monkeypatch.setattr(devices, "describe", lambda strategy: "two of them")
    settings = DeviceSettings(distribution=distribution, num_devices=2)
    assert devices.make_strategy(settings) == ["/cpu:0", "/cpu:1"]
    (warning,) = no_gpu
    assert "finds no GPU in this machine. Using 2 logical devices of the CPU" in warning


def test_an_unused_gpu_causes_a_warning(no_gpu, monkeypatch, tmp_path):
    monkeypatch.setattr(devices, "_GPU_FILES", (f"{tmp_path}/nvidia[0-9]*",))
    (tmp_path / "nvidia-modeset").touch()
    devices.make_strategy(DeviceSettings(distribution="one_device"))
    assert not no_gpu
    (tmp_path / "nvidia0").touch()
    devices.make_strategy(DeviceSettings(distribution="one_device"))
    (warning,) = no_gpu
    assert warning.startswith("This machine has an NVIDIA GPU, but TensorFlow finds none: ")


def test_contradictions_and_unknown_names_are_rejected():
    with pytest.raises(ValueError, match="are mutually exclusive"):
        devices.choose_distribution(DeviceSettings(distribution="mirrored", use_tpu=True))
    with pytest.raises(ValueError, match="expected one of 'auto', 'one_device'"):
        DeviceSettings(distribution="horovod")


def test_multi_worker_training_needs_tf_config(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    settings = DeviceSettings(distribution="multi_worker")
    with pytest.raises(ValueError, match="TF_CONFIG must list the workers"):
        devices.make_strategy(settings)
    monkeypatch.setenv("TF_CONFIG", "not json")
    with pytest.raises(ValueError, match="TF_CONFIG is invalid"):
        devices.choose_distribution(DeviceSettings())


def test_a_missing_tpu_is_reported(monkeypatch):
    def find_nothing(**arguments):
        assert arguments == {"tpu": "mine", "zone": "z", "project": "p"}
        raise ValueError("no such host")

    monkeypatch.setattr(tf.distribute.cluster_resolver, "TPUClusterResolver", find_nothing)
    settings = DeviceSettings(use_tpu=True, tpu_name="mine", tpu_zone="z", gcp_project="p")
    message = r"initialize the TPU --tpu_name=mine: no such host\ndocs/tpu\.md has the packages"
    with pytest.raises(ValueError, match=message):
        devices.make_strategy(settings)


def test_a_tpu_is_connected_initialized_and_used(monkeypatch):
    """With fakes for everything that needs the hardware."""
    calls = []

    class StandIn:
        num_replicas_in_sync = 8
        extended = types.SimpleNamespace(should_checkpoint=True)

        def __init__(self, resolver):
            calls.append(("strategy", resolver))

    def find(**arguments):
        calls.append(("find", arguments["tpu"]))
        return arguments["tpu"]

    for module, name in (
        (tf.config, "experimental_connect_to_cluster"),
        (tf.tpu.experimental, "initialize_tpu_system"),
    ):
        monkeypatch.setattr(
            module, name, lambda resolver, name=name: calls.append((name, resolver))
        )
    monkeypatch.setattr(tf.distribute.cluster_resolver, "TPUClusterResolver", find)
    monkeypatch.setattr(tf.distribute, "TPUStrategy", StandIn)
    strategy = devices.make_strategy(DeviceSettings(use_tpu=True, tpu_name="pod"))
    expected = [
        ("find", "pod"),
        ("experimental_connect_to_cluster", "pod"),
        ("initialize_tpu_system", "pod"),
        ("strategy", "pod"),
    ]
    assert calls == expected
    assert devices.is_tpu(strategy)
    assert devices.describe(strategy) == "8 TPU core(s)"
    calls.clear()
    devices.make_strategy(DeviceSettings(use_tpu=True))
    local = [(name, "local") for name, _ in expected if name != expected[1][0]]
    assert calls == local


def test_a_single_device_is_the_chief_and_has_all_rows():
    strategy = devices.make_strategy(DeviceSettings(distribution="one_device"))
    assert strategy.num_replicas_in_sync == 1
    assert devices.is_chief(strategy)
    assert not devices.is_multi_worker(strategy)
    assert devices.local_rows(strategy, 12) == slice(0, 12)


def test_micro_batches_must_divide_the_rows_of_each_device():
    strategy = types.SimpleNamespace(num_replicas_in_sync=2)
    devices.check_batch_size(strategy, 24, 3)
    with pytest.raises(ValueError, match=r"not a multiple of 2 device\(s\) x --gradient_acc"):
        devices.check_batch_size(strategy, 25, 1)


@pytest.mark.parametrize(
    ("name", "policy"), [("float32", "float32"), ("bfloat16", "mixed_bfloat16")]
)
def test_the_precision_is_that_of_the_block_also_if_it_fails(name, policy):
    with contextlib.suppress(KeyError), devices.open_devices(DeviceSettings(precision=name)) as it:
        assert (it.precision, it.is_chief) == (name, True)
        assert it.strategy.num_replicas_in_sync == 1
        assert tf_keras.mixed_precision.global_policy().name == policy
        raise KeyError
    assert tf_keras.mixed_precision.global_policy().name == "float32"


def test_the_number_of_threads_cannot_change_after_initialization():
    tf.zeros(()).numpy()  # initializes TensorFlow
    with (
        pytest.raises(ValueError, match=r"--threads=3: TensorFlow is already initialized"),
        devices.open_devices(DeviceSettings(threads=3)),
    ):
        pass

"""Why TensorFlow finds no GPU: the build, the environment, or TensorFlow's log."""

from __future__ import annotations

import pytest
import tensorflow as tf

from albert_tf.training import gpus

LOG = """\
2026-11-22 09:56:18.483090: I external/local_xla/xla/tsl/cuda/cudart_stub.cc:31] Could not find \
cuda drivers on your machine, GPU will not be used.
2026-11-22 09:56:18.483600: I tensorflow/core/util/port.cc:153] oneDNN custom operations are on.
E0000 00:00:1795343319.183697 31616 cuda_dnn.cc:8579] Unable to register cuDNN factory: again
To enable the following instructions: AVX2, rebuild TensorFlow. CUDA
2026-11-22 09:56:21.247804: I external/local_xla/xla/tsl/cuda/cudart_stub.cc:31] Could not find \
cuda drivers on your machine, GPU will not be used.
W0000 00:00:1795343319.183697 31616 gpu_device.cc:2344] Cannot dlopen some GPU libraries. Look.
2026-11-22 09:56:24.130301: E external/cuda_platform.cc:51] failed call to cuInit: ERROR (303)
"""


def test_reasons_are_the_log_messages_about_gpus():
    assert gpus.find_reasons(LOG) == [
        "Could not find cuda drivers on your machine, GPU will not be used",
        "Cannot dlopen some GPU libraries. Look",
        "failed call to cuInit: ERROR (303)",
    ]


@pytest.fixture(name="built_with")
def patch_build(monkeypatch):
    """Returns a function that sets whether TensorFlow is built with CUDA, and what it logs."""

    def build(has_cuda, *words):
        monkeypatch.setattr(tf.test, "is_built_with_gpu_support", lambda: has_cuda)
        monkeypatch.setattr(gpus, "_ask_tensorflow", lambda: list(words))

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return build


def test_a_build_without_cuda_is_reported(built_with):
    built_with(False)
    assert gpus.why_none() == 'It is built without CUDA: pip install "tensorflow[and-cuda]".'


@pytest.mark.parametrize("value", ["", "-1"])
def test_an_environment_that_hides_gpus_is_reported(built_with, monkeypatch, value):
    built_with(True)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    assert gpus.why_none() == f"CUDA_VISIBLE_DEVICES={value!r} hides them: unset it."


def test_otherwise_tensorflows_log_is_reported(built_with, monkeypatch):
    built_with(True, "no drivers", "no cuInit")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert gpus.why_none().startswith("It logs: no drivers; no cuInit. Check the driver")


def test_a_gpu_is_detected_by_its_device_file(monkeypatch, tmp_path):
    monkeypatch.setattr(gpus, "_DEVICE_FILES", (f"{tmp_path}/nvidia[0-9]*", f"{tmp_path}/dxg"))
    (tmp_path / "nvidia-modeset").touch()
    assert not gpus.is_in_machine()
    (tmp_path / "nvidia0").touch()
    assert gpus.is_in_machine()


@pytest.mark.slow
def test_tensorflow_runs_in_a_subprocess():
    if tf.config.list_physical_devices("GPU"):
        pytest.skip("there is a GPU")
    assert gpus._ask_tensorflow()

"""The options of XLA that a run sets, and what it leaves as the user has set it."""

from __future__ import annotations

import pytest
import tensorflow as tf

from albert_tf.training import devices

CUBLASLT = "--xla_gpu_enable_cublaslt"


def flags_of(monkeypatch, given, gpus=("GPU:0",), release="2.20.0"):
    """Returns XLA_FLAGS of a run on a machine with these GPUs; `given` is what the user has set."""
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: list(gpus))
    monkeypatch.setattr(tf, "__version__", release)
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    if given is not None:
        monkeypatch.setenv("XLA_FLAGS", given)
    devices.set_xla_flags()
    return devices.os.environ.get("XLA_FLAGS")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, f"{CUBLASLT}=true"),
        ("--xla_dump_to=here", f"--xla_dump_to=here {CUBLASLT}=true"),
        (f"{CUBLASLT}=false --xla_dump_to=here", f"{CUBLASLT}=false --xla_dump_to=here"),
    ],
)
def test_on_a_gpu_an_option_is_set_unless_the_user_has_set_it(monkeypatch, given, expected):
    assert flags_of(monkeypatch, given) == expected


@pytest.mark.parametrize(
    ("release", "is_set"), [("2.18.1", True), ("2.17.0", False), ("2.21.0", False)]
)
def test_nothing_is_set_for_a_release_that_does_not_know_it(monkeypatch, release, is_set):
    assert (flags_of(monkeypatch, None, release=release) is not None) == is_set


def test_nothing_is_set_without_a_gpu(monkeypatch):
    assert flags_of(monkeypatch, None, gpus=()) is None

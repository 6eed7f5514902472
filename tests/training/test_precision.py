"""The precision that `auto` chooses for the hardware."""

from __future__ import annotations

import pytest
import tensorflow as tf

from albert_tf.training import devices


@pytest.mark.parametrize(
    ("tpus", "capabilities", "flags", "expected"),
    [
        (["TPU:0"], [], "", "bfloat16"),
        ([], [], "fpu avx2 amx_tile amx_bf16 avx512_bf16", "bfloat16"),
        ([], [], "fpu avx2 avx512f avx512_vnni", "float32"),
        ([], [], "", "float32"),
        # With several GPUs, the least capable one decides.
        ([], [(8, 0)], "", "bfloat16"),
        ([], [(7, 0)], "", "float16"),
        ([], [(6, 1)], "amx_bf16", "float32"),
        ([], [None], "", "float32"),
        ([], [(9, 0), (7, 5)], "", "float16"),
    ],
)
def test_auto_is_what_the_hardware_supports(monkeypatch, tpus, capabilities, flags, expected):
    def details(gpu):
        return {} if gpu is None else {"compute_capability": gpu}

    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: tpus)
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: capabilities)
    monkeypatch.setattr(tf.config.experimental, "get_device_details", details)
    monkeypatch.setattr(devices, "_read_cpu_info", lambda: f"flags\t\t: {flags}\nbugs\t:\n")
    assert devices.resolve_precision("auto")[0] == expected

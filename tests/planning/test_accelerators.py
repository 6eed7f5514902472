"""Names of devices on the command line."""

from __future__ import annotations

import pytest

from albert_tf.planning.accelerators import ACCELERATORS, parse_devices


def test_devices_are_a_number_and_a_name():
    assert parse_devices(" 512xtpu-v3") == (512, "tpu-v3")
    assert all(parse_devices(f"8x{name}") == (8, name) for name in ACCELERATORS)


@pytest.mark.parametrize("text", ["", "a100", "0xa100", "8 x a100", "8xa100x", "-1xa100", "8xA100"])
def test_another_form_is_refused(text):
    with pytest.raises(ValueError, match=r"such as 8xa100\. Known names: t4"):
        parse_devices(text)

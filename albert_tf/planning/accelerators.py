"""Published properties of accelerators."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Accelerator:
    """A device that a replica of the model runs on.

    Attributes:
        peak_flops: FLOPs per second of dense matmuls in bfloat16 (float16 on V100 and T4), as the
            vendor states it.
        memory_bytes: memory of the device.
        per_host: devices of a usual host, which share its CPU and network.
    """

    peak_flops: float
    memory_bytes: float
    per_host: int = 8


# A TPU v2 or v3 has two cores per chip, and a core is a device; a TPU v4 or v5 chip is one device.
ACCELERATORS = {
    "t4": Accelerator(65e12, 16e9, 4),
    "v100": Accelerator(125e12, 32e9),
    "l4": Accelerator(121e12, 24e9),
    "a100": Accelerator(312e12, 80e9),
    "h100": Accelerator(989e12, 80e9),
    "tpu-v2": Accelerator(22.5e12, 8e9),
    "tpu-v3": Accelerator(61.5e12, 16e9),
    "tpu-v4": Accelerator(275e12, 32e9, 4),
    "tpu-v5e": Accelerator(197e12, 16e9),
    "tpu-v5p": Accelerator(459e12, 95e9, 4),
}


def parse_devices(text: str) -> tuple[int, str]:
    """Parses a number of devices and their name, such as `8xa100`.

    Raises:
        ValueError: the text has another form, or the name is unknown.
    """
    count, _, name = text.strip().partition("x")
    if not count.isdecimal() or int(count) < 1 or name not in ACCELERATORS:
        raise ValueError(
            f"--devices: {text.strip()!r}: expected a number of devices and a name, such as "
            f"8xa100. Known names: {', '.join(ACCELERATORS)}"
        )
    return int(count), name

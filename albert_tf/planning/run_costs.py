"""Time, memory and bandwidth of pre-training on a number of devices, and what limits them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

from albert_tf.config import AlbertConfig
from albert_tf.planning import model_costs
from albert_tf.planning.accelerators import ACCELERATORS, Accelerator
from albert_tf.planning.model_costs import StepShape

USABLE_MEMORY = 0.9  # of a device; the rest is for the framework and fragmentation
# Tokens per second that the input pipeline of one host reads and parses on two cores; RESULTS.md.
PARSED_TOKENS = 31.5e6
MAX_DEVICES = 1 << 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training:
    """What is trained.

    Attributes:
        config: the model.
        batch_size: rows of the global batch.
        length: S, tokens per row.
        predictions: P, masked positions per row.
        steps: number of training steps.
        bytes_per_value: 2 in bfloat16 or float16, 4 in float32.
        checkpointing: whether activations are recomputed in the backward pass.
        record_bytes: mean size of a record.
        link_bandwidth: bytes per second that a device exchanges with others in an all-reduce.
        seconds_of_rows: predicted or measured seconds for some rows on one device, without the
            all-reduce: a function of the shape and the device.
    """

    config: AlbertConfig
    batch_size: int
    length: int
    predictions: int
    steps: int
    bytes_per_value: int
    checkpointing: bool
    record_bytes: float
    link_bandwidth: float
    seconds_of_rows: Callable[[StepShape, Accelerator], float]

    def shape(self, rows: int) -> StepShape:
        """Returns the shape of a batch of `rows` rows."""
        return StepShape(rows, self.length, self.predictions)

    def memory(self, rows: int) -> int:
        """Returns the bytes that a device needs for `rows` rows at once."""
        activations = model_costs.activation_bytes(
            self.config, self.shape(rows), self.bytes_per_value, self.checkpointing
        )
        return model_costs.state_bytes(self.config, self.bytes_per_value) + activations


@dataclasses.dataclass(frozen=True)
class RunCosts:
    """Costs of training on some devices.

    Attributes:
        devices: number of devices.
        name: name of the devices.
        rows: rows per device.
        micro_batches: gradient accumulation steps that make the activations fit; 0 if not even one
            row fits.
        memory_bytes: memory of one device.
        compute_seconds: time of a step without the all-reduce.
        all_reduce_seconds: time of the all-reduce of the gradients.
        steps: number of steps.
        read_bandwidth: bytes per second that each host reads from local files.
        whole_bandwidth: bytes per second that each host reads from remote and compressed files,
            which every process reads whole.
        parsed_tokens: tokens per second that each host parses.
    """

    devices: int
    name: str
    rows: int
    micro_batches: int
    memory_bytes: float
    compute_seconds: float
    all_reduce_seconds: float
    steps: int
    read_bandwidth: float
    whole_bandwidth: float
    parsed_tokens: float

    @property
    def step_seconds(self) -> float:
        """Time of a step."""
        return self.compute_seconds + self.all_reduce_seconds

    @property
    def total_seconds(self) -> float:
        """Time of all steps."""
        return self.steps * self.step_seconds


def assumed_seconds(
    config: AlbertConfig, utilization: float, checkpointing: bool
) -> Callable[[StepShape, Accelerator], float]:
    """Returns the time of some rows on a device as FLOPs / (utilization · peak FLOPs)."""

    def seconds(shape: StepShape, accelerator: Accelerator) -> float:
        flops = model_costs.step_costs(config, shape, checkpointing).flops
        return flops / (utilization * accelerator.peak_flops)

    return seconds


def all_reduce_seconds(training: Training, devices: int) -> float:
    """Returns the time of a ring all-reduce of the float32 gradients."""
    size = model_costs.FLOAT_BYTES * model_costs.count_parameters(training.config)
    return 2 * (devices - 1) / devices * size / training.link_bandwidth


def find_micro_batches(training: Training, rows: int, memory_bytes: float) -> int:
    """Returns the smallest divisor of `rows` into which it must be split; 0 if no row fits."""
    for parts in range(1, rows + 1):
        if rows % parts == 0 and training.memory(rows // parts) <= USABLE_MEMORY * memory_bytes:
            return parts
    return 0


def run_costs(training: Training, devices: int, name: str) -> RunCosts:
    """Returns the costs of training on `devices` devices.

    Raises:
        ValueError: the batch cannot be divided by the number of devices.
    """
    accelerator = ACCELERATORS[name]
    if training.batch_size % devices:
        raise ValueError(
            f"--train_batch_size={training.batch_size} is not a multiple of {devices} devices "
            f"({devices}x{name})"
        )
    rows = training.batch_size // devices
    parts = find_micro_batches(training, rows, accelerator.memory_bytes)
    compute = training.seconds_of_rows(training.shape(rows), accelerator)
    exchange = all_reduce_seconds(training, devices)
    rows_of_host = min(devices, accelerator.per_host) * rows
    rows_per_second = rows_of_host / (compute + exchange)
    return RunCosts(
        devices=devices,
        name=name,
        rows=rows,
        micro_batches=parts,
        memory_bytes=training.memory(rows // parts if parts else 1),
        compute_seconds=compute,
        all_reduce_seconds=exchange,
        steps=training.steps,
        read_bandwidth=rows_per_second * training.record_bytes,
        whole_bandwidth=training.batch_size / (compute + exchange) * training.record_bytes,
        parsed_tokens=rows_per_second * training.length,
    )


def devices_where_exchange_dominates(training: Training, name: str) -> int | None:
    """Returns the number of devices from which the all-reduce takes as long as the computation.

    Returns:
        The smallest such power of two that leaves each device a row, or None.
    """
    most = min(training.batch_size, MAX_DEVICES)
    for exponent in range(int(math.log2(most)) + 1):
        devices = 1 << exponent
        shape = training.shape(training.batch_size // devices)
        compute = training.seconds_of_rows(shape, ACCELERATORS[name])
        if all_reduce_seconds(training, devices) >= compute:
            return devices
    return None

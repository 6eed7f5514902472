r"""Estimates records, hours and memory of pre-training before it is started.

    python tools/plan_run.py --albert_config_file=albert_xxlarge --text_gigabytes=16 \
        --dupe_factor=10 --devices=8xa100,64xtpu-v3,512xtpu-v3

prints what the data program and the training would take, in half a second and without a device.
The time of a step is a roofline: a device computes and moves its bytes at the published rates at
best. Real steps take longer. With --examples_per_second, which run_pretraining.py logs, the times
follow from your own measurement. docs/scaling.md explains the estimates and their errors.
"""

from __future__ import annotations

import dataclasses
import math
import os
import sys

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import numpy as np

from albert_tf import costs, files, included
from albert_tf.cli import program
from albert_tf.config import AlbertConfig
from albert_tf.costs import StepShape
from albert_tf.data.settings import (
    SPECIAL_TOKENS_PER_PAIR,
    InstanceSettings,
    MaskingSettings,
    SequenceSettings,
)
from albert_tf.data.tfrecord import encode_examples, frame_records
from albert_tf.pretraining.settings import Settings as PretrainingSettings
from albert_tf.settings import SettingsGroup, redefined, setting
from albert_tf.training.settings import DeviceSettings, ModelSettings, TrainingSettings

USABLE_MEMORY = 0.9  # of a device; the rest is for the framework and fragmentation
OUTPUT_BYTES = 2**30  # of records that one worker shuffles in memory
# Records per second of one core at 128 and 512 tokens, of long documents; docs/scaling.md.
RECORD_RATES = {128: 29_000.0, 512: 8_800.0}


@dataclasses.dataclass(frozen=True)
class Device:
    """Published properties of an accelerator.

    Attributes:
        peak_flops: FLOPs per second of matmuls in bfloat16 (float16 on T4 and V100), dense.
        bandwidth: bytes per second of its memory.
        memory: bytes of its memory.
        compiler: key of BYTES.
    """

    peak_flops: float
    bandwidth: float
    memory: float
    compiler: str


# From NVIDIA's data sheets, and from "System architecture" in Google Cloud's documentation of TPUs.
# A TPU v2 or v3 has two cores per chip, and a core is a device; any other chip is one device.
DEVICES = {
    "t4": Device(65e12, 300e9, 16e9, "gpu"),
    "v100": Device(125e12, 900e9, 32e9, "gpu"),
    "l4": Device(121e12, 300e9, 24e9, "gpu"),
    "a100": Device(312e12, 2039e9, 80e9, "gpu"),
    "h100": Device(989e12, 3352e9, 80e9, "gpu"),
    "tpu-v2": Device(22.5e12, 350e9, 8e9, "tpu"),
    "tpu-v3": Device(61.5e12, 450e9, 16e9, "tpu"),
    "tpu-v4": Device(275e12, 1200e9, 32e9, "tpu"),
    "tpu-v5e": Device(197e12, 819e9, 16e9, "tpu"),
    "tpu-v5p": Device(459e12, 2765e9, 95e9, "tpu"),
    "tpu-v6e": Device(918e12, 1640e9, 32e9, "tpu"),
}
# Bytes that a step in bfloat16 reads and writes, per unit of each of `byte_terms`: least squares of
# what the compilers of a TPU v4 and an H100 say of 13 and 16 steps; docs/scaling.md.
BYTES: dict[str, tuple[float, ...]] = {
    "tpu": (72.0, 17.88, 0, 330.2, 0, 65.69),
    "gpu": (56.26, 28.8, 8.21, 120.9, 15.93, 45.55),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(SettingsGroup):
    """What to plan."""

    GROUP = "model and training"

    albert_config_file: str = redefined(
        ModelSettings,
        "albert_config_file",
        "albert_base",
        "JSON file with the architecture of the model: Google's albert_config.json or Hugging "
        "Face's config.json, or the name of a released architecture, such as albert_base.",
    )
    train_batch_size: int = redefined(TrainingSettings, "train_batch_size", 4096)
    num_train_steps: int = redefined(PretrainingSettings, "num_train_steps", 125_000)
    max_seq_length: int = redefined(SequenceSettings, "max_seq_length", 512)
    max_predictions_per_seq: int = redefined(MaskingSettings, "max_predictions_per_seq", 20)
    gradient_checkpointing: bool = redefined(DeviceSettings, "gradient_checkpointing", False)

    text_gigabytes: float = setting(
        16.0, "Size of the text, in GB (10^9 bytes).", minimum=1e-6, group="data"
    )
    bytes_per_token: float = setting(
        4.2, "Mean size of a token in the text, in bytes.", minimum=0.1, group="data"
    )
    filled: float = setting(
        0.85,
        "Mean share of the tokens of a record that are not padding; positions / instances / "
        "max_seq_length in the .records.json of a sample.",
        minimum=0.01,
        maximum=1,
        group="data",
    )
    dupe_factor: int = redefined(InstanceSettings, "dupe_factor", 40)
    cores: int = setting(
        16, "Number of CPU cores for the data program, over all machines.", minimum=1, group="data"
    )

    devices: tuple[str, ...] = setting(
        ("1xa100", "8xa100", "64xtpu-v3", "512xtpu-v3"),
        f"Numbers of devices and their names, separated by commas. Names: {', '.join(DEVICES)}.",
        group="devices",
    )
    examples_per_second: float = setting(
        0.0,
        "Measured examples per second of one device, which replace the roofline; 0 if not "
        "measured.",
        minimum=0,
        group="devices",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_predictions_per_seq > self.max_seq_length:
            raise ValueError(
                f"--max_predictions_per_seq={self.max_predictions_per_seq} is larger than "
                f"--max_seq_length={self.max_seq_length}"
            )
        for text in self.devices:
            count, _ = parse_devices(text)
            if self.train_batch_size % count:
                raise ValueError(
                    f"--train_batch_size={self.train_batch_size} is not a multiple of "
                    f"{count} devices ({text})"
                )


def parse_devices(text: str) -> tuple[int, str]:
    """Parses a number of devices and their name, such as `8xa100`.

    Raises:
        ValueError: the text has another form, or the name is unknown.
    """
    count, _, name = text.partition("x")
    if not count.isdecimal() or int(count) < 1 or name not in DEVICES:
        raise ValueError(
            f"--devices: {text!r}: expected a number of devices and a name, such as 8xa100. "
            f"Known names: {', '.join(DEVICES)}"
        )
    return int(count), name


# Steps


def byte_terms(config: AlbertConfig, shape: StepShape) -> list[float]:
    """Returns what the bytes of a step are proportional to.

    Values of the hidden layers, attention scores, weights of all blocks, values before the last
    block, logits of the masked-LM head, and weights to update.
    """
    H, I = config.hidden_size, config.intermediate_size  # noqa: E741, N806
    computed = costs.computed_tokens(config, shape)
    return [
        float(computed * (2 * H + I)),
        float(computed * config.num_attention_heads * shape.length),
        float(costs.count_blocks(config) * (4 * H * H + 2 * H * I)),
        float(shape.tokens * H),
        float(shape.rows * shape.predictions * config.vocab_size),
        float(costs.count_parameters(config)),
    ]


def step_bytes(config: AlbertConfig, shape: StepShape, compiler: str) -> float:
    """Returns the bytes that the instructions of a step read and write."""
    return float(np.dot(byte_terms(config, shape), BYTES[compiler]))


def roofline(
    config: AlbertConfig, shape: StepShape, device: Device, checkpointing: bool = False
) -> tuple[float, float]:
    """Returns the seconds that the matmuls and the reads and writes of a step take at least."""
    flops = costs.step_flops(config, shape, checkpointing)
    moved = step_bytes(config, shape, device.compiler)
    return flops / device.peak_flops, moved / device.bandwidth


def micro_batches(config: AlbertConfig, shape: StepShape, device: Device, again: bool) -> int:
    """Returns the smallest divisor of the rows into which they are split to fit; 0 if none fits."""
    usable = USABLE_MEMORY * device.memory
    for parts in range(1, shape.rows + 1):
        part = dataclasses.replace(shape, rows=shape.rows // parts)
        if shape.rows % parts == 0 and device_memory(config, part, again) <= usable:
            return parts
    return 0


def device_memory(config: AlbertConfig, shape: StepShape, again: bool) -> int:
    """Returns the bytes of weights, moments, gradients and activations, in bfloat16."""
    return costs.state_bytes(config, 2) + costs.activation_bytes(config, shape, 2, again)


# Records


def record_bytes(length: int, predictions: int, vocab_size: int, filled: float) -> float:
    """Returns the mean size of a record in bytes, with its TFRecord frame.

    Numbers are stored in one byte for each seven bits, so the size depends on the ids, which follow
    Zipf's law: vocabularies list frequent words first. A record with such ids is encoded and
    measured.

    Args:
        length: S, tokens per sequence.
        predictions: P, masked positions per sequence.
        vocab_size: V.
        filled: mean share of the S tokens that are not padding.
    """
    rng = np.random.default_rng(0)
    tokens = max(SPECIAL_TOKENS_PER_PAIR, min(length, round(filled * length)))
    masked = max(1, min(predictions, round(0.15 * tokens)))
    ids = np.floor(vocab_size ** rng.uniform(size=length)).astype(np.int64)
    is_token = (np.arange(length) < tokens).astype(np.int64)
    is_masked = (np.arange(predictions) < masked).astype(np.int64)
    positions = np.linspace(1, tokens - 1, predictions).astype(np.int64)
    features = {
        "input_ids": ids * is_token,
        "input_mask": is_token,
        "segment_ids": is_token,
        "token_boundary": is_token,
        "masked_lm_positions": positions * is_masked,
        "masked_lm_ids": ids[positions] * is_masked,
        "masked_lm_weights": is_masked.astype(np.float32),
        "next_sentence_labels": np.zeros(1, np.int64),
    }
    rows = {name: values[np.newaxis] for name, values in features.items()}  # [1, …]
    return float(len(frame_records(encode_examples(rows))[0]))


def count_records(tokens: float, dupe_factor: int, length: int, filled: float) -> float:
    """Returns the number of records of a text."""
    return tokens * dupe_factor / max(1.0, filled * length - SPECIAL_TOKENS_PER_PAIR)


def seconds_per_record(length: int) -> float:
    """Returns the time of one core for a record: a constant, and a part proportional to it."""
    (short, fast), (long, slow) = sorted(RECORD_RATES.items())
    return 1 / fast + (length - short) * (1 / slow - 1 / fast) / (long - short)


# The plan as text


def _number(value: float, units: dict[str, float], threshold: float = 1) -> str:
    """Returns a number in the largest unit of which it is at least `threshold`."""
    for unit, size in units.items():
        if value >= threshold * size or size == 1:
            number = value / size
            return f"{number:,.0f} {unit}" if number >= 1000 else f"{number:.3g} {unit}"
    raise AssertionError("the last unit is 1")


def _bytes(value: float) -> str:
    return _number(value, {"TB": 1e12, "GB": 1e9, "MB": 1e6, "kB": 1e3, "B": 1})


def _count(value: float) -> str:
    return _number(value, {"billion": 1e9, "million": 1e6, "": 1}).strip()


def _duration(seconds: float) -> str:
    return _number(seconds, {"days": 86_400, "h": 3_600, "min": 60, "s": 1, "ms": 1e-3}, 2)


def _data_lines(settings: Settings, config: AlbertConfig) -> list[str]:
    length = settings.max_seq_length
    predictions = settings.max_predictions_per_seq
    tokens = settings.text_gigabytes * 1e9 / settings.bytes_per_token
    records = count_records(tokens, settings.dupe_factor, length, settings.filled)
    size = record_bytes(length, predictions, config.vocab_size, settings.filled)
    seconds = records * seconds_per_record(length) / settings.cores
    epochs = settings.train_batch_size * settings.num_train_steps / records
    return [
        f"Data: {settings.text_gigabytes:g} GB of text, {_count(tokens)} tokens, "
        f"dupe_factor {settings.dupe_factor}",
        f"  records: {_count(records)} of {_bytes(size)}, {_bytes(records * size)} in all; "
        f"training reads each of them {epochs:.3g} times",
        f"  time: {_duration(seconds)} on {settings.cores} cores, if files are read and written "
        "as fast",
        f"  outputs: --output_file=NAME@{max(1, math.ceil(records * size / OUTPUT_BYTES))}, so "
        f"that a worker shuffles at most {_bytes(OUTPUT_BYTES)} in memory; free space for "
        f"{_bytes(2 * records * size)} while the program runs",
    ]


def _device_row(settings: Settings, config: AlbertConfig, text: str) -> list[str]:
    """Returns the cells of the table for some devices."""
    count, name = parse_devices(text)
    device = DEVICES[name]
    again = settings.gradient_checkpointing
    shape = StepShape(
        settings.train_batch_size // count,
        settings.max_seq_length,
        settings.max_predictions_per_seq,
    )
    parts = micro_batches(config, shape, device, again)
    part = dataclasses.replace(shape, rows=shape.rows // max(1, parts))
    computing, moving = roofline(config, part, device, again)
    seconds = max(1, parts) * max(computing, moving)
    limit = "computing" if computing > moving else "memory"
    if settings.examples_per_second:
        seconds = shape.rows / settings.examples_per_second
        limit = "measured"
    return [
        text,
        str(shape.rows),
        str(parts or "does not fit"),
        _bytes(device_memory(config, part, again)),
        _duration(seconds),
        limit,
        _count(settings.train_batch_size * settings.max_seq_length / seconds),
        _duration(settings.num_train_steps * seconds),
    ]


def _table(rows: list[list[str]]) -> list[str]:
    """Returns lines with aligned columns; the first row is the heading."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]


def run(settings: Settings) -> str:
    """Returns the plan of a run as text."""
    path = included.config_file(settings.albert_config_file)
    values = files.read_json(path)
    try:
        config = AlbertConfig.from_dict(values)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    config.check_length(settings.max_seq_length)
    batch = StepShape(
        settings.train_batch_size, settings.max_seq_length, settings.max_predictions_per_seq
    )
    flops = costs.step_flops(config, batch, settings.gradient_checkpointing)
    heading = ["devices", "rows", "micro-batches", "memory", "step", "limit", "tokens/s", "in all"]
    rows = [_device_row(settings, config, text) for text in settings.devices]
    source = "as measured" if settings.examples_per_second else "at least, by published rates"
    lines = [
        f"Model: {settings.albert_config_file}, {_count(costs.count_parameters(config))} weights; "
        f"a checkpoint with moments takes {_bytes(costs.checkpoint_bytes(config))}",
        *_data_lines(settings, config),
        f"Training: {settings.num_train_steps:,} steps of {batch.rows} x {batch.length} tokens, "
        f"{flops / 1e12:,.0f} TFLOPs each; times {source}, without communication",
        *_table([heading, *rows]),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    program.start(Settings, run, __doc__)

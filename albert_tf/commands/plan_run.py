r"""Estimates records, bytes, hours, memory and bandwidth of pre-training before it is started.

    python tools/plan_run.py --albert_config_file=albert_xxlarge --text_gigabytes=16 \
        --devices=8xa100,64xtpu-v3,512xtpu-v3

prints what the data program and the training would take, and what limits them first. Times on a
device are its FLOPs divided by --utilization of the peak rate, which is an assumption. With
--examples_per_second, which run_pretraining.py logs, they follow from your own measurement.

    python tools/plan_run.py --measure_steps=steps.json
    python tools/plan_run.py --measured_steps=steps.json --albert_config_file=albert_large \
        --train_batch_size=32 --max_seq_length=128

measures training steps on this machine (about ten minutes), and predicts those of other models and
shapes on it. docs/scaling.md explains the estimates and their errors.
"""

from __future__ import annotations

import dataclasses
import math

from albert_tf import files, included
from albert_tf.cli import program
from albert_tf.config import AlbertConfig
from albert_tf.data.settings import InstanceSettings, MaskingSettings, SequenceSettings
from albert_tf.planning import data_costs, model_costs, run_costs, step_time
from albert_tf.planning.accelerators import ACCELERATORS, Accelerator, parse_devices
from albert_tf.planning.model_costs import StepShape
from albert_tf.planning.run_costs import RunCosts, Training
from albert_tf.pretraining.settings import Settings as PretrainingSettings
from albert_tf.settings import SettingsGroup, redefined, setting
from albert_tf.training.settings import DeviceSettings, ModelSettings, TrainingSettings

GIGABYTE, MEGABYTE = 1e9, 1e6
DAY, HOUR, MINUTE = 86_400.0, 3_600.0, 60.0
OUTPUT_BYTES = 2**30  # of records that one worker shuffles in memory
# Config, rows, tokens and whether the step is held out: from narrow to wide, short to long.
MEASURED_POINTS = (
    ("albert_tiny_zh", 8, 128, False),
    ("albert_tiny_zh", 32, 128, False),
    ("albert_tiny_zh", 8, 512, False),
    ("albert_small_zh", 16, 128, False),
    ("albert_small_zh", 4, 512, False),
    ("albert_small_zh", 32, 64, True),
    ("albert_base", 2, 128, False),
    ("albert_base", 8, 128, False),
    ("albert_base", 1, 512, False),
    ("albert_base", 4, 512, True),
    ("albert_large", 1, 128, False),
    ("albert_large", 4, 128, True),
    ("albert_large", 2, 512, False),
    ("albert_xlarge", 1, 128, False),
    ("albert_xlarge", 2, 256, True),
)


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
    precision: str = redefined(DeviceSettings, "precision", "auto")

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

    devices: str = setting(
        "1xa100,8xa100,64xtpu-v3,512xtpu-v3",
        "Numbers of devices and their names, separated by commas.",
        group="devices",
    )
    utilization: float = setting(
        0.4,
        "Assumed share of a device's peak rate that training reaches.",
        minimum=1e-3,
        maximum=1,
        group="devices",
    )
    examples_per_second: float = setting(
        0.0,
        "Measured examples per second of one device, which replace the assumption; 0 if not "
        "measured.",
        minimum=0,
        group="devices",
    )
    link_gigabytes_per_second: float = setting(
        12.5,
        "Bandwidth of each device in an all-reduce, in GB/s.",
        minimum=1e-3,
        group="devices",
    )
    storage_megabytes_per_second: float = setting(
        200.0,
        "Rate at which a host reads and writes files, in MB/s.",
        minimum=1e-3,
        group="devices",
    )

    measure_steps: str = setting(
        "",
        "JSON file to write; if given, training steps are measured on this machine and nothing is "
        "planned.",
        group="measured steps",
    )
    measured_steps: str = setting(
        "",
        "JSON file of measure_steps; if given, the step time on that machine is predicted.",
        group="measured steps",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.measure_steps and self.measured_steps:
            raise ValueError("--measure_steps and --measured_steps cannot be used together")
        if self.max_predictions_per_seq > self.max_seq_length:
            raise ValueError(
                f"--max_predictions_per_seq={self.max_predictions_per_seq} is larger than "
                f"--max_seq_length={self.max_seq_length}"
            )

    def check_paths(self) -> None:
        """Checks that the files to read exist."""
        super().check_paths()
        if self.measured_steps:
            files.check_file(self.measured_steps, "--measured_steps")


# Numbers as text


def _bytes(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 999.5 or unit == "TB":
            return f"{size:.3g} {unit}" if size < 1000 else f"{size:,.0f} {unit}"
        size /= 1000
    raise AssertionError


def _duration(seconds: float) -> str:
    for unit, size in (("days", DAY), ("h", HOUR), ("min", MINUTE)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:.3g} s"


def _count(number: float) -> str:
    for unit, size in (("billion", 1e9), ("million", 1e6)):
        if number >= size:
            return (
                f"{number / size:,.3g} {unit}" if number < 1e12 else f"{number / size:,.0f} {unit}"
            )
    return f"{number:,.0f}"


def _table(rows: list[list[str]]) -> list[str]:
    """Returns lines with aligned columns; the first row is the heading."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]


# The plan


def read_config(settings: Settings) -> AlbertConfig:
    """Returns the config, which may be too large for this machine."""
    path = included.config_file(settings.albert_config_file)
    try:
        config = AlbertConfig.from_dict(files.read_json(path))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    config.check_length(settings.max_seq_length)
    return config


def plan_data(settings: Settings, config: AlbertConfig) -> data_costs.DataCosts:
    """Returns the costs of creating the records."""
    return data_costs.data_costs(
        text_bytes=settings.text_gigabytes * GIGABYTE,
        bytes_per_token=settings.bytes_per_token,
        filled=settings.filled,
        dupe_factor=settings.dupe_factor,
        length=settings.max_seq_length,
        predictions=settings.max_predictions_per_seq,
        vocab_size=config.vocab_size,
    )


def plan_training(settings: Settings, config: AlbertConfig, record_bytes: float) -> Training:
    """Returns what is trained, and how the time of a step is estimated."""
    seconds = run_costs.assumed_seconds(
        config, settings.utilization, settings.gradient_checkpointing
    )
    if settings.examples_per_second:

        def seconds(shape: StepShape, accelerator: Accelerator) -> float:
            return shape.rows / settings.examples_per_second

    return Training(
        config=config,
        batch_size=settings.train_batch_size,
        length=settings.max_seq_length,
        predictions=settings.max_predictions_per_seq,
        steps=settings.num_train_steps,
        bytes_per_value=4 if settings.precision == "float32" else 2,
        checkpointing=settings.gradient_checkpointing,
        record_bytes=record_bytes,
        link_bandwidth=settings.link_gigabytes_per_second * GIGABYTE,
        seconds_of_rows=seconds,
    )


def _model_lines(settings: Settings, config: AlbertConfig) -> list[str]:
    size = model_costs.checkpoint_bytes(config)
    seconds = size / (settings.storage_megabytes_per_second * MEGABYTE)
    shape = StepShape(
        settings.train_batch_size, settings.max_seq_length, settings.max_predictions_per_seq
    )
    flops = model_costs.step_costs(config, shape, settings.gradient_checkpointing).flops
    return [
        f"Model: {settings.albert_config_file}, {_count(model_costs.count_parameters(config))} "
        f"weights, {flops / 1e12:,.0f} TFLOPs per step",
        f"  a checkpoint with moments: {_bytes(size)}, written in {_duration(seconds)}",
    ]


def _data_lines(settings: Settings, costs: data_costs.DataCosts) -> list[str]:
    outputs = max(1, math.ceil(costs.total_bytes / OUTPUT_BYTES))
    spilled = costs.total_bytes / (settings.storage_megabytes_per_second * MEGABYTE)
    epochs = settings.train_batch_size * settings.num_train_steps / costs.records
    return [
        f"Data: {settings.text_gigabytes:g} GB of text, {_count(costs.tokens)} tokens, "
        f"dupe_factor {settings.dupe_factor}",
        f"  records: {_count(costs.records)} of {_bytes(costs.record_bytes)}, "
        f"{_bytes(costs.total_bytes)} in all; training reads each of them {epochs:.3g} times",
        f"  time: {_duration(costs.core_seconds / settings.cores)} on {settings.cores} cores; "
        f"writing and reading the work directory once at the rate of one host: "
        f"{_duration(2 * spilled)}",
        f"  outputs: --output_file=NAME@{outputs}, so that a worker shuffles at most "
        f"{_bytes(OUTPUT_BYTES)} in memory; free space for {_bytes(2 * costs.total_bytes)} "
        "while the program runs",
    ]


def _training_lines(runs: list[RunCosts], settings: Settings) -> list[str]:
    heading = ["devices", "rows", "micro-batches", "memory", "step", "all-reduce", "total"]
    rows = [[*heading, "reading per host"]]
    for run in runs:
        rows.append(
            [
                f"{run.devices}x{run.name}",
                str(run.rows),
                str(run.micro_batches or "does not fit"),
                _bytes(run.memory_bytes),
                _duration(run.step_seconds),
                f"{run.all_reduce_seconds / run.step_seconds:.1%}",
                _duration(run.total_seconds),
                f"{_bytes(run.read_bandwidth)}/s",
            ]
        )
    source = (
        f"{settings.examples_per_second:g} examples per second and device, as measured"
        if settings.examples_per_second
        else f"assuming {settings.utilization:.0%} of the peak rate, not measured"
    )
    heading_line = (
        f"Training: {settings.num_train_steps:,} steps of {settings.train_batch_size} x "
        f"{settings.max_seq_length} tokens; {source}"
    )
    return [heading_line, *_table(rows)]


def _limit_lines(training: Training, run: RunCosts, settings: Settings) -> list[str]:
    """Returns the limits of the last set of devices, the nearest first."""
    accelerator = ACCELERATORS[run.name]
    storage = settings.storage_megabytes_per_second * MEGABYTE
    state = model_costs.state_bytes(training.config, training.bytes_per_value)
    usable = run_costs.USABLE_MEMORY * accelerator.memory_bytes
    limits = [
        (run.read_bandwidth / storage, "reading records from uncompressed local files, per host"),
        (
            run.whole_bandwidth / storage,
            "reading records from gs://, s3:// or gzip files, per host",
        ),
        (run.parsed_tokens / run_costs.PARSED_TOKENS, "parsing records on two cores of a host"),
        (run.all_reduce_seconds / run.compute_seconds, "all-reduce, compared with the computation"),
        (run.devices / training.batch_size, "devices, compared with the rows of a batch"),
        (state / usable, "weights, gradients and moments in the memory of a device"),
    ]
    lines = [f"Limits of {run.devices}x{run.name}, the nearest first (100% is the limit)"]
    for used, name in sorted(limits, reverse=True):
        lines.append(f"  {used:8.2%}  {name}")
    found = run_costs.devices_where_exchange_dominates(training, run.name)
    lines.append(
        f"  the all-reduce takes as long as the computation from {found} devices on"
        if found
        else "  the all-reduce never takes as long as the computation"
    )
    return lines


def plan(settings: Settings) -> str:
    """Returns the plan of a run as text."""
    config = read_config(settings)
    data = plan_data(settings, config)
    training = plan_training(settings, config, data.record_bytes)
    chosen = [parse_devices(text) for text in settings.devices.split(",")]
    runs = [run_costs.run_costs(training, devices, name) for devices, name in chosen]
    parts = [
        _model_lines(settings, config),
        _data_lines(settings, data),
        _training_lines(runs, settings),
        _limit_lines(training, runs[-1], settings),
    ]
    return "\n".join(line for part in parts for line in part)


# Measured steps


def measure(settings: Settings) -> str:
    """Measures training steps, writes them, and returns how well the model of them fits."""
    from albert_tf.pretraining import step_timing

    points = []
    for name, rows, length, is_held_out in MEASURED_POINTS:
        config = AlbertConfig.from_json_file(name)
        shape = StepShape(rows, length, max(1, round(0.15 * length)))
        points.append((name, config, shape, is_held_out))
    devices = DeviceSettings(precision=settings.precision, num_devices=1)
    steps, conditions = step_timing.measure(points, devices)
    step_time.write_measured(settings.measure_steps, steps, conditions)
    return describe_fit(settings.measure_steps)


def describe_fit(path: str) -> str:
    """Returns measured and predicted times of all steps in a file as text."""
    steps, conditions = step_time.read_measured(path)
    model = step_time.fit(steps, conditions)
    rows = [["config", "batch", "measured", "predicted", "error", ""]]
    for step in steps:
        predicted = model.seconds(step.config, step.shape)
        rows.append(
            [
                step.name,
                f"{step.shape.rows} x {step.shape.length}",
                f"{step.seconds:.3f} s",
                f"{predicted:.3f} s",
                f"{predicted / step.seconds - 1:+.1%}",
                "held out" if step.is_held_out else "",
            ]
        )
    heading = "Measured steps: " + ", ".join(f"{key} {conditions[key]}" for key in conditions)
    return "\n".join([heading, *_table(rows)])


def predict(settings: Settings) -> str:
    """Returns the predicted time of the run on the machine of the measured steps as text."""
    config = read_config(settings)
    model = step_time.fit(*step_time.read_measured(settings.measured_steps))
    shape = StepShape(
        settings.train_batch_size, settings.max_seq_length, settings.max_predictions_per_seq
    )
    seconds = model.seconds(config, shape)
    error = max([model.fit_error, *map(abs, model.held_out_errors)])
    return "\n".join(
        [
            describe_fit(settings.measured_steps),
            f"{settings.albert_config_file}, {shape.rows} x {shape.length} tokens: "
            f"{_duration(seconds)} per step (± {error:.0%}, the largest error above), "
            f"{_duration(seconds * settings.num_train_steps)} for "
            f"{settings.num_train_steps:,} steps",
        ]
    )


def run(settings: Settings) -> str:
    """Plans, measures or predicts; returns the text to print."""
    if settings.measure_steps:
        return measure(settings)
    if settings.measured_steps:
        return predict(settings)
    return plan(settings)


def main() -> None:
    """Runs the command line of this process."""
    program.start(Settings, run, __doc__)


if __name__ == "__main__":
    main()

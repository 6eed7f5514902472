r"""Checks how correctly and how fast ALBERT trains on the GPU, TPU or CPU of this machine.

    python benchmarks/check_device.py --device=gpu | tee check.md

prints a Markdown table with a row for each check: versions, agreement of a pre-training step with
the CPU in float32 and bfloat16, determinism, training on two devices, and time, memory and FLOP/s
of a training step of ALBERT base. It takes up to ten minutes. Each check is a process of its own;
the others run even if one fails. The exit status is 1 if a check failed.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import json
import os
import platform
import resource
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras
from numpy.typing import NDArray

from albert_tf.model import dispatch, optimization
from albert_tf.model.config import AlbertConfig, config_file
from albert_tf.model.costs import StepShape, step_flops
from albert_tf.model.schedules import WarmUpPolynomialDecay
from albert_tf.pretraining.task import PretrainingTask
from albert_tf.tensorflow_releases import set_random_seed
from albert_tf.training import devices, replicas, strategies
from albert_tf.training.gpu_kernels import LARGEST_DIFFERENCE, PARTS, difference
from albert_tf.training.settings import DeviceSettings
from albert_tf.training.step import StepOptions, TrainStep
from albert_tf.version import __version__

DROPOUT = 0.1
SMALL_BATCH = StepShape(8, 32, 5)
# Largest norm of a difference, relative to the norm of the expected values.
LIMITS = {"float32": 1e-4, "bfloat16": 5e-2}
TWO_DEVICES_LIMIT = 1e-5
TRAINED_STEPS = 3
WARM_UP_STEPS = 2
TIMED_STEPS = 5
PASSED = "passed"
FAILED = "**failed**"
SKIPPED = "skipped"
SECONDS = 300  # after which a check has failed and is ended
MEASURE = "import check_device; check_device.measure()"

Batch = dict[str, NDArray[Any]]
Outcome = tuple[str, str]  # PASSED, FAILED or SKIPPED, and the figures or the reason


def read_config(name: str, dropout: float = 0.0) -> AlbertConfig:
    """Returns a config of this package with a dropout rate."""
    rates: Any = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    config = AlbertConfig.from_json_file(config_file(name))
    return dataclasses.replace(config, **rates)


class Training:
    """Pre-training with AdamW on a random batch.

    Args:
        strategy: the devices.
        config: the model.
        shape: the shape of the batch.
        precision_name: "float32", "bfloat16" or "float16".
        jit_compile: whether XLA compiles the step.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        config: AlbertConfig,
        shape: StepShape = SMALL_BATCH,
        precision_name: str = "float32",
        jit_compile: bool = False,
    ) -> None:
        devices.apply_precision(precision_name)
        batch = random_batch(shape.rows, shape.length, shape.predictions, config.vocab_size)
        self._step, self._inputs = make_step(strategy, config, batch, jit_compile=jit_compile)
        self.model = self._step.model

    def step(self) -> float:
        """Takes a training step, and returns the loss before it."""
        total, weight = self._step(self._inputs).loss.numpy()
        return float(total / weight)

    def gradient(self) -> list[NDArray[Any]]:
        """Returns the gradients of the first step, up to a factor: the moments after it."""
        slots = self._step.optimizer.slot_variables(self.model.trainable_variables)
        return [slot.numpy() for name, slot in slots.items() if name.endswith("adam_m")]


def relative_error(actual: Sequence[Any], expected: Sequence[Any]) -> float:
    """Returns the norm of the difference divided by the norm of the expected arrays."""
    flat, right = (np.concatenate([np.ravel(x) for x in arrays]) for arrays in (actual, expected))
    return float(np.linalg.norm(flat - right) / np.linalg.norm(right))


def within(limit: float, value: float, text: str) -> Outcome:
    """Returns whether a value is within its limit, and the text with the limit."""
    return PASSED if value <= limit else FAILED, f"{text} (at most {limit:g})"


def find_strategy(device: str, tpu_name: str = "") -> tf.distribute.Strategy:
    """Returns the strategy that computes on a device: "cpu", "gpu" or "tpu".

    Raises:
        ValueError: TensorFlow does not find the device; the message says what to do.
    """
    if device == "tpu":
        return strategies.make_strategy(DeviceSettings(use_tpu=True, tpu_name=tpu_name or None))
    if device == "gpu" and not tf.config.list_physical_devices("GPU"):
        raise ValueError(f"TensorFlow finds no GPU: {strategies.why_no_gpu()}")
    return tf.distribute.OneDeviceStrategy(f"/{device}:0")


# The checks, of a device and the name of a TPU
def check_versions(device: str, tpu_name: str) -> Outcome:
    """Names the device and its memory, and lists the versions of the software."""
    parts = [replicas.describe(find_strategy(device, tpu_name))]
    parts += [f"TensorFlow {tf.__version__}", f"tf_keras {tf_keras.__version__}"]
    parts.append(f"Python {platform.python_version()}")
    if device == "gpu":
        build = tf.sysconfig.get_build_info()
        parts += [f"{key} {build.get(key, '?')}" for key in ("cuda_version", "cudnn_version")]
        query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv"]
        parts += subprocess.check_output(query, text=True).strip().splitlines()
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as stream:
        names = [line.partition(":")[2].strip() for line in stream if "model name" in line]
        parts += [f"{len(names)} x {names[0]}"] if names else []
    return PASSED, "; ".join(parts)


def check_agreement(precision: str, device: str, tpu_name: str) -> Outcome:
    """Compares loss and gradient with those of plain operations in float32 on the CPU."""
    strategy = find_strategy(device, tpu_name)  # a TPU must be found before anything else
    cpu = find_strategy("cpu")
    tf.config.experimental.enable_tensor_float_32_execution(False)
    texts = []
    worst = 0.0
    for rate in (0.0, DROPOUT):
        config = read_config("albert_demo", rate)
        expected = Training(cpu, config)
        here = Training(strategy, config, SMALL_BATCH, precision)
        here.model.set_weights(expected.model.get_weights())
        with dispatch.plain():
            expected_loss = expected.step()
        loss = relative_error([here.step()], [expected_loss])
        gradient = relative_error(here.gradient(), expected.gradient())
        texts.append(f"dropout {rate:g}: loss {loss:.1e}, gradient {gradient:.1e}")
        worst = max(worst, loss, gradient)
    return within(LIMITS[precision], worst, "; ".join(texts))


def check_gpu_kernels(device: str, tpu_name: str) -> Outcome:
    """Compares the parts of a layer of ALBERT base that have kernels with the formulas."""
    del tpu_name
    if device != "gpu":
        return SKIPPED, "only NVIDIA GPUs run them"
    find_strategy(device)
    tf.config.experimental.enable_tensor_float_32_execution(False)
    shape = 2, 12, 512, 64
    texts = []
    worst = 0.0
    for rate in (0.0, DROPOUT):
        found = {part: difference(part, shape, tf.bfloat16, rate) for part in PARTS}
        texts.append(f"dropout {rate:g}: " + ", ".join(f"{k} {v:.1e}" for k, v in found.items()))
        worst = max(worst, *found.values())
    return within(LARGEST_DIFFERENCE, worst, "; ".join(texts))


def compare_weights(strategies: Sequence[tf.distribute.Strategy], dropout: float) -> float:
    """Returns the relative difference of the weights after a few steps with two strategies."""
    config = read_config("albert_demo", dropout)
    first, second = (Training(strategy, config) for strategy in strategies)
    second.model.set_weights(first.model.get_weights())
    for _ in range(TRAINED_STEPS):
        first.step()
        second.step()
    return relative_error(second.model.get_weights(), first.model.get_weights())


def check_determinism(device: str, tpu_name: str) -> Outcome:
    """Trains twice with dropout and TensorFlow's deterministic operations."""
    tf.config.experimental.enable_op_determinism()
    worst = compare_weights([find_strategy(device, tpu_name)] * 2, DROPOUT)
    return within(0.0, worst, f"weights of two runs with dropout differ by {worst:.1e}")


def check_two_devices(device: str, tpu_name: str) -> Outcome:
    """Trains on all cores of a TPU, or on two GPUs or parts of a CPU, and on one device."""
    tf.config.experimental.enable_tensor_float_32_execution(False)
    count = len(tf.config.list_physical_devices("GPU"))
    if device == "gpu" and count < 2:
        return SKIPPED, f"needs two GPUs; TensorFlow finds {count}"
    if device == "tpu":
        several = find_strategy(device, tpu_name)
        one = find_strategy("cpu")
    else:
        settings = DeviceSettings(distribution="mirrored", num_devices=2)
        several = strategies.make_strategy(settings)
        one = find_strategy(device)
    worst = compare_weights([one, several], 0.0)
    text = f"weights after training on {several.num_replicas_in_sync} devices differ by {worst:.1e}"
    return within(TWO_DEVICES_LIMIT, worst, text)


def check_speed(shape: StepShape, device: str, tpu_name: str) -> Outcome:
    """Measures time, memory and FLOP/s of a training step of ALBERT base without dropout."""
    strategy = find_strategy(device, tpu_name)
    config = read_config("albert_base")
    name, _ = devices.resolve_precision("auto")
    training = Training(strategy, config, shape, name, jit_compile=device == "gpu")
    times = []
    for _ in range(WARM_UP_STEPS + TIMED_STEPS):
        begin = time.perf_counter()
        loss = training.step()
        times.append(time.perf_counter() - begin)
    seconds = statistics.median(times[WARM_UP_STEPS:])
    rate = step_flops(config, shape) / seconds / 1e12
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 2**10
    if device != "cpu":
        try:
            memory = tf.config.experimental.get_memory_info(f"{device}:0")["peak"]
        except (ValueError, tf.errors.OpError):
            memory = 0  # unknown
    text = f"{name}: {seconds:.4g} s, {rate:.3g} TFLOP/s, peak {memory // 2**20} MB"
    return PASSED if np.isfinite(loss) else FAILED, text


CHECKS: dict[str, tuple[str, Callable[..., Outcome]]] = {
    "versions": ("device and versions", check_versions),
    "float32": ("step in float32", functools.partial(check_agreement, "float32")),
    "bfloat16": ("step in bfloat16", functools.partial(check_agreement, "bfloat16")),
    "gpu_kernels": ("kernels for NVIDIA GPUs", check_gpu_kernels),
    "determinism": ("determinism", check_determinism),
    "two_devices": ("two devices", check_two_devices),
    "speed_128": (
        "ALBERT base 8 x 128",
        functools.partial(check_speed, StepShape(8, 128, 20)),
    ),
    "speed_512": (
        "ALBERT base 4 x 512",
        functools.partial(check_speed, StepShape(4, 512, 76)),
    ),
}


def run(device: str, tpu_name: str, checks: Sequence[str]) -> None:
    """Makes the checks, and prints a row of the table as soon as each is finished.

    Raises:
        SystemExit: a check failed.
    """
    if device == "auto":
        device = "gpu" if tf.config.list_physical_devices("GPU") else "cpu"
    command = shlex.join([os.path.basename(sys.argv[0]), *sys.argv[1:]])
    print(f"`{command}`, {time.strftime('%d %B %Y')}, albert-tf2 {__version__}\n")
    print(f"| check | on `{device}` | figures |\n|---|---|---|", flush=True)
    outcomes = {}
    for name in checks:
        title = CHECKS[name][0]
        outcomes[title], text = make_check(name, device, tpu_name)
        print(f"| {title} | {outcomes[title]} | {text.replace('|', '/')} |", flush=True)
    if failed := [title for title, outcome in outcomes.items() if outcome == FAILED]:
        sys.exit(f"failed: {', '.join(failed)}; the table has the reasons")


def make_check(name: str, device: str, tpu_name: str) -> Outcome:
    """Makes a check in a process of its own, and returns the outcome that this printed."""
    folders = [os.path.dirname(os.path.abspath(__file__)), *sys.path]  # `-c` has another first one
    environment = os.environ | {
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        "PYTHONPATH": os.pathsep.join(folders),
    }
    if device == "cpu":
        environment["CUDA_VISIBLE_DEVICES"] = "-1"
    command = [sys.executable, "-c", MEASURE, name, device, tpu_name]
    start = functools.partial(subprocess.run, capture_output=True, text=True, check=False)
    try:
        done = start(command, env=environment, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return FAILED, f"not finished after {SECONDS} seconds"
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return FAILED, f"exit status {done.returncode}: {last}"
    outcome, text = json.loads(done.stdout.splitlines()[-1])
    return outcome, text


def measure() -> None:
    """Makes the check that the arguments of this process name, and prints its outcome."""
    name, *arguments = sys.argv[1:]
    try:
        outcome = CHECKS[name][1](*arguments)
    except ValueError as error:
        outcome = FAILED, " ".join(str(error).split())
    print(json.dumps(outcome))


def random_batch(rows: int, length: int, predictions: int, vocab_size: int) -> Batch:
    """Returns a batch of random tokens without padding, [rows, length]."""
    rng = np.random.default_rng(5)
    shape = (rows, length)
    masked = (rows, predictions)
    return {
        "input_ids": rng.integers(5, vocab_size, shape, np.int32),
        "input_mask": np.ones(shape, np.int32),
        "segment_ids": np.tile(np.arange(length, dtype=np.int32) * 2 // length, (rows, 1)),
        "masked_lm_positions": np.tile(np.arange(1, predictions + 1, dtype=np.int32), (rows, 1)),
        "masked_lm_ids": rng.integers(5, vocab_size, masked, np.int32),
        "masked_lm_weights": np.ones(masked, np.float32),
        "next_sentence_labels": rng.integers(0, 2, (rows, 1), np.int32),
    }


def make_step(
    strategy: tf.distribute.Strategy,
    config: AlbertConfig,
    batch: Batch,
    optimizer: str = "adamw",
    **options: Any,
) -> tuple[TrainStep, dict[str, tf.Tensor]]:
    """Returns a pre-training step in the current precision, and the batch as tensors."""
    task = PretrainingTask(config, batch["input_ids"].shape[1], batch["masked_lm_ids"].shape[1])
    step = make_task_step(task, strategy, optimizer, **options)
    return step, {name: tf.constant(value) for name, value in batch.items()}


def make_task_step(
    task: Any,
    strategy: tf.distribute.Strategy,
    optimizer: str,
    learning_rate: float = 1e-4,
    recompute: bool = False,
    **options: Any,
) -> TrainStep:
    """Returns the training step of a task, in the current precision, with random weights.

    Args:
        task: a `Task` with `build_model`.
        strategy: the devices.
        optimizer: name of the optimizer.
        learning_rate: its peak learning rate, which is that of the first step.
        recompute: whether to use gradient checkpointing.
        **options: of `StepOptions`.
    """
    set_random_seed(3)
    schedule = WarmUpPolynomialDecay(learning_rate, 1000)
    with strategy.scope():
        model = task.build_model()
        made = optimization.create_optimizer(optimizer, schedule)
    model.encoder.recompute = recompute
    return TrainStep(model, task, made, StepOptions(**options), strategy)


def main() -> None:
    """Parses the command line and makes the checks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--device",
        choices=("auto", "cpu", "gpu", "tpu"),
        default="auto",
        help="auto: the GPU if TensorFlow finds one, else the CPU",
    )
    parser.add_argument("--tpu_name", default="", help='name or address; "" for this machine')
    parser.add_argument("--checks", nargs="+", choices=CHECKS, default=tuple(CHECKS))
    args = parser.parse_args()
    run(args.device, args.tpu_name, args.checks)


if __name__ == "__main__":
    main()

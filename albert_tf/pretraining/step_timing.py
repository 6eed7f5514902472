"""Measures the time of pre-training steps on this machine, for `planning.step_time`."""

from __future__ import annotations

import contextlib
import gc
import os
import platform
import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras
from absl import logging
from numpy.typing import NDArray

from albert_tf import optimization
from albert_tf.config import AlbertConfig
from albert_tf.planning.model_costs import StepShape
from albert_tf.planning.step_time import MeasuredStep
from albert_tf.pretraining.task import PretrainingTask
from albert_tf.training import session
from albert_tf.training.settings import DeviceSettings
from albert_tf.training.step import StepOptions, TrainStep

SECONDS_PER_SHAPE = 4.0
MIN_STEPS, MAX_STEPS = 3, 50

# What to measure: name of the config, config, shape, and whether the step is held out of the fit.
Point = tuple[str, AlbertConfig, StepShape, bool]
Steps = list[MeasuredStep]


def random_batch(
    rows: int, length: int, predictions: int, vocab_size: int
) -> dict[str, NDArray[Any]]:
    """Returns a batch of random tokens without padding, [rows, length]."""
    rng = np.random.default_rng(5)
    shape, masked = (rows, length), (rows, predictions)
    return {
        "input_ids": rng.integers(5, vocab_size, shape, np.int32),
        "input_mask": np.ones(shape, np.int32),
        "segment_ids": np.tile(np.arange(length, dtype=np.int32) * 2 // length, (rows, 1)),
        "masked_lm_positions": np.tile(np.arange(1, predictions + 1, dtype=np.int32), (rows, 1)),
        "masked_lm_ids": rng.integers(5, vocab_size, masked, np.int32),
        "masked_lm_weights": np.ones(masked, np.float32),
        "next_sentence_labels": rng.integers(0, 2, (rows, 1), np.int32),
    }


def cpu_name() -> str:
    """Returns the name of the processor, or else of its architecture."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as stream:
        for line in stream:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def make_step(
    strategy: tf.distribute.Strategy,
    config: AlbertConfig,
    batch: dict[str, NDArray[Any]],
    optimizer: str = "adamw",
    **options: Any,
) -> tuple[TrainStep, dict[str, tf.Tensor]]:
    """Returns a training step in the current precision, and the batch as tensors."""
    tf_keras.utils.set_random_seed(3)
    task = PretrainingTask(config, batch["input_ids"].shape[1], batch["masked_lm_ids"].shape[1])
    schedule = optimization.WarmUpPolynomialDecay(1e-4, 1000)
    with strategy.scope():
        model = task.build_model()
        made = optimization.create_optimizer(optimizer, schedule)
    step = TrainStep(model, task, made, StepOptions(**options), strategy)
    return step, {name: tf.constant(value) for name, value in batch.items()}


def time_step(name: str, config: AlbertConfig, shape: StepShape, is_held_out: bool) -> MeasuredStep:
    """Returns the median time of a training step with AdamW, after the model was compiled.

    Args:
        name: name of the config.
        config: the model.
        shape: the batch.
        is_held_out: stored in the result.
    """
    batch = random_batch(shape.rows, shape.length, shape.predictions, config.vocab_size)
    is_compiled = bool(tf.config.list_logical_devices("GPU"))
    step, inputs = make_step(tf.distribute.get_strategy(), config, batch, jit_compile=is_compiled)
    times: list[float] = []
    while len(times) < MIN_STEPS + 1 or (
        sum(times[1:]) < SECONDS_PER_SHAPE and len(times) <= MAX_STEPS
    ):
        begin = time.perf_counter()
        tf.nest.map_structure(lambda value: value.numpy(), step(inputs))
        times.append(time.perf_counter() - begin)
    seconds = statistics.median(times[1:])  # the first step traces and compiles
    logging.info(
        "%s, %d x %d tokens: %.3f s (%d steps)",
        name,
        shape.rows,
        shape.length,
        seconds,
        len(times) - 1,
    )
    return MeasuredStep(name, config, shape, seconds, is_held_out)


def _device_name() -> str:
    """Returns the name of the first GPU, or else of the CPU and its number of cores."""
    if gpus := tf.config.list_physical_devices("GPU"):
        return str(tf.config.experimental.get_device_details(gpus[0]).get("device_name", "GPU"))
    return f"{os.cpu_count()} cores of {cpu_name()}"


def measure(points: Sequence[Point], settings: DeviceSettings) -> tuple[Steps, dict[str, Any]]:
    """Measures training steps on one device, one after the other.

    Args:
        points: what to measure.
        settings: the device and the precision.

    Returns:
        The steps; and the conditions: device, precision, TensorFlow's version and the date.
    """
    with session.use_devices(settings) as (_, precision):
        steps = []
        for point in points:
            steps.append(time_step(*point))
            tf_keras.backend.clear_session()  # frees the model
            gc.collect()
    return steps, {
        "device": _device_name(),
        "precision": precision,
        "tensorflow": tf.__version__,
        "date": time.strftime("%Y-%m-%d"),
    }

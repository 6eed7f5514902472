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

from albert_tf.config import AlbertConfig
from albert_tf.optimization import WarmUpPolynomialDecay, create_optimizer
from albert_tf.planning.model_costs import StepShape
from albert_tf.planning.step_time import MeasuredStep
from albert_tf.pretraining.task import PretrainingTask
from albert_tf.training import session
from albert_tf.training.settings import DeviceSettings
from albert_tf.training.step import StepOptions, TrainStep

SECONDS_PER_SHAPE = 4.0
MIN_STEPS, MAX_STEPS = 3, 50
FIRST_WORD = 5  # smaller ids are special symbols

# What to measure: name of the config, config, shape, and whether the step is held out of the fit.
Point = tuple[str, AlbertConfig, StepShape, bool]
Steps = list[MeasuredStep]


def _random_batch(config: AlbertConfig, shape: StepShape) -> dict[str, tf.Tensor]:
    """Returns a batch of random words without padding, keyed by feature name."""
    rng = np.random.default_rng(5)
    tokens, masked = (shape.rows, shape.length), (shape.rows, shape.predictions)
    words = rng.integers(min(FIRST_WORD, config.vocab_size - 1), config.vocab_size, tokens)
    positions = rng.permuted(np.tile(np.arange(shape.length), (shape.rows, 1)), axis=1)
    positions = np.sort(positions[:, : shape.predictions])
    arrays = {
        "input_ids": words,  # [B, S]
        "input_mask": np.ones(tokens),  # [B, S]
        "segment_ids": np.zeros(tokens),  # [B, S]
        "masked_lm_positions": positions,  # [B, P]
        "masked_lm_ids": np.take_along_axis(words, positions, axis=1),  # [B, P]
        "next_sentence_labels": rng.integers(0, 2, (shape.rows, 1)),  # [B, 1]
    }
    batch = {name: tf.constant(values.astype(np.int32)) for name, values in arrays.items()}
    return batch | {"masked_lm_weights": tf.ones(masked)}


def time_step(name: str, config: AlbertConfig, shape: StepShape, is_held_out: bool) -> MeasuredStep:
    """Returns the median time of a training step with AdamW, after the model was compiled.

    Args:
        name: name of the config.
        config: the model.
        shape: the batch.
        is_held_out: stored in the result.
    """
    task = PretrainingTask(config, shape.length, shape.predictions)
    batch = _random_batch(config, shape)
    model = task.build_model()
    model(batch)  # creates the weights
    optimizer = create_optimizer("adamw", WarmUpPolynomialDecay(1e-4, 10_000))
    optimizer.build(list(model.trainable_variables))
    signature = {key: tf.TensorSpec(value.shape, value.dtype) for key, value in batch.items()}
    is_compiled = bool(tf.config.list_logical_devices("GPU"))
    options = StepOptions(jit_compile=is_compiled)
    step = TrainStep(model, task, optimizer, options, batch_signature=signature)
    times: list[float] = []
    while len(times) < MIN_STEPS + 1 or (
        sum(times[1:]) < SECONDS_PER_SHAPE and len(times) <= MAX_STEPS
    ):
        begin = time.perf_counter()
        tf.nest.map_structure(lambda value: value.numpy(), step(batch))
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
    name = platform.machine()
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as stream:
        name = next(line.partition(":")[2].strip() for line in stream if "model name" in line)
    return f"{os.cpu_count()} cores of {name}"


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

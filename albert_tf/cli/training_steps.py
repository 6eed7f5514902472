"""Pre-training steps on random batches, which programs without data time, check and compile."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras
from numpy.typing import NDArray

from albert_tf.model import optimization
from albert_tf.model.config import AlbertConfig
from albert_tf.pretraining.task import PretrainingTask
from albert_tf.training.step import StepOptions, TrainStep


def random_batch(
    rows: int, length: int, predictions: int, vocab_size: int
) -> dict[str, NDArray[Any]]:
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
    batch: dict[str, NDArray[Any]],
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
    tf_keras.utils.set_random_seed(3)
    schedule = optimization.WarmUpPolynomialDecay(learning_rate, 1000)
    with strategy.scope():
        model = task.build_model()
        made = optimization.create_optimizer(optimizer, schedule)
    model.encoder.recompute = recompute
    return TrainStep(model, task, made, StepOptions(**options), strategy)

"""The splits of a task's data, and what the settings say about their batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from numpy.typing import NDArray

from albert_tf.finetuning import batching
from albert_tf.finetuning.batching import Features
from albert_tf.finetuning.settings import FineTuningSettings
from albert_tf.training import devices

GPU_MULTIPLE = 8  # for which tensor cores are fastest
MAX_LENGTHS = 64  # of batches on CPUs, by default

Outputs = Mapping[str, NDArray[Any]]


@dataclasses.dataclass(frozen=True, eq=False)
class Split:
    """Examples and their features.

    Attributes:
        name: "train", "dev", "test", or another split that the task predicts.
        data: the examples, as returned by `FineTuningTask.read`.
        features: their features, as returned by `FineTuningTask.make_features`.
    """

    name: str
    data: Any
    features: Features


def training_steps(settings: FineTuningSettings, num_examples: int) -> tuple[int, int]:
    """Returns the number of training steps and the number of warm-up steps.

    These are `train_step` and `warmup_step`. With `num_train_epochs`, they are the number of full
    batches in these epochs and the fraction `warmup_proportion` of it, both rounded down.

    Raises:
        ValueError: the epochs amount to less than one step.
    """
    if not settings.num_train_epochs:
        return settings.train_step, settings.warmup_step
    steps = int(num_examples / settings.train_batch_size * settings.num_train_epochs)
    if steps < 1:
        raise ValueError(
            f"--num_train_epochs={settings.num_train_epochs} with {num_examples} examples is less "
            f"than one step of --train_batch_size={settings.train_batch_size}"
        )
    return steps, int(steps * settings.warmup_proportion)


def training_order(settings: FineTuningSettings) -> batching.TrainingOrder:
    """Returns how training examples are shuffled and batched."""
    size = settings.train_batch_size
    seed = settings.seed
    if settings.official_order:
        return batching.TrainingOrder(size, seed, batching.OFFICIAL_SHUFFLE_BUFFER)
    return batching.TrainingOrder(size, seed, batches_to_sort=settings.BATCHES_TO_SORT)


def padding_multiple(settings: FineTuningSettings, strategy: tf.distribute.Strategy) -> int:
    """Returns the number of tokens of which the lengths of batches are multiples."""
    limit = settings.max_seq_length
    if devices.is_tpu(strategy):  # a single length: TPUs compile each shape separately
        return limit
    if settings.pad_to_multiple:
        return settings.pad_to_multiple
    if tf.config.list_physical_devices("GPU"):
        return GPU_MULTIPLE
    # XLA compiles the operations between the matmuls once for each length.
    return 2 * -(-limit // (2 * MAX_LENGTHS))

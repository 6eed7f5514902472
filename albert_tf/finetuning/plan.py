"""How many steps are trained, in which order, and how batches are padded: what the settings say."""

from __future__ import annotations

import math

import tensorflow as tf

from albert_tf.finetuning import batching
from albert_tf.finetuning.settings import FineTuningSettings
from albert_tf.training import replicas

GPU_MULTIPLE = 8  # for which tensor cores are fastest
MAX_LENGTHS = 64  # of batches on CPUs, by default


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


def padding_multiple(
    settings: FineTuningSettings, strategy: tf.distribute.Strategy, num_batches: int | None = None
) -> int:
    """Returns the number of tokens of which the lengths of batches are multiples.

    Args:
        settings: settings of the run.
        strategy: distribution strategy.
        num_batches: n if just n batches are computed, for which few lengths are compiled on CPUs:
            the square root of n, since the cost of the padding falls as 1 / lengths.
    """
    limit = settings.max_seq_length
    if replicas.is_tpu(strategy):  # a single length: TPUs compile each shape separately
        return limit
    if settings.pad_to_multiple:
        return settings.pad_to_multiple
    if tf.config.list_physical_devices("GPU"):
        return GPU_MULTIPLE
    # XLA compiles the operations between the matmuls once for each length.
    lengths = MAX_LENGTHS if num_batches is None else math.isqrt(max(num_batches, 1))
    return 2 * -(-limit // (2 * min(lengths, MAX_LENGTHS)))

"""The devices of a run: opened before TensorFlow is initialized, with threads and precision."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator

import tensorflow as tf
import tf_keras
from absl import logging

from albert_tf import files
from albert_tf.training import replicas, xla_flags
from albert_tf.training.precision import (
    apply_precision,
    precision_difference,
    processor,
    resolve_precision,
)
from albert_tf.training.settings import DeviceSettings
from albert_tf.training.strategies import make_strategy


@dataclasses.dataclass(frozen=True)
class Devices:
    """The devices of a run, and the precision they compute in.

    Attributes:
        strategy: the distribution strategy.
        precision: "float32", "bfloat16" or "float16".
    """

    strategy: tf.distribute.Strategy
    precision: str

    @property
    def is_chief(self) -> bool:
        """Whether this process writes files; of several workers, only the first one does."""
        return replicas.is_chief(self.strategy)


@contextlib.contextmanager
def open_devices(settings: DeviceSettings, reason: str | None = None) -> Iterator[Devices]:
    """Context manager that sets up devices, threads and precision.

    Keras' precision policy is restored at the end of the block. The block must be entered before
    TensorFlow is initialized.

    Args:
        settings: the devices, threads and precision.
        reason: why the precision was chosen, for the log, if it was not by a flag or the hardware.

    Raises:
        ValueError: the settings require devices that do not exist.
    """
    _set_threads(settings.threads)
    xla_flags.set_defaults()
    strategy = make_strategy(settings)
    name, why = resolve_precision(settings.precision)
    policy = tf_keras.mixed_precision.global_policy()
    apply_precision(name)
    why = f"{reason or why}{precision_difference(name)}"
    logging.info("%-9s %s, %s: %s", "device", replicas.describe(strategy), name, why)
    try:
        yield Devices(strategy, name)
    finally:
        tf_keras.mixed_precision.set_global_policy(policy)


def _set_threads(threads: int | None) -> None:
    if not threads or threads == tf.config.threading.get_intra_op_parallelism_threads():
        return
    try:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
    except RuntimeError:
        raise ValueError(
            f"--threads={threads}: TensorFlow is already initialized, so its number of threads "
            "can no longer be changed. Set it in a new process."
        ) from None


def describe(strategy: tf.distribute.Strategy, precision: str) -> files.JsonObject:
    """Returns what a run records of its devices: all that may change the rounding of numbers.

    Args:
        strategy: the distribution strategy.
        precision: "float32", "bfloat16" or "float16".
    """
    found: files.JsonObject = {"devices": replicas.describe(strategy), "precision": precision}
    if not replicas.is_tpu(strategy) and not tf.config.list_physical_devices("GPU"):
        found["threads"] = tf.config.threading.get_intra_op_parallelism_threads() or _count_cores()
        found["processor"] = processor()
    return found


def _count_cores() -> int:
    """Returns the number of cores that this process may use, which TensorFlow has a thread for."""
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

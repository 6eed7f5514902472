"""Where a run computes: on one device, on several, on several machines, or on a TPU.

A strategy of `tf.distribute` says it, made here from the flags over the Model Garden's
`official.common.distribute_utils`. What is to be computed is `train_step`'s.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from absl import logging

from albert_tf.training.settings import DeviceSettings

_TF_CONFIG_EXAMPLE = (
    '{"cluster": {"worker": ["host1:2222", "host2:2222"]}, "task": {"type": "worker", "index": 0}}'
)


def choose_distribution(settings: DeviceSettings) -> str:
    """The distribution that "auto" stands for; any other is itself.

    Raises:
        ValueError: the settings contradict one another.
    """
    name = settings.distribution
    if settings.use_tpu and name not in ("auto", "tpu"):
        raise ValueError(f"--use_tpu and --distribution={name} exclude each other: give one")
    if name != "auto":
        return name
    if settings.use_tpu:
        return "tpu"
    if len(_workers()) > 1:
        return "multi_worker"
    gpus = len(tf.config.list_physical_devices("GPU"))
    return "mirrored" if (settings.num_devices or gpus) > 1 else "one_device"


def _workers() -> list[str]:
    """The hosts of TF_CONFIG that compute."""
    text = os.environ.get("TF_CONFIG")
    if not text:
        return []
    try:
        cluster = json.loads(text).get("cluster", {})
        return [*cluster.get("chief", []), *cluster.get("worker", [])]
    except (ValueError, AttributeError, TypeError) as error:
        raise ValueError(
            f"TF_CONFIG is not what TensorFlow expects ({error}): {text!r}. An example: "
            f"{_TF_CONFIG_EXAMPLE}"
        ) from None


def make_strategy(
    settings: DeviceSettings, make_resolver: Callable[..., Any] | None = None
) -> tf.distribute.Strategy:
    """The strategy for these settings. Call it before anything else of TensorFlow.

    Args:
        settings: what the flags say.
        make_resolver: finds the TPU; in place of TensorFlow's `TPUClusterResolver`.

    Raises:
        ValueError: TF_CONFIG is missing, there are too few devices, or TensorFlow was in use.
    """
    name = choose_distribution(settings)
    if name == "one_device":
        strategy = tf.distribute.get_strategy()
    elif name == "tpu":
        strategy = _tpu_strategy(settings, make_resolver)
    elif name == "mirrored":
        strategy = _mirrored_strategy(settings.num_devices)
    else:
        strategy = _multi_worker_strategy(settings.num_devices)
    logging.info("Computing on %s", describe(strategy))
    return strategy


def _mirrored_strategy(num_devices: int) -> tf.distribute.Strategy:
    # It takes a second to import, and only several devices need it.
    from official.common import distribute_utils

    gpus = len(tf.config.list_physical_devices("GPU"))
    if gpus:
        if num_devices > gpus:
            raise ValueError(f"--num_devices={num_devices}: this machine has {gpus} GPU(s)")
        return distribute_utils.get_distribution_strategy("mirrored", num_gpus=num_devices or gpus)
    _split_cpu(num_devices or 1)
    cpus = [f"/cpu:{number}" for number in range(num_devices or 1)]
    return tf.distribute.MirroredStrategy(cpus)


def _split_cpu(count: int) -> None:
    """Makes `count` logical devices of this machine's processor."""
    (cpu,) = tf.config.list_physical_devices("CPU")
    try:
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * count
        )
    except RuntimeError as error:
        if len(tf.config.list_logical_devices("CPU")) < count:
            raise ValueError(
                f"the CPU cannot be split into --num_devices={count} any more: {error}"
            ) from None


def _multi_worker_strategy(num_devices: int) -> tf.distribute.Strategy:
    from official.common import distribute_utils

    if len(_workers()) < 2:
        raise ValueError(
            "--distribution=multi_worker: the environment variable TF_CONFIG must name the "
            f"workers and this one's index, for example {_TF_CONFIG_EXAMPLE}"
        )
    if num_devices > 1 and not tf.config.list_physical_devices("GPU"):
        raise ValueError("--num_devices: a worker without GPUs computes on one device")
    return distribute_utils.get_distribution_strategy("multi_worker_mirrored")


def _tpu_strategy(
    settings: DeviceSettings, make_resolver: Callable[..., Any] | None
) -> tf.distribute.Strategy:
    # Unlike the Model Garden's function, this one takes zone and project.
    make_resolver = make_resolver or tf.distribute.cluster_resolver.TPUClusterResolver
    name = settings.tpu_name or "local"
    try:
        resolver = make_resolver(tpu=name, zone=settings.tpu_zone, project=settings.gcp_project)
        if name != "local":
            tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (ValueError, tf.errors.OpError) as error:
        raise ValueError(
            f"--use_tpu: no TPU answers under --tpu_name={name} ({error}). On a TPU machine, "
            "install tensorflow-tpu in place of tensorflow; from elsewhere, give --tpu_name, "
            "--tpu_zone and --gcp_project."
        ) from None
    return tf.distribute.TPUStrategy(resolver)


def is_tpu(strategy: tf.distribute.Strategy) -> bool:
    """Whether it computes on a TPU."""
    return isinstance(strategy, tf.distribute.TPUStrategy)


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Whether this process is the one that writes files: with several workers, the first."""
    return bool(strategy.extended.should_checkpoint)


def is_multi_worker(strategy: tf.distribute.Strategy) -> bool:
    """Whether other processes compute with this one."""
    return strategy.num_replicas_in_sync != num_local_replicas(strategy)


def num_local_replicas(strategy: tf.distribute.Strategy) -> int:
    """Devices of this process."""
    if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return len(strategy.extended.worker_devices)
    return strategy.num_replicas_in_sync


def first_local_replica(strategy: tf.distribute.Strategy) -> int:
    """The number, over all workers, of this process' first device."""
    if not is_multi_worker(strategy):
        return 0
    resolver = strategy.cluster_resolver
    # A chief, where there is one, comes before all workers.
    has_chief = bool(resolver.cluster_spec().as_dict().get("chief"))
    index = resolver.task_id + (has_chief and resolver.task_type == "worker")
    return index * num_local_replicas(strategy)


def local_rows(strategy: tf.distribute.Strategy, batch_size: int) -> slice | None:
    """Which rows of each global batch this process computes; None for all of them.

    Args:
        strategy: of `make_strategy`.
        batch_size: rows of a global batch, a multiple of the number of devices.
    """
    if not is_multi_worker(strategy):
        return None
    share = batch_size // strategy.num_replicas_in_sync
    first = first_local_replica(strategy) * share
    return slice(first, first + num_local_replicas(strategy) * share)


def count_parts(strategy: tf.distribute.Strategy, batch_size: int, steps: int, limit: int) -> int:
    """Micro-batches that each device makes of its share of a batch.

    Args:
        strategy: of `make_strategy`.
        batch_size: rows of a global batch.
        steps: `--gradient_accumulation_steps`.
        limit: `--max_batch_per_device`, rows of a micro-batch at most; 0 for any number.

    Raises:
        ValueError: the batch cannot be divided so.
    """
    devices = strategy.num_replicas_in_sync
    if batch_size % (devices * steps):
        raise ValueError(
            f"--train_batch_size={batch_size} is no multiple of {devices} device(s) x "
            f"--gradient_accumulation_steps={steps}"
        )
    share = batch_size // devices
    while limit and (share // steps > limit or share % steps):
        steps += 1
    return steps


def describe(strategy: tf.distribute.Strategy) -> str:
    """The devices, in words."""
    if is_tpu(strategy):
        return f"{strategy.num_replicas_in_sync} TPU core(s)"
    gpus = tf.config.list_logical_devices("GPU")
    kind = (
        tf.config.experimental.get_device_details(tf.config.list_physical_devices("GPU")[0]).get(
            "device_name", "GPU"
        )
        if gpus
        else "CPU"
    )
    count = num_local_replicas(strategy)
    text = f"{count} x {kind}" if count > 1 else f"one {kind}"
    if is_multi_worker(strategy):
        number = first_local_replica(strategy) // count + 1
        text += f", worker {number} of {strategy.num_replicas_in_sync // count}"
    return text

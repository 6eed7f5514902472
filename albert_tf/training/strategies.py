"""Creates the distribution strategy: one device, several devices, several machines, or a TPU.

That of several machines is made by the Model Garden's `official.common.distribute_utils`.
"""

from __future__ import annotations

import os
import signal

import tensorflow as tf
from absl import logging

from albert_tf import tensorflow_packages
from albert_tf.training import interruption
from albert_tf.training.replicas import is_tpu
from albert_tf.training.settings import DeviceSettings, has_nvidia_gpu

_TF_CONFIG_EXAMPLE = (
    '{"cluster": {"worker": ["host1:2222", "host2:2222"]}, "task": {"type": "worker", "index": 0}}'
)


def choose_distribution(settings: DeviceSettings) -> str:
    """Returns the name of the distribution to use, resolving "auto".

    Raises:
        ValueError: the settings contradict each other, or TF_CONFIG is invalid.
    """
    name = settings.distribution
    if settings.use_tpu and name not in ("auto", "tpu"):
        raise ValueError(
            f"--use_tpu and --distribution={name} are mutually exclusive: use only one of them"
        )
    if name != "auto":
        return name
    if settings.use_tpu:
        return "tpu"
    if _count_workers() > 1:
        return "multi_worker"
    count = settings.num_devices or len(tf.config.list_physical_devices("GPU"))
    return "mirrored" if count > 1 else "one_device"


def _count_workers() -> int:
    """Returns the number of training processes in TF_CONFIG; 1 if it is not set."""
    if not os.environ.get("TF_CONFIG"):
        return 1
    try:
        cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver().cluster_spec().as_dict()
        return max(1, len(cluster.get("chief", ())) + len(cluster.get("worker", ())))
    except (ValueError, AttributeError, TypeError) as error:
        raise ValueError(
            f"TF_CONFIG is invalid ({error}): {os.environ['TF_CONFIG']!r}. "
            f"A valid example: {_TF_CONFIG_EXAMPLE}"
        ) from None


def make_strategy(settings: DeviceSettings) -> tf.distribute.Strategy:
    """Creates the distribution strategy for the settings.

    Raises:
        ValueError: TF_CONFIG is missing, there are too few devices, or TensorFlow has already been
            initialized.
    """
    name = choose_distribution(settings)
    if name == "one_device":
        # Unlike the Model Garden's OneDeviceStrategy, the default strategy has no overhead.
        strategy = tf.distribute.get_strategy()
    elif name == "tpu":
        strategy = _tpu_strategy(settings)
    elif name == "mirrored":
        strategy = _mirrored_strategy(settings.num_devices)
    else:
        strategy = _multi_worker_strategy(settings.num_devices)
    if not is_tpu(strategy):
        _warn_of_unused_gpus()
    return strategy


def _mirrored_strategy(num_devices: int | None) -> tf.distribute.Strategy:
    count = len(tf.config.list_physical_devices("GPU"))
    if count:
        if num_devices and num_devices > count:
            raise ValueError(f"--num_devices={num_devices}: this machine has {count} GPU(s)")
        return tf.distribute.MirroredStrategy(
            [f"/gpu:{number}" for number in range(num_devices or count)]
        )
    if not num_devices:
        raise ValueError(
            f"--distribution=mirrored: TensorFlow finds no GPU: {why_no_gpu()}. To use logical "
            "devices of the CPU instead, set their number, for example --num_devices=2."
        )
    logging.warning(
        "--num_devices=%d: TensorFlow finds no GPU in this machine. Using %d logical devices of "
        "the CPU, which are not faster than one.",
        num_devices,
        num_devices,
    )
    _split_cpu(num_devices)
    return tf.distribute.MirroredStrategy([f"/cpu:{number}" for number in range(num_devices)])


def _warn_of_unused_gpus() -> None:
    """Warns if this machine has an NVIDIA GPU that TensorFlow does not find."""
    if has_nvidia_gpu() and not tf.config.list_physical_devices("GPU"):
        text = "This machine has an NVIDIA GPU, but TensorFlow finds none: %s"
        logging.warning(text, why_no_gpu())


def why_no_gpu() -> str:
    """Returns why TensorFlow finds no GPU, or what to check, and the command that repairs it."""
    install = f"pip install {tensorflow_packages.requirement('tensorflow[and-cuda]')}"
    if not tf.test.is_built_with_cuda():
        return f"it is built without CUDA. Run: {install}"
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if hidden is not None and hidden.strip() in ("", "-1"):
        return f"CUDA_VISIBLE_DEVICES={hidden!r} hides them"
    return f"check the driver with nvidia-smi, and install the CUDA libraries with {install}"


def _split_cpu(count: int) -> None:
    """Splits the CPU of this machine into `count` logical devices."""
    (cpu,) = tf.config.list_physical_devices("CPU")
    try:
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * count
        )
    except RuntimeError as error:
        if len(tf.config.list_logical_devices("CPU")) < count:
            raise ValueError(
                f"the CPU can no longer be split into --num_devices={count}: {error}"
            ) from None


def _multi_worker_strategy(num_devices: int | None) -> tf.distribute.Strategy:
    if _count_workers() < 2:
        raise ValueError(
            "--distribution=multi_worker: the environment variable TF_CONFIG must list the "
            f"workers and the index of this one, for example {_TF_CONFIG_EXAMPLE}"
        )
    count = max(1, len(tf.config.list_physical_devices("GPU")))
    if num_devices and num_devices > count:
        raise ValueError(f"--num_devices={num_devices}: this worker can only use {count} device(s)")
    tensorflow_packages.require_model_garden()
    from official.common import distribute_utils

    logging.info("Waiting for all workers in TF_CONFIG")
    with interruption.unchanged_handlers():
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # TensorFlow returns to Python when all came
        return distribute_utils.get_distribution_strategy("multi_worker_mirrored")


def _tpu_strategy(settings: DeviceSettings) -> tf.distribute.Strategy:
    # Not the Model Garden's function, which has no arguments for zone and project.
    name = settings.tpu_name or "local"
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
            tpu=name, zone=settings.tpu_zone, project=settings.gcp_project
        )
        if name != "local":
            tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (ValueError, tf.errors.OpError) as error:
        reason = str(error).partition("\n")[0]  # a listing may follow
        raise ValueError(
            f"--use_tpu: cannot initialize the TPU --tpu_name={name}: {reason}\n"
            "docs/tpu.md has the packages that a TPU needs, and the flags of a remote one."
        ) from None
    return tf.distribute.TPUStrategy(resolver)

"""From settings to a running program: devices, precision, output directory, trainer.

Every program that trains begins with this:

    with open_session(settings, config) as strategy:
        trainer = make_trainer(settings, task, schedule, strategy)
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
import tf_keras
from absl import logging

from albert_tf import files, optimization
from albert_tf.checkpoints import loading
from albert_tf.config import AlbertConfig
from albert_tf.optimization import WarmUpPolynomialDecay
from albert_tf.training import devices, loop, precision, run_directory
from albert_tf.training.settings import DeviceSettings, RunSettings
from albert_tf.training.step import StepOptions, TrainStep

CONFIG_NAME = "albert_config.json"


def keep_config(output_dir: str, path: str) -> AlbertConfig:
    """Reads the config of a model, and keeps a copy of it in the output directory.

    Args:
        output_dir: made if need be.
        path: `--albert_config_file`.

    Raises:
        ValueError: the directory cannot be written to, or holds the config of another model.
    """
    config = AlbertConfig.from_json_file(path)
    files.make_directory(output_dir, "--output_dir")
    copy = os.path.join(output_dir, CONFIG_NAME)
    if not files.exists(copy):
        config.to_json_file(copy)
        return config
    here, there = config.to_dict(), AlbertConfig.from_json_file(copy).to_dict()
    differing = [
        f"{key} is {there.get(key)} there, {here.get(key)} in {path}"
        for key in sorted(here.keys() | there.keys())
        if here.get(key) != there.get(key)
    ]
    if differing:
        raise ValueError(
            f"--output_dir={output_dir} holds another model ({copy}): {'; '.join(differing)}. "
            "Use another folder."
        )
    return config


@contextlib.contextmanager
def use_devices(settings: DeviceSettings) -> Iterator[tuple[tf.distribute.Strategy, str]]:
    """Sets up devices, threads and precision for a `with` block, and says which.

    The precision policy of Keras is that of before when the block ends. Enter it before TensorFlow
    computes anything.

    Returns:
        the distribution strategy, and the precision: "float32", "bfloat16" or "float16".

    Raises:
        ValueError: the settings ask for devices that do not exist.
    """
    _set_threads(settings.threads)
    strategy = devices.make_strategy(settings)
    name, reason = precision.resolve(settings.precision)
    policy = tf_keras.mixed_precision.global_policy()
    precision.apply(name)
    logging.info("Computing in %s: %s", name, reason)
    try:
        yield strategy, name
    finally:
        tf_keras.mixed_precision.set_global_policy(policy)


def _set_threads(threads: int) -> None:
    if not threads or threads == tf.config.threading.get_intra_op_parallelism_threads():
        return
    try:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
    except RuntimeError:
        raise ValueError(
            f"--threads={threads}: TensorFlow has computed in this process, so its threads are "
            "fixed. Set them in a new process."
        ) from None


@contextlib.contextmanager
def open_session(settings: RunSettings, config: AlbertConfig) -> Iterator[tf.distribute.Strategy]:
    """Sets up devices as `use_devices`, locks `output_dir`, and describes the run in `run.json`.

    Only the first of several workers, the chief, locks and writes to the directory.

    Args:
        settings: of the run; `output_dir` exists.
        config: of the model, for `run.json`.

    Raises:
        ValueError: another process works in `output_dir`, or as `use_devices`.
    """
    with contextlib.ExitStack() as stack:
        strategy, precision_name = stack.enter_context(use_devices(settings))
        if devices.is_chief(strategy):
            stack.enter_context(run_directory.lock(settings.output_dir))
            device = {"devices": devices.describe(strategy), "precision": precision_name}
            run_directory.describe_run(
                settings.output_dir,
                command=sys.argv,
                settings=dataclasses.asdict(settings),
                config=config.to_dict(),
                device=device,
            )
        yield strategy


def make_trainer(
    settings: RunSettings,
    task: Any,
    schedule: WarmUpPolynomialDecay,
    strategy: tf.distribute.Strategy,
    batch_signature: dict[str, tf.TensorSpec] | None = None,
    init_from_group0: bool = False,
) -> loop.Trainer:
    """Returns a trainer at the newest checkpoint of `output_dir`, or at its start.

    Args:
        settings: of the run.
        task: as in `TrainStep`, with `build_model`.
        schedule: of the learning rate, for all steps of training.
        strategy: of `open_session`.
        batch_signature: as in `TrainStep`.
        init_from_group0: as in `load_checkpoint`, for `init_checkpoint`.

    Raises:
        ValueError: a checkpoint in `output_dir`, or `init_checkpoint`, does not fit the model; or
            a batch cannot be divided among the devices.
    """
    options = StepOptions(
        seed=settings.seed,
        micro_batches=devices.count_micro_batches(
            strategy,
            settings.train_batch_size,
            settings.gradient_accumulation_steps,
            settings.max_batch_per_device,
        ),
        clip_per_replica=settings.clip_per_replica,
        jit_compile=_compiles(settings, strategy),
    )
    tf_keras.utils.set_random_seed(settings.seed)
    with strategy.scope():
        model = task.build_model()
        model.encoder.recompute = settings.recompute
        optimizer = optimization.create_optimizer(settings.optimizer, schedule)
        loss_scale = precision.LossScale() if precision.current() == "float16" else None
    take_step = TrainStep(model, task, optimizer, options, strategy, batch_signature, loss_scale)
    trainer = loop.Trainer(take_step, settings, schedule.num_train_steps)
    if trainer.restore_latest():
        logging.info("Going on from step %d of %s", trainer.step, settings.output_dir)
    elif settings.init_checkpoint:
        loading.load_checkpoint(
            model, settings.init_checkpoint, settings.allow_partial_init, init_from_group0
        )
    else:
        logging.warning("No --init_checkpoint: training starts from random weights")
    return trainer


def _compiles(settings: DeviceSettings, strategy: tf.distribute.Strategy) -> bool:
    """Returns whether the training step is compiled with XLA."""
    if settings.jit_compile != "auto":
        return settings.jit_compile == "true"
    is_one_device = strategy.num_replicas_in_sync == 1
    return is_one_device and bool(tf.config.list_physical_devices("GPU"))

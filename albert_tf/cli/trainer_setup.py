"""What the flags say of devices and of training, made real: strategy, precision, trainer.

TensorFlow is imported by these functions only, so that `--help` answers at once.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import sys
from typing import TYPE_CHECKING, Any

from absl import flags, logging

from albert_tf.config import AlbertConfig
from albert_tf.training import run_directory

if TYPE_CHECKING:
    import tensorflow as tf

    from albert_tf.optimization import WarmUpPolynomialDecay
    from albert_tf.training.loop import Trainer

FLAGS = flags.FLAGS
_HELD = contextlib.ExitStack()  # until the process ends
atexit.register(_HELD.close)
_SETTLED: dict[str, tf.distribute.Strategy] = {}


def begin_run(config: AlbertConfig) -> None:
    """Takes --output_dir, settles the devices, and describes the run in `run.json`.

    Call it before TensorFlow computes anything.

    Args:
        config: of the model.

    Raises:
        ValueError: another process works in --output_dir, or the flags ask for devices that there
            are not.
    """
    from albert_tf.training import devices

    name = set_up_devices()
    rates = FLAGS.learning_rate if "learning_rate" in FLAGS else 0.0
    is_sweep = isinstance(rates, tuple) or ("num_runs" in FLAGS and FLAGS.num_runs > 1)
    if is_sweep and devices.is_multi_worker(strategy()):
        raise ValueError("with several workers, give one --learning_rate and --num_runs=1")
    if not is_chief():
        return
    _HELD.enter_context(run_directory.lock(FLAGS.output_dir))
    own = {flag.name: flag.value for flag in FLAGS.get_key_flags_for_module(sys.argv[0])}
    device = {"devices": devices.describe(strategy()), "precision": name}
    run_directory.describe_run(FLAGS.output_dir, sys.argv, own, config.to_dict(), device)


def set_up_devices() -> str:
    """Settles devices, threads and precision, says so, and returns the precision.

    Raises:
        ValueError: the flags ask for what there is not.
    """
    import tensorflow as tf

    from albert_tf.training import devices, precision
    from albert_tf.training.settings import DeviceSettings

    if FLAGS.threads:
        tf.config.threading.set_intra_op_parallelism_threads(FLAGS.threads)
    names = ("distribution", "num_devices", "use_tpu", "tpu_name", "tpu_zone", "gcp_project")
    settings = DeviceSettings(**{flag: FLAGS[flag].value for flag in names})
    _SETTLED["strategy"] = devices.make_strategy(settings)
    name, reason = precision.resolve(FLAGS.precision)
    precision.apply(name)
    logging.info("Computing in %s: %s", name, reason)
    for flag in ("master", "num_tpu_cores", "iterations_per_loop"):
        if FLAGS[flag].present:
            logging.info("--%s has no effect", flag)
    return name


def strategy() -> tf.distribute.Strategy:
    """The strategy of this run, which `begin_run` has made."""
    return _SETTLED["strategy"]


def is_chief() -> bool:
    """Whether this process is the one that evaluates and writes files."""
    from albert_tf.training import devices

    return devices.is_chief(strategy())


def leave_the_rest_to_the_chief() -> None:
    """Ends this process, when there are several workers and it is not their first."""
    if not is_chief():
        logging.info("Trained. The first worker does what is left.")
        sys.exit(0)


def needs_fixed_shapes() -> bool:
    """Whether batches have to be padded to one length: a TPU compiles for each anew."""
    from albert_tf.training import devices

    return devices.is_tpu(strategy())


def first_weights() -> str | None:
    """Where training starts from: --init_checkpoint, or the folder of a TF-Hub module.

    Raises:
        ValueError: both are given, or a module that is not on this disk.
    """
    handle = FLAGS.albert_hub_module_handle if "albert_hub_module_handle" in FLAGS else None
    if not handle:
        return FLAGS.init_checkpoint or None
    if FLAGS.init_checkpoint:
        raise ValueError(
            "--init_checkpoint and --albert_hub_module_handle: only one of them can give the "
            "weights; leave the other out"
        )
    if handle.startswith(("http://", "https://")):
        raise ValueError(
            f"--albert_hub_module_handle={handle}: nothing is downloaded. Unpack the module into a "
            "folder and name that."
        )
    return handle


def make_trainer(
    task: Any,
    schedule: WarmUpPolynomialDecay,
    optimizer: str = "adamw",
    batch_signature: dict[str, Any] | None = None,
) -> Trainer:
    """A trainer as the flags say, at the newest checkpoint of --output_dir or at its start.

    Args:
        task: as in `Trainer`, with `build_model`.
        schedule: of the learning rate, for all steps of training.
        optimizer: "adamw" or "lamb".
        batch_signature: as in `Trainer`.

    Raises:
        ValueError: what is in --output_dir, or --init_checkpoint, does not fit the model; or the
            batch cannot be divided among the devices.
    """
    from albert_tf.training import session
    from albert_tf.training.settings import RunSettings

    names = [field.name for field in dataclasses.fields(RunSettings) if field.name in FLAGS]
    settings = RunSettings(**{name: FLAGS[name].value for name in names})
    settings = dataclasses.replace(settings, optimizer=optimizer, init_checkpoint=first_weights())
    from_group0 = "init_from_group0" in FLAGS and FLAGS.init_from_group0
    return session.make_trainer(settings, task, schedule, strategy(), batch_signature, from_group0)

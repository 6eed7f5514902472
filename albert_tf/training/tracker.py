"""The tracker of a run: its metrics and settings for TensorBoard, and Weights & Biases."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping
from typing import Protocol

import tensorflow as tf

from albert_tf import files
from albert_tf.checkpoints import store
from albert_tf.setting_values import Scalar
from albert_tf.settings import SettingValue
from albert_tf.training.settings import RunSettings

_UPLOAD_SECONDS = 60  # between two uploads of TensorBoard's file
TRAIN = "train/"  # prefix of the tags of training
_PROJECT = "albert-tf2"  # in Weights & Biases, unless WANDB_PROJECT is set


class WandbRun(Protocol):
    """A run of Weights & Biases."""

    def finish(self) -> None:
        """Uploads what is left."""


class Tracker:
    """Context manager that reports the metrics of a run, in addition to `metrics.jsonl`.

    It writes summary files, including the settings for TensorBoard's HParams dashboard, which are
    opened when the first metrics are written. For a remote directory they are local, and uploaded
    once a minute and at the end.

    Args:
        output_dir: the output directory of the run.
        to_wandb: whether Weights & Biases receives what TensorBoard does.
        settings: name → value of the run's settings, reported as hyperparameters.
    """

    def __init__(
        self,
        output_dir: str,
        to_wandb: bool = False,
        settings: Mapping[str, SettingValue] | None = None,
    ) -> None:
        self._output_dir = output_dir
        self._to_wandb = to_wandb
        self._settings = hyperparameters(settings or {})
        self._writer: tf.summary.SummaryWriter | None = None
        self._wandb_run: WandbRun | None = None

    def __enter__(self) -> Tracker:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is None:
            return
        self._writer.close()
        if files.is_remote(self._output_dir):
            with self._local:
                self._upload()
        if self._wandb_run is not None:
            self._wandb_run.finish()

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Reports metrics, as tag → value.

        Raises:
            OSError: the disk is full, or the file system does not respond.
        """
        if self._to_wandb and self._wandb_run is None:
            self._wandb_run = _start_wandb(self._output_dir, self._settings)
        with store.naming_disk_errors(self._output_dir, "the summaries"):
            if self._writer is None:
                self._writer = self._open()
            with self._writer.as_default(step):
                for name, value in values.items():
                    tf.summary.scalar(name, value)
            self._writer.flush()
        if files.is_remote(self._output_dir) and time.monotonic() >= self._next_upload:
            self._upload()

    def _open(self) -> tf.summary.SummaryWriter:
        """Opens the summary files, which have the settings first."""
        self._folder = self._output_dir
        if files.is_remote(self._output_dir):
            self._local = tempfile.TemporaryDirectory()
            self._folder = self._local.name
            self._next_upload = time.monotonic() + _UPLOAD_SECONDS
        writer = tf.summary.create_file_writer(self._folder)
        if self._settings:
            from tensorboard.plugins.hparams import api  # comes with TensorFlow

            with writer.as_default(0):
                api.hparams(self._settings, trial_id=_name_of_run(self._output_dir))
        return writer

    def _upload(self) -> None:
        for name in os.listdir(self._folder):
            path = os.path.join(self._output_dir, name)
            files.copy(os.path.join(self._folder, name), path)
        self._next_upload = time.monotonic() + _UPLOAD_SECONDS


def _start_wandb(output_dir: str, settings: Mapping[str, Scalar]) -> WandbRun:
    """Starts a run of Weights & Biases, which uploads what is written for TensorBoard from now on.

    Its environment variables configure it, such as WANDB_RUN_ID to continue a run.
    """
    import wandb

    run: WandbRun = wandb.init(
        project=os.environ.get("WANDB_PROJECT", _PROJECT),
        name=os.environ.get("WANDB_NAME", _name_of_run(output_dir)),
        dir=None if files.is_remote(output_dir) else output_dir,
        config=settings,
        sync_tensorboard=True,
    )
    return run


def make_tracker(settings: RunSettings) -> Tracker:
    """Returns the tracker for a run with these settings."""
    return Tracker(settings.output_dir, settings.report_to == "wandb", settings.to_dict())


def hyperparameters(settings: Mapping[str, SettingValue]) -> dict[str, Scalar]:
    """Returns settings as numbers and strings, without those that are None.

    >>> hyperparameters({"seed": 7, "learning_rate": (1e-5, 3e-5), "init_checkpoint": None})
    {'seed': 7, 'learning_rate': '1e-05,3e-05'}
    """
    return {
        name: ",".join(map(str, value)) if isinstance(value, tuple) else value
        for name, value in settings.items()
        if value is not None
    }


def _name_of_run(output_dir: str) -> str:
    return os.path.basename(output_dir.rstrip("/")) or output_dir

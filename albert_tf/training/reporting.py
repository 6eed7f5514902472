"""Reports metrics to TensorBoard, Weights & Biases and MLflow, in addition to `metrics.jsonl`."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import tensorflow as tf
from absl import logging

from albert_tf import files
from albert_tf.checkpoints import run_record
from albert_tf.training.settings import LoggingSettings, RunSettings

# Names in `--report_to`; the services are also those in run.json.
_TENSORBOARD = "tensorboard"
_WANDB = "wandb"
_MLFLOW = "mlflow"
_UPLOAD_SECONDS = 60  # between two uploads of TensorBoard's file
_PROJECT = "albert-tf2"  # in Weights & Biases, unless WANDB_PROJECT is set

Hyperparameters = dict[str, bool | int | float | str]


class Reporter(Protocol):
    """Interface of a metrics reporter, constructed from the output directory and the settings."""

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Reports the metrics of a step, under tags such as `train/loss`."""

    def close(self, is_complete: bool) -> None:
        """Ends reporting; `is_complete` tells whether the run ended without an error."""


class TensorBoard:
    """Writes summary files, including the settings for TensorBoard's HParams dashboard.

    For a remote directory the file is local, and uploaded once a minute and at the end.

    Raises:
        OSError: the disk is full, or the file system does not respond.
    """

    def __init__(self, output_dir: str, settings: Hyperparameters) -> None:
        self._output_dir = output_dir
        self._folder = output_dir
        if files.is_remote(output_dir):
            self._local = tempfile.TemporaryDirectory()
            self._folder = self._local.name
            self._next_upload = time.monotonic() + _UPLOAD_SECONDS
        with self._converting_errors():
            self._writer = tf.summary.create_file_writer(self._folder)
            if settings:
                # TensorBoard comes with TensorFlow.
                from tensorboard.plugins.hparams import api as hparams

                with self._writer.as_default(0):
                    hparams.hparams(settings, trial_id=_name(output_dir))

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Writes a scalar summary for each metric."""
        with self._converting_errors():
            with self._writer.as_default(step):
                for name, value in values.items():
                    tf.summary.scalar(name, value)
            self._writer.flush()
        if files.is_remote(self._output_dir) and time.monotonic() >= self._next_upload:
            self._upload()

    def close(self, is_complete: bool) -> None:
        """Closes the summary file."""
        self._writer.close()
        if files.is_remote(self._output_dir):
            with self._local:
                self._upload()

    def _upload(self) -> None:
        for name in os.listdir(self._folder):
            path = os.path.join(self._output_dir, name)
            files.copy(os.path.join(self._folder, name), path)
        self._next_upload = time.monotonic() + _UPLOAD_SECONDS

    @contextlib.contextmanager
    def _converting_errors(self) -> Iterator[None]:
        """Converts TensorFlow's errors about the summary file to OSError."""
        try:
            yield
        except tf.errors.OpError as error:
            is_full = isinstance(error, tf.errors.ResourceExhaustedError)
            reason = "the disk is full" if is_full else "the summaries cannot be written"
            message = " ".join(error.message.split())
            raise OSError(f"{self._output_dir}: {reason} ({message})") from None


class WeightsAndBiases:
    """Reports to Weights & Biases; a resumed run continues the W&B run whose id it recorded."""

    def __init__(self, output_dir: str, settings: Hyperparameters) -> None:
        import wandb

        recorded = run_record.read_reporting(output_dir, _WANDB, str)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", _PROJECT),
            name=os.environ.get("WANDB_NAME", _name(output_dir)),
            id=recorded,
            resume="allow",
            dir=None if files.is_remote(output_dir) else output_dir,
            config=settings,
            allow_val_change=True,
            settings=wandb.Settings(console="off"),  # the console belongs to the program
        )
        if recorded is None:
            run_record.write_entry(output_dir, run_record.REPORTING, {_WANDB: self._run.id})
        # W&B's own step counter can only increase, but a resumed run repeats some steps.
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Logs the metrics."""
        self._run.log({"step": step} | dict(values))

    def close(self, is_complete: bool) -> None:
        """Finishes the W&B run after uploading all logged metrics."""
        self._run.finish(exit_code=0 if is_complete else 1)


class MLflow:
    """Reports to MLflow; a resumed run continues the MLflow run whose id it recorded."""

    def __init__(self, output_dir: str, settings: Hyperparameters) -> None:
        import mlflow

        self._mlflow = mlflow
        recorded = run_record.read_reporting(output_dir, _MLFLOW, str)
        name = None if recorded else _name(output_dir)
        run = mlflow.start_run(run_id=recorded, run_name=name, nested=True)
        self._run_id = run.info.run_id
        if recorded is None:
            run_record.write_entry(output_dir, run_record.REPORTING, {_MLFLOW: self._run_id})
            mlflow.log_params(settings)  # parameters cannot be changed later

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Logs the metrics."""
        self._mlflow.log_metrics(dict(values), step=step, run_id=self._run_id)

    def close(self, is_complete: bool) -> None:
        """Ends the MLflow run."""
        self._mlflow.end_run("FINISHED" if is_complete else "FAILED")


_REPORTERS: dict[str, Callable[[str, Hyperparameters], Reporter]] = {
    _TENSORBOARD: TensorBoard,
    _WANDB: WeightsAndBiases,
    _MLFLOW: MLflow,
}


class Reports:
    """Context manager that reports the metrics of a run to each reporter in `--report_to`.

    Reporters are opened when the first metrics are written. If a service fails, which is logged,
    training continues without it. `metrics.jsonl` has all metrics.

    Args:
        output_dir: the output directory of the run.
        report_to: names of the reporters, as in `LoggingSettings`.
        settings: name → value of the run's settings, reported as hyperparameters.
    """

    def __init__(
        self,
        output_dir: str,
        report_to: tuple[str, ...] = LoggingSettings.report_to,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self._output_dir = output_dir
        self._names = [name for name in _REPORTERS if name in report_to]
        self._settings = hyperparameters(settings or {})
        self._open: dict[str, Reporter] = {}

    def __enter__(self) -> Reports:
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        self.close(is_complete=error_type is None)

    def write(self, rows: Mapping[int, Mapping[str, float]]) -> None:
        """Reports metrics.

        Args:
            rows: step → tag → value.

        Raises:
            OSError: TensorBoard's file cannot be written.
        """
        for name in list(self._names):
            is_file = name == _TENSORBOARD
            with contextlib.nullcontext() if is_file else self._without_failed_service(name):
                if name not in self._open:
                    self._open[name] = _REPORTERS[name](self._output_dir, self._settings)
                for step, values in rows.items():
                    self._open[name].write(step, values)

    @contextlib.contextmanager
    def _without_failed_service(self, name: str) -> Iterator[None]:
        """Logs the failure of a service, which is not reported to from then on."""
        try:
            yield
        except Exception as error:  # no error of a service may abort a long training run
            if name not in self._names:  # has failed before
                return
            self._names.remove(name)
            logging.warning(
                "Reporting to %s failed and ends here: %s. Training continues, and metrics.jsonl "
                "has all metrics.",
                name,
                " ".join(str(error).split()).rstrip(".") or type(error).__name__,
            )

    def close(self, is_complete: bool = True) -> None:
        """Closes all reporters; the next `write` opens them again."""
        while self._open:
            name, reporter = self._open.popitem()
            with self._without_failed_service(name):
                reporter.close(is_complete)


def of_run(settings: RunSettings) -> Reports:
    """Returns the reports for a run with these settings."""
    return Reports(settings.output_dir, settings.report_to, settings.to_dict())


def hyperparameters(settings: Mapping[str, Any]) -> Hyperparameters:
    """Returns settings as numbers and strings, without those that are None.

    >>> hyperparameters({"seed": 7, "learning_rate": (1e-5, 3e-5), "init_checkpoint": None})
    {'seed': 7, 'learning_rate': '1e-05,3e-05'}
    """
    return {
        name: ",".join(map(str, value)) if isinstance(value, tuple) else value
        for name, value in settings.items()
        if value is not None
    }


def _name(output_dir: str) -> str:
    return os.path.basename(output_dir.rstrip("/")) or output_dir

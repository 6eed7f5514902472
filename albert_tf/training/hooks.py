"""Hooks: what a run does besides taking steps, such as logging and saving.

    def log_norm(trainer, result):
        trainer.log(word_norm=float(tf.norm(trainer.model.encoder.embeddings.word_table)))

    pretraining.run(settings, hooks=[every(100, log_norm)])

A hook of your own runs before those of this module, so that what it logs is in the line of the same
step.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import tensorflow as tf
from absl import logging
from tqdm import tqdm

from albert_tf import files
from albert_tf.checkpoints import store
from albert_tf.model.objectives import OBJECTIVES
from albert_tf.training.loop import Hook as Hook
from albert_tf.training.loop import Trainer, Untimed
from albert_tf.training.settings import RunSettings
from albert_tf.training.step import RESERVED, StepResult

LOG_STEPS = 100  # between two lines by default, unless the run has less than 10 times as many


def every(steps: int, call: Callable[[Trainer, StepResult], object]) -> Hook:
    """Returns a hook that calls a function after each step whose number is a multiple of `steps`.

    Args:
        steps: number of steps between two calls.
        call: the function, as `Hook.on_step`.
    """

    class Every(Hook):
        def on_step(self, trainer: Trainer, result: StepResult) -> None:
            if trainer.step % steps == 0:
                call(trainer, result)

    return Every()


class ProgressBar(Hook):
    """Shows a bar on terminals; elsewhere it is silent, as the log says the same."""

    def on_start(self, trainer: Trainer) -> None:
        """Opens the bar."""
        self._bar = tqdm(
            desc="training",
            total=trainer.num_train_steps,
            initial=trainer.step,
            unit="step",
            disable=None if trainer.is_chief else True,
        )

    def on_step(self, trainer: Trainer, result: StepResult) -> None:
        """Moves the bar."""
        self._bar.update()

    def on_end(self, trainer: Trainer) -> None:
        """Closes the bar."""
        self._bar.close()


class LogMetrics(Hook):
    """Logs the mean metrics since the last line, with the speed and the time that is left.

    Lines go to the log, to `metrics.jsonl`, and to the trackers. In a process that writes no files,
    the metrics are only checked.

    Args:
        tracker: of the run.
    """

    def __init__(self, tracker: Tracker) -> None:
        self._tracker = tracker
        # Step, time and `Trainer.untimed` at the last line. The first step, which waits for
        # compilation and the first batch, is not timed.
        self._since: tuple[int, float, Untimed] | None = None

    def on_step(self, trainer: Trainer, result: StepResult) -> None:
        """Logs a line if one is due, and before each checkpoint."""
        if self._since is None:
            self._since = trainer.step, time.monotonic(), trainer.untimed
        tenth = max(1, trainer.num_train_steps // 10)
        steps = trainer.settings.log_steps or min(LOG_STEPS, tenth)
        if trainer.step % steps and not trainer.is_saving:
            return
        means, tokens = trainer.take_means()  # waits for the steps
        if not trainer.is_chief:
            return
        values = means | trainer.values
        values["learning_rate"] = float(trainer.optimizer.learning_rate.numpy())
        speed = self._speed(trainer)  # in steps per second
        batch_size = trainer.settings.train_batch_size
        if speed:
            values["examples_per_second"] = speed * batch_size
            if tokens:
                values["tokens_per_second"] = speed * tokens
        trainer.values = {}
        trainer.folder.add_metrics(trainer.step, values)
        self._tracker.write(trainer.step, {TRAIN + name: x for name, x in values.items()})
        logging.info("%s", _line(trainer, values, speed))

    def _speed(self, trainer: Trainer) -> float:
        """Returns the steps per second since the last line; 0 if none was timed."""
        now = trainer.step, time.monotonic(), trainer.untimed
        before, self._since = self._since or now, now
        steps = now[0] - before[0] - (now[2].steps - before[2].steps)
        seconds = now[1] - before[1] - (now[2].seconds - before[2].seconds)
        return steps / max(seconds, 1e-9)


def _line(trainer: Trainer, values: dict[str, float], speed: float) -> str:
    """Returns a line of the log."""
    line = f"step {trainer.step}/{trainer.num_train_steps}  {format_figures(most_telling(values))}"
    line += f"  lr {values['learning_rate']:.1e}"
    if "gradient_norm" in values:
        line += f"  gnorm {values['gradient_norm']:.2g}"
    if speed:
        unit = "tok" if "tokens_per_second" in values else "ex"
        count = values.get("tokens_per_second", values["examples_per_second"])
        left = (trainer.num_train_steps - trainer.step) / speed
        line += f"  {count:,.0f} {unit}/s  {format_seconds(left)} left"
    return line


class SaveCheckpoints(Hook):
    """Saves the initial weights, and checkpoints when the settings or a signal ask for them."""

    def on_start(self, trainer: Trainer) -> None:
        """Saves the initial weights of a new run."""
        if trainer.step == 0:
            trainer.save()

    def on_step(self, trainer: Trainer, result: StepResult) -> None:
        """Saves a checkpoint if one is due."""
        if trainer.is_saving:
            trainer.save()


_ABBREVIATIONS = {"masked_lm": "mlm", "accuracy": "acc"}


def format_figures(values: Mapping[str, float], percentages: tuple[str, ...] = ()) -> str:
    """Returns abbreviated names and values with three digits, for a message.

    Names that end as one of `percentages` get the sign %.

    >>> format_figures({"loss": 6.2751, "masked_lm_accuracy": 0.1})
    'loss 6.28  mlm_acc 0.100'
    >>> format_figures({"f1": 5.553, "best_f1_thresh": -1.5}, ("f1",))
    'f1 5.55%  best_f1_thresh -1.50'
    """
    texts = []
    objectives = {objective.name: objective.abbreviation for objective in OBJECTIVES.values()}
    for name, value in values.items():
        unit = "%" if name.endswith(percentages) else ""
        for long, short in (_ABBREVIATIONS | objectives).items():
            name = name.replace(long, short)
        text = f"{value:.0f}" if abs(value) >= 1000 else f"{value:#.3g}".rstrip(".")
        texts.append(f"{name} {text}{unit}")
    return "  ".join(texts)


def format_seconds(seconds: float) -> str:
    """Returns a time in hours, minutes and seconds.

    >>> format_seconds(146), format_seconds(111662)
    ('2:26', '31:01:02')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def most_telling(values: Mapping[str, float]) -> dict[str, float]:
    """Returns the metrics to show in a message: the loss first, without its terms."""
    first = {"loss": values["loss"]} if "loss" in values else {}
    hidden = RESERVED - {"skipped_steps"}
    if first:
        hidden |= {name for name in values if name.endswith("_loss")}
    shown = {name: x for name, x in values.items() if name not in hidden}
    return first | shown


SECONDS_BETWEEN_LINES = 30.0  # between two lines

Item = TypeVar("Item")


def with_progress(batches: Iterable[Item], what: str, total: int | None = None) -> Iterator[Item]:
    """Yields the batches and shows the progress.

    Args:
        batches: the batches.
        what: description of the loop, such as "evaluating".
        total: number of batches; None if it is unknown.
    """
    bar = tqdm(batches, what, total, unit="batch", disable=None, leave=False)
    if not bar.disable:
        yield from bar
        return
    shown_at = time.monotonic()
    for number, batch in enumerate(batches):
        if time.monotonic() - shown_at >= SECONDS_BETWEEN_LINES:
            shown_at = time.monotonic()
            of_total = "" if total is None else f" of {total}"
            logging.info("%s: %d%s batches", what, number, of_total)
        yield batch


_UPLOAD_SECONDS = 60  # between two uploads of TensorBoard's file
TRAIN = "train/"  # prefix of the tags of training
_PROJECT = "albert-tf2"  # in Weights & Biases, unless WANDB_PROJECT is set

Hyperparameters = dict[str, bool | int | float | str]


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
        self, output_dir: str, to_wandb: bool = False, settings: Mapping[str, Any] | None = None
    ) -> None:
        self._output_dir = output_dir
        self._to_wandb = to_wandb
        self._settings = hyperparameters(settings or {})
        self._writer: Any = None
        self._wandb_run: Any = None

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
                self._open()
            with self._writer.as_default(step):
                for name, value in values.items():
                    tf.summary.scalar(name, value)
            self._writer.flush()
        if files.is_remote(self._output_dir) and time.monotonic() >= self._next_upload:
            self._upload()

    def _open(self) -> None:
        """Opens the summary files, which have the settings first."""
        self._folder = self._output_dir
        if files.is_remote(self._output_dir):
            self._local = tempfile.TemporaryDirectory()
            self._folder = self._local.name
            self._next_upload = time.monotonic() + _UPLOAD_SECONDS
        self._writer = tf.summary.create_file_writer(self._folder)
        if self._settings:
            from tensorboard.plugins.hparams import api  # comes with TensorFlow

            with self._writer.as_default(0):
                api.hparams(self._settings, trial_id=_name_of_run(self._output_dir))

    def _upload(self) -> None:
        for name in os.listdir(self._folder):
            path = os.path.join(self._output_dir, name)
            files.copy(os.path.join(self._folder, name), path)
        self._next_upload = time.monotonic() + _UPLOAD_SECONDS


def _start_wandb(output_dir: str, settings: Hyperparameters) -> Any:
    """Starts a run of Weights & Biases, which uploads what is written for TensorBoard from now on.

    Its environment variables configure it, such as WANDB_RUN_ID to continue a run.
    """
    import wandb

    return wandb.init(
        project=os.environ.get("WANDB_PROJECT", _PROJECT),
        name=os.environ.get("WANDB_NAME", _name_of_run(output_dir)),
        dir=None if files.is_remote(output_dir) else output_dir,
        config=settings,
        sync_tensorboard=True,
    )


def make_tracker(settings: RunSettings) -> Tracker:
    """Returns the tracker for a run with these settings."""
    return Tracker(settings.output_dir, settings.report_to == "wandb", settings.to_dict())


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


def _name_of_run(output_dir: str) -> str:
    return os.path.basename(output_dir.rstrip("/")) or output_dir

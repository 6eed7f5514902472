"""The log of a run's metrics: `metrics.jsonl`, TensorBoard summaries and messages."""

from __future__ import annotations

import contextlib
import datetime
import functools
import json
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf
from absl import logging

from albert_tf import files

METRICS_FILE = "metrics.jsonl"
TRAIN, EVAL = "train/", "eval/"  # what TensorBoard's tags begin with
# What a line of training has besides means.
_OF_THE_LINE = ("learning_rate", "examples_per_second", "tokens_per_second")


class Curves:
    """The metrics of a run over its steps, in `metrics.jsonl` and TensorBoard summaries.

    The file has a line for each report of training, {"step": 100, "loss": 2.5, …}, and one for each
    evaluation, {"step": 500, "eval/loss": 2.25, …}. TensorBoard's tags are `train/loss` and
    `eval/loss`. Let one of these be open at a time: TensorBoard shows the newest of its files.

    Args:
        output_dir: an existing directory.
        step: the step at which training begins; later lines of a run that was interrupted are
            dropped, as their steps are trained again. None drops nothing.

    Raises:
        ValueError: the file is damaged; names the line.
    """

    def __init__(self, output_dir: str, step: int | None = None) -> None:
        self.path = os.path.join(output_dir, METRICS_FILE)
        self._output_dir = output_dir
        self._lines = {
            (row["step"], _is_evaluation(row)): json.dumps(row)
            for row in _read_lines(self.path)
            if step is None or row["step"] <= step
        }

    @property
    def lines(self) -> list[str]:
        """The lines of the file by step, training before evaluation."""
        return [self._lines[key] for key in sorted(self._lines)]

    @functools.cached_property
    def _summaries(self) -> tf.summary.SummaryWriter:
        return tf.summary.create_file_writer(self._output_dir)

    def add_training(self, step: int, values: Mapping[str, float]) -> None:
        """Adds a report of training.

        Raises:
            OSError: the disk is full, or the file system does not answer.
        """
        self._lines[step, False] = json.dumps({"step": step} | dict(values))
        self._write({step: values}, TRAIN)

    def set_evaluations(self, evaluations: Mapping[int, Mapping[str, float]]) -> None:
        """Adds the evaluations that are new, and drops those that no longer count.

        Args:
            evaluations: step → metrics.

        Raises:
            OSError: as `add_training`.
        """
        known = {key: line for key, line in self._lines.items() if key[1]}
        now = {
            (step, True): json.dumps({"step": step} | {EVAL + n: v for n, v in metrics.items()})
            for step, metrics in evaluations.items()
        }
        if now == known:
            return
        self._lines = {key: line for key, line in self._lines.items() if not key[1]} | now
        new = {key[0] for key, line in now.items() if known.get(key) != line}
        self._write({step: evaluations[step] for step in sorted(new)}, EVAL)

    def _write(self, rows: Mapping[int, Mapping[str, float]], prefix: str) -> None:
        """Writes the file, and the summaries of these rows, step → values."""
        with files.write_atomically(self.path) as stream:
            stream.write("".join(line + "\n" for line in self.lines))
        with _errors_of_summaries(self.path):
            for step, values in rows.items():
                with self._summaries.as_default(step):
                    for name, value in values.items():
                        tf.summary.scalar(prefix + name, value)
            self._summaries.flush()

    def close(self) -> None:
        """Closes the file of summaries."""
        if "_summaries" in vars(self):
            self._summaries.close()


@contextlib.contextmanager
def _errors_of_summaries(path: str) -> Iterator[None]:
    """Raises what TensorFlow raises when it creates or writes a file of summaries as OSError."""
    try:
        yield
    except tf.errors.OpError as error:
        is_full = isinstance(error, tf.errors.ResourceExhaustedError)
        reason = "the disk is full" if is_full else "the summaries cannot be written"
        raise OSError(f"{path}: {reason} ({' '.join(error.message.split())})") from None


class MetricsLog:
    """Reports on training: in the curves of the run, and as messages with speed and time left.

    Args:
        output_dir: an existing directory.
        step: as in `Curves`.
        last_step: the step at which training ends.
        batch_size: number of examples of a step.

    Attributes:
        curves: of the run.
    """

    def __init__(self, output_dir: str, step: int, last_step: int, batch_size: int) -> None:
        self.last_step, self.batch_size = last_step, batch_size
        self.curves = Curves(output_dir, step)
        self._start = (step, time.monotonic())

    def write(
        self, step: int, means: Mapping[str, float], learning_rate: float, tokens: float = 0.0
    ) -> None:
        """Logs the metrics of a step, with the speed since the last line and the time that remains.

        Where the clock was restarted at this step, the speed is not known, and left out.

        Args:
            step: number of finished steps.
            means: metric → mean over the steps since the last line.
            learning_rate: of the last step.
            tokens: mean number of tokens of a step, without padding; 0 if that is not known.

        Raises:
            OSError: as `Curves.add_training`.
        """
        seconds, num_steps = time.monotonic() - self._start[1], step - self._start[0]
        speed = num_steps / max(seconds, 1e-9)  # in steps a second
        values = dict(means) | {"learning_rate": learning_rate}
        remaining = ""
        if num_steps:
            values["examples_per_second"] = speed * self.batch_size
            if tokens:
                values["tokens_per_second"] = speed * tokens
            left = datetime.timedelta(seconds=round((self.last_step - step) / speed))
            remaining = f", remaining {left}"
        self.restart_clock(step)
        self.curves.add_training(step, values)
        logging.info("step %d of %d: %s%s", step, self.last_step, format_line(values), remaining)

    def restart_clock(self, step: int) -> None:
        """Measures the speed from here, so that it does not count what was done besides training.

        Args:
            step: number of finished steps.
        """
        self._start = (step, time.monotonic())

    def close(self) -> None:
        """Closes the file of summaries."""
        self.curves.close()


def format_line(values: Mapping[str, float]) -> str:
    """Returns names and values, for a message."""
    return ", ".join(f"{name} {value:.4g}" for name, value in values.items())


def read_means(output_dir: str, step: int) -> dict[str, float] | None:
    """Returns the means that `MetricsLog.write` logged for a step, if that was its last line."""
    rows = _read_lines(os.path.join(output_dir, METRICS_FILE))
    values = next((row for row in reversed(rows) if not _is_evaluation(row)), dict[str, Any]())
    if values.pop("step", None) != step:
        return None
    return {name: value for name, value in values.items() if name not in _OF_THE_LINE}


def _is_evaluation(row: Mapping[str, Any]) -> bool:
    return any(name.startswith(EVAL) for name in row)


def _read_lines(path: str) -> list[dict[str, Any]]:
    """Returns the lines of `metrics.jsonl`; raises ValueError with the number of a damaged one."""
    return files.read_own_json_lines(path, {"step": int})

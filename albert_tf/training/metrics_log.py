"""The log of training metrics: `metrics.jsonl`, TensorBoard summaries and messages."""

from __future__ import annotations

import datetime
import json
import os
import time
from typing import Any

import tensorflow as tf
from absl import logging

from albert_tf import files

METRICS_FILE = "metrics.jsonl"
_OF_THE_LINE = ("learning_rate", "examples_per_second")  # what a line has besides means


class MetricsLog:
    """Writes training metrics to `metrics.jsonl`, to TensorBoard summaries, and as messages.

    Args:
        output_dir: an existing directory.
        step: the step at which training begins; later lines of a run that was interrupted are
            dropped, as their steps are trained again.
        last_step: the step at which training ends.
        batch_size: number of examples of a step.
    """

    def __init__(self, output_dir: str, step: int, last_step: int, batch_size: int) -> None:
        self.last_step, self.batch_size = last_step, batch_size
        self.path = os.path.join(output_dir, METRICS_FILE)
        rows = _read_lines(self.path)
        self.lines = [json.dumps(row) for row in rows if row["step"] <= step]
        self.summaries = tf.summary.create_file_writer(output_dir)
        self.last = (step, time.monotonic())

    def write(self, step: int, means: dict[str, float], learning_rate: float) -> None:
        """Logs the metrics of a step, with the speed since the last line and the time that remains.

        Args:
            step: number of finished steps.
            means: metric → mean over the steps since the last line.
            learning_rate: of the last step.

        Raises:
            OSError: the disk is full, or the file system does not answer.
        """
        seconds = time.monotonic() - self.last[1]
        steps_per_second = (step - self.last[0]) / max(seconds, 1e-9)
        self.last = (step, time.monotonic())
        values = means | {
            "learning_rate": learning_rate,
            "examples_per_second": steps_per_second * self.batch_size,
        }
        self.lines.append(json.dumps({"step": step} | values))
        with files.write_atomically(self.path) as stream:
            stream.write("\n".join(self.lines) + "\n")
        with self.summaries.as_default(step):
            for name, value in values.items():
                tf.summary.scalar(name, value)
        try:
            self.summaries.flush()
        except tf.errors.OpError as error:
            is_full = isinstance(error, tf.errors.ResourceExhaustedError)
            reason = "the disk is full" if is_full else "the summaries cannot be written"
            raise OSError(f"{self.path}: {reason} ({error.message})") from None
        text = ", ".join(f"{name} {value:.4g}" for name, value in values.items())
        remaining = datetime.timedelta(seconds=round((self.last_step - step) / steps_per_second))
        logging.info("step %d of %d: %s, remaining %s", step, self.last_step, text, remaining)

    def restart_clock(self) -> None:
        """Keeps the time since the last line, as of an evaluation, out of the next one's speed."""
        self.last = (self.last[0], time.monotonic())

    def close(self) -> None:
        """Closes the file of summaries."""
        self.summaries.close()


def read_means(output_dir: str, step: int) -> dict[str, float] | None:
    """Returns the means that `MetricsLog.write` logged for a step, if that was the last line."""
    rows = _read_lines(os.path.join(output_dir, METRICS_FILE))
    values = rows[-1] if rows else {}
    if values.pop("step", None) != step:
        return None
    return {name: value for name, value in values.items() if name not in _OF_THE_LINE}


def _read_lines(path: str) -> list[dict[str, Any]]:
    """Returns the lines of `metrics.jsonl`; raises ValueError with the number of a damaged one."""
    return files.read_own_json_lines(path, {"step": int})

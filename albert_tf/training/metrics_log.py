"""The log of a run: `metrics.jsonl`, messages, and what is reported to TensorBoard and others."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from typing import Any

from absl import logging

from albert_tf import files
from albert_tf.checkpoints import store
from albert_tf.sentence_objectives import OBJECTIVES
from albert_tf.training.reporting import Reports

METRICS_FILE = "metrics.jsonl"
# What TensorBoard's tags begin with.
TRAIN = "train/"
EVAL = "eval/"
_ABBREVIATIONS = {"masked_lm": "mlm", "accuracy": "acc"}
Lines = dict[tuple[int, bool], str]  # (step, whether it is of an evaluation) → line
# Values in a line of training that are not means.
_OF_THE_LINE = ("learning_rate", "examples_per_second", "tokens_per_second")


class Curves:
    """The metrics of a run over its steps, in `metrics.jsonl` and in TensorBoard and the like.

    The file has a line for each training report, {"step": 100, "loss": 2.5, …}, and one for each
    evaluation, {"step": 500, "eval/loss": 2.25, …}. Elsewhere the tags are `train/loss` and
    `eval/loss`. Only one instance may be open at a time, because TensorBoard shows the newest file.

    Lines are appended, so that a report costs the same however long the run is, and `sync` writes
    them to disk. Only if lines are dropped or do not belong at the end, the file is written anew;
    in remote directories, which cannot append, this is what `sync` does. A line that a kill cut
    short is dropped when the file is opened.

    Args:
        output_dir: an existing directory.
        step: the step at which training starts or resumes; later lines of an interrupted run are
            dropped, because their steps are trained again. None keeps all lines.
        reports: the reports of the run, which stay open; None reports to TensorBoard.

    Raises:
        ValueError: the file is damaged. The message names the line.
    """

    def __init__(
        self, output_dir: str, step: int | None = None, reports: Reports | None = None
    ) -> None:
        self.path = os.path.join(output_dir, METRICS_FILE)
        self._reports = reports or Reports(output_dir)
        self._reports_are_shared = reports is not None
        rows = read_lines(output_dir)
        self._lines: Lines = {
            (row["step"], _is_evaluation(row)): json.dumps(row)
            for row in rows
            if step is None or row["step"] <= step
        }
        self._last = max(self._lines, default=(-1, False))
        # Whether the file has exactly these lines, so that it can be appended to.
        self._is_current = not rows or files.read_text(self.path) == self._text()

    @property
    def lines(self) -> list[str]:
        """The lines of the file ordered by step, training before evaluation."""
        return [self._lines[key] for key in sorted(self._lines)]

    def add_training(self, step: int, values: Mapping[str, float]) -> None:
        """Adds a training report.

        Raises:
            OSError: the disk is full, or the file system does not respond.
        """
        self._write({(step, False): json.dumps({"step": step} | dict(values))})
        self._report({step: values}, TRAIN)

    def set_evaluations(self, evaluations: Mapping[int, Mapping[str, float]]) -> None:
        """Replaces all evaluations, writing TensorBoard summaries of new ones.

        Args:
            evaluations: step → metrics.

        Raises:
            OSError: the disk is full, or the file system does not respond.
        """
        now = {
            (step, True): json.dumps({"step": step} | {EVAL + n: v for n, v in metrics.items()})
            for step, metrics in evaluations.items()
        }
        gone = [key for key in self._lines if key[1] and key not in now]
        new = {key: line for key, line in now.items() if self._lines.get(key) != line}
        if not gone and not new:
            return
        for key in gone:
            del self._lines[key]
            self._is_current = False
        self._write(new)
        self._report({step: evaluations[step] for step, _ in sorted(new)}, EVAL)

    def _text(self) -> str:
        return "".join(line + "\n" for line in self.lines)

    def _write(self, new: Lines) -> None:
        """Adds lines: appends them to the file if they belong at its end, or else rewrites it."""
        keys = sorted(new)
        is_at_end = self._is_current and keys[0] > self._last
        self._lines |= new
        self._last = max(self._lines)
        self._is_current = False
        if files.is_remote(self.path):
            return
        if not is_at_end:
            self._rewrite()
            return
        with (
            store.naming_disk_errors(self.path, "the metrics"),
            open(self.path, "a", encoding="utf-8") as stream,
        ):
            stream.writelines(new[key] + "\n" for key in keys)
        self._is_current = True

    def _rewrite(self) -> None:
        with files.write_atomically(self.path) as stream:
            stream.write(self._text())
        self._is_current = True

    def sync(self) -> None:
        """Writes all lines to disk, so that a checkpoint written next does not outlast them.

        Raises:
            OSError: the disk is full, or the file system does not respond.
        """
        if files.is_remote(self.path) and not self._is_current:
            self._rewrite()
        elif not files.is_remote(self.path) and files.exists(self.path):
            with store.naming_disk_errors(self.path, "the metrics"):
                store.flush_to_disk(self.path)

    def _report(self, rows: Mapping[int, Mapping[str, float]], prefix: str) -> None:
        """Writes the summaries of `rows`, step → values, for TensorBoard and the like."""
        self._reports.write(
            {step: {prefix + n: v for n, v in values.items()} for step, values in rows.items()}
        )

    def close(self) -> None:
        """Writes all lines to disk, and ends reporting unless the reports are shared."""
        self.sync()
        if not self._reports_are_shared:
            self._reports.close()


class MetricsLog:
    """Reports training metrics: in the run's curves, and as log messages with speed and time left.

    Args:
        output_dir: an existing directory.
        step: as in `Curves`.
        last_step: the step at which training ends.
        batch_size: number of examples per step.
        reports: as in `Curves`.

    Attributes:
        curves: the curves of the run.
    """

    def __init__(
        self,
        output_dir: str,
        step: int,
        last_step: int,
        batch_size: int,
        reports: Reports | None = None,
    ) -> None:
        self.last_step = last_step
        self.batch_size = batch_size
        self.curves = Curves(output_dir, step, reports)
        self._start = (step, time.monotonic())

    def write(
        self, step: int, means: Mapping[str, float], learning_rate: float, tokens: float = 0.0
    ) -> None:
        """Logs the metrics of a step, with the speed since the last line and the remaining time.

        If the clock was restarted at this step, the speed is unknown and omitted.

        Args:
            step: number of completed steps.
            means: metric → mean over the steps since the last line.
            learning_rate: learning rate of the last step.
            tokens: mean number of tokens per step without padding; 0 if it is unknown.

        Raises:
            OSError: the disk is full, or the file system does not respond.
        """
        num_steps, seconds = self.measure(step)
        speed = num_steps / max(seconds, 1e-9)  # in steps per second
        values = dict(means) | {"learning_rate": learning_rate}
        line = f"step {step}/{self.last_step}  {format_figures(_most_telling(means))}"
        line += f"  lr {learning_rate:.1e}"
        if "gradient_norm" in means:
            line += f"  gnorm {means['gradient_norm']:.2g}"
        if num_steps:
            values["examples_per_second"] = speed * self.batch_size
            if tokens:
                values["tokens_per_second"] = speed * tokens
            shown = f"{speed * (tokens or self.batch_size):,.0f} {'tok' if tokens else 'ex'}/s"
            line += f"  {shown}  {format_seconds((self.last_step - step) / speed)} left"
        self.restart_clock(step)
        self.curves.add_training(step, values)
        logging.info("%s", line)

    def measure(self, step: int) -> tuple[int, float]:
        """Returns the number and total time, in seconds, of the timed steps since the last line."""
        return step - self._start[0], time.monotonic() - self._start[1]

    def leave_out(self, seconds: float) -> None:
        """Excludes a step of `seconds` from the speed, such as one that included compilation."""
        self._start = (self._start[0] + 1, self._start[1] + seconds)

    def restart_clock(self, step: int) -> None:
        """Restarts the measurement of the speed, to exclude the time of anything but training.

        Args:
            step: number of completed steps.
        """
        self._start = (step, time.monotonic())

    def close(self) -> None:
        """Ends reporting, as `Curves.close` does."""
        self.curves.close()


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


def _most_telling(means: Mapping[str, float]) -> dict[str, float]:
    """Returns the metrics to show in a message: the loss first, without its terms."""
    hidden = [name for name in means if name.endswith("_loss")] if "loss" in means else []
    first = {"loss": means["loss"]} if "loss" in means else {}
    shown = {name: value for name, value in means.items() if name not in hidden}
    shown.pop("gradient_norm", None)
    return first | shown


def read_means(output_dir: str, step: int) -> dict[str, float] | None:
    """Returns the means logged by `MetricsLog.write` for a step if it is the last one, or None."""
    rows = read_lines(output_dir)
    values = next((row for row in reversed(rows) if not _is_evaluation(row)), dict[str, Any]())
    if values.pop("step", None) != step:
        return None
    return {name: value for name, value in values.items() if name not in _OF_THE_LINE}


def _is_evaluation(row: Mapping[str, Any]) -> bool:
    return any(name.startswith(EVAL) for name in row)


def read_lines(output_dir: str) -> list[dict[str, Any]]:
    """Returns the complete lines of `metrics.jsonl`; [] if there is no such file.

    Raises:
        ValueError: a line is damaged.
    """
    path = os.path.join(output_dir, METRICS_FILE)
    return files.read_own_json_lines(path, {"step": int}, is_appended_to=True)

"""A report of training: what is logged of the steps since the last one, and where it goes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from absl import logging

from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.training.figures import format_figures, format_seconds, most_telling
from albert_tf.training.tracker import TRAIN, Tracker

REPORT_STEPS = 100  # between two reports by default, unless the run has less than 10 times as many


def report_interval(log_steps: int | None, num_train_steps: int) -> int:
    """Returns the number of steps between two reports.

    Args:
        log_steps: the setting; None for the default.
        num_train_steps: number of steps of the run.
    """
    return log_steps or min(REPORT_STEPS, max(1, num_train_steps // 10))


@dataclasses.dataclass(frozen=True)
class Report:
    """What is logged of the steps since the last report.

    Attributes:
        step: the last step.
        num_train_steps: the step at which training ends.
        values: name → value: mean metrics, what hooks have logged, learning rate and speed.
        steps_per_second: the speed; 0 if no step was timed.
    """

    step: int
    num_train_steps: int
    values: Mapping[str, float]
    steps_per_second: float

    def __str__(self) -> str:
        values = self.values
        line = f"step {self.step}/{self.num_train_steps}  {format_figures(most_telling(values))}"
        line += f"  lr {values['learning_rate']:.1e}"
        if "gradient_norm" in values:
            line += f"  gnorm {values['gradient_norm']:.2g}"
        if self.steps_per_second:
            unit = "tok" if "tokens_per_second" in values else "ex"
            count = values.get("tokens_per_second", values["examples_per_second"])
            left = (self.num_train_steps - self.step) / self.steps_per_second
            line += f"  {count:,.0f} {unit}/s  {format_seconds(left)} left"
        return line


class ReportLog:
    """Writes reports to `metrics.jsonl`, to the tracker and to the log.

    Args:
        folder: the folder of the run.
        tracker: of the run.
    """

    def __init__(self, folder: RunFolder, tracker: Tracker) -> None:
        self._folder = folder
        self._tracker = tracker

    def __call__(self, report: Report) -> None:
        """Writes a report."""
        self._folder.add_metrics(report.step, report.values)
        self._tracker.write(report.step, {TRAIN + name: x for name, x in report.values.items()})
        logging.info("%s", report)

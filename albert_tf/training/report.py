"""A report of training: what is logged of the steps since the last one, and where it goes.

At the end is how figures look in messages: names and values of metrics, and times.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from absl import logging

from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.model.objectives import OBJECTIVES
from albert_tf.training.task import RESERVED
from albert_tf.training.tracker import TRAIN, Tracker

REPORT_STEPS = 100  # between two reports by default, unless the run has less than 10 times as many
_ABBREVIATIONS = {"masked_lm": "mlm", "accuracy": "acc"}


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

"""Logs the metrics of training: the line of a report, with the speed and the time that is left."""

from __future__ import annotations

import time

from absl import logging

from albert_tf.training.figures import format_figures, format_seconds, most_telling
from albert_tf.training.hooks import Hook
from albert_tf.training.loop import Trainer, Untimed
from albert_tf.training.step import StepResult
from albert_tf.training.tracker import TRAIN, Tracker

LOG_STEPS = 100  # between two lines by default, unless the run has less than 10 times as many


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

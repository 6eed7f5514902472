"""The multiple-choice program, as a function of its settings."""

from __future__ import annotations

from albert_tf.finetuning.result import FineTuningResult
from albert_tf.finetuning.run import fine_tune
from albert_tf.race.settings import Settings
from albert_tf.race.task import MultipleChoice


def run(settings: Settings) -> FineTuningResult:
    """Trains, evaluates, predicts and exports; see `fine_tune`."""
    return fine_tune(settings, MultipleChoice)

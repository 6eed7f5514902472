"""The hook that saves checkpoints when the settings or a signal ask for them."""

from __future__ import annotations

from albert_tf.training.hooks import Hook
from albert_tf.training.loop import Trainer
from albert_tf.training.step import StepResult


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

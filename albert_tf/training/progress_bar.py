"""The bar that shows on terminals how far training has got."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tqdm import tqdm

from albert_tf.training.hooks import Hook
from albert_tf.training.step import StepResult

if TYPE_CHECKING:
    from albert_tf.training.loop import Trainer


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

"""Hooks: what is done during training besides taking steps.

    def log_norm(trainer, result):
        trainer.log(word_norm=float(tf.norm(trainer.model.encoder.embeddings.word_table)))

    pretraining.run(settings, hooks=[every(100, log_norm)])

A hook of your own runs before those of a run, so that what it logs is in the line of the same step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from albert_tf.training.step import StepResult

if TYPE_CHECKING:
    from albert_tf.training.loop import Trainer


class Hook:
    """What is done during training; by default, nothing."""

    def on_start(self, trainer: Trainer) -> None:
        """Is called before the first step."""

    def on_step(self, trainer: Trainer, result: StepResult) -> None:
        """Is called after each step.

        Args:
            trainer: the trainer, whose attributes are those after the step.
            result: the result of the step. Reading its values waits for the device.
        """

    def on_save(self, trainer: Trainer, prefix: str) -> None:
        """Is called after a checkpoint was written, in the process that writes files.

        Args:
            trainer: the trainer.
            prefix: prefix of the checkpoint.
        """

    def on_end(self, trainer: Trainer) -> None:
        """Is called when training ends, also by an error."""


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

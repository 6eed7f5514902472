"""The progress of long loops: a bar on terminals, and a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from absl import logging
from tqdm import tqdm

from albert_tf.training.hooks import Hook
from albert_tf.training.step import StepResult

if TYPE_CHECKING:
    from albert_tf.training.loop import Trainer

SECONDS_BETWEEN_LINES = 30.0  # between two lines

Item = TypeVar("Item")


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


def with_progress(batches: Iterable[Item], what: str, total: int | None = None) -> Iterator[Item]:
    """Yields the batches and shows the progress.

    Args:
        batches: the batches.
        what: description of the loop, such as "evaluating".
        total: number of batches; None if it is unknown.
    """
    bar = tqdm(batches, what, total, unit="batch", disable=None, leave=False)
    if not bar.disable:
        yield from bar
        return
    shown_at = time.monotonic()
    for number, batch in enumerate(batches):
        if time.monotonic() - shown_at >= SECONDS_BETWEEN_LINES:
            shown_at = time.monotonic()
            of_total = "" if total is None else f" of {total}"
            logging.info("%s: %d%s batches", what, number, of_total)
        yield batch

"""Computes the outputs of a model for all examples, batch by batch.

Batches are padded to their longest example. Examples are predicted in order of length; the results
are returned in the order of the examples. What computes a batch is a `Step`: a model of TensorFlow
(`tensorflow_step`), or a file that a runtime has opened, which needs no TensorFlow.

Shapes: N examples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from albert_tf.finetuning.batching import Array, Batch, Features, Padding, evaluation_batches
from albert_tf.training import progress

Outputs: TypeAlias = Mapping[str, Array]
Step: TypeAlias = Callable[[Batch], Outputs]  # batch → outputs, or what NumPy makes arrays of


class BatchRunner:
    """Computes outputs for all examples. Weights may change between calls.

    Several threads may call `run` at the same time: what a call needs is passed to it.

    Args:
        step: computes the outputs of a batch; those that are not named in `outputs` are left out.
        padding: how batches are padded.
        outputs: name of each output → padding value for outputs whose width differs between
            batches, as with questions that have different numbers of options.
        shows_progress: whether to show a progress bar, if standard error is a terminal.
    """

    def __init__(
        self,
        step: Step,
        padding: Padding,
        outputs: Mapping[str, float],
        shows_progress: bool = True,
    ) -> None:
        self.step = step
        self.fill = dict(outputs)
        self.padding = padding
        self.shows_progress = shows_progress

    def run(self, features: Features, batch_size: int) -> dict[str, Array]:
        """Returns name → outputs [N, …], in the order of the examples.

        Args:
            features: the features of N examples.
            batch_size: B.
        """
        count = len(features)
        rows = {name: [np.empty(0)] * count for name in self.fill}
        batches = evaluation_batches(features, batch_size, self.padding)
        total = -(-count // batch_size)
        if self.shows_progress:
            batches = progress.with_progress(batches, "predicting", total)
        for numbers, batch in batches:
            computed = self.step(batch)
            for name in self.fill:
                values = np.asarray(computed[name])
                for number, row in zip(numbers.tolist(), values, strict=True):
                    rows[name][number] = row
        return {name: _stack(rows[name], fill) for name, fill in self.fill.items()}


def _stack(rows: Sequence[Array], fill: float) -> Array:
    """Stacks rows, after padding them at the end of their last axis to the same width."""
    if rows[0].ndim == 0:
        return np.array(rows)
    width = max(row.shape[-1] for row in rows)
    stacked = np.full((len(rows), *rows[0].shape[:-1], width), fill, rows[0].dtype)
    for place, row in zip(stacked, rows, strict=True):
        place[..., : row.shape[-1]] = row
    return stacked

"""Computes the outputs of a model for all examples, batch by batch.

Batches are padded to their longest example, and a step is traced once for all lengths. Examples are
predicted in order of length; the results are returned in the order of the examples.

Shapes: B batch size, N examples, S sequence length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import tensorflow as tf

from albert_tf.finetuning.batching import Array, Batch, Features, Padding, evaluation_batches
from albert_tf.training import progress
from albert_tf.training.task import ModelOutputs

Outputs: TypeAlias = Mapping[str, Array]
Step: TypeAlias = Callable[[Batch], Mapping[str, tf.Tensor]]  # batch → outputs


class BatchRunner:
    """Computes the outputs of a model for all examples. Weights may change between calls.

    Several threads may call `run` at the same time: what a call needs is passed to it.

    Args:
        model: the model, called with (batch, training=False).
        signature: name → TensorSpec of a batch.
        padding: how batches are padded.
        outputs: name of each output → padding value for outputs whose width differs between
            batches, as with questions that have different numbers of options.
        predictions: converts the model's outputs to these outputs; None if they are the same.
        shows_progress: whether to show a progress bar, if standard error is a terminal.
        compile_step: compiles the function that computes a batch, given its TensorSpecs;
            `tf.function` by default.
    """

    def __init__(
        self,
        model: Callable[..., ModelOutputs],
        signature: Mapping[str, tf.TensorSpec],
        padding: Padding,
        outputs: Mapping[str, float],
        predictions: Callable[[ModelOutputs], Mapping[str, tf.Tensor]] | None = None,
        shows_progress: bool = True,
        compile_step: Callable[..., Step] | None = None,
    ) -> None:
        self.model = model
        self.fill = dict(outputs)
        self._predictions = predictions or (lambda outputs: outputs)
        self.padding = padding
        self.shows_progress = shows_progress
        if compile_step is None:
            self._step: Step = tf.function(self._one_batch, input_signature=[signature])
        else:
            self._step = compile_step(self._one_batch, signature)

    def _one_batch(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        outputs = self._predictions(self.model(batch, training=False))
        return {name: outputs[name] for name in self.fill}

    def run(self, features: Features, batch_size: int) -> dict[str, Array]:
        """Returns name → outputs [N, …], in the order of the examples.

        Args:
            features: the features of N examples, whose batches have the signature.
            batch_size: B.
        """
        count = len(features)
        rows = {name: [np.empty(0)] * count for name in self.fill}
        batches = evaluation_batches(features, batch_size, self.padding)
        total = -(-count // batch_size)
        if self.shows_progress:
            batches = progress.with_progress(batches, "predicting", total)
        for numbers, batch in batches:
            for name, values in self._step(batch).items():
                for number, row in zip(numbers.tolist(), np.asarray(values), strict=True):
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

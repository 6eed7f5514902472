"""Training datasets and prediction, for any fine-tuning task.

Batches are padded to their longest example, and a step is traced once for all lengths. Examples are
predicted in order of length; the results are returned in the order of the examples.

Shapes: B batch size, N examples, S sequence length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from albert_tf.finetuning import batching
from albert_tf.finetuning.batching import Features, Padding, TrainingOrder
from albert_tf.training import hooks
from albert_tf.training.task import prefetch

Step = Callable[[Any], Mapping[str, Any]]  # batch → outputs


def batch_signature(features: Features) -> dict[str, tf.TensorSpec]:
    """Returns name → TensorSpec of the features of a batch, with all dimensions unknown."""
    batch = features.batch(np.zeros(1, np.int64), int(features.lengths[0]))
    return {
        name: tf.TensorSpec([None] * value.ndim, tf.as_dtype(value.dtype))
        for name, value in batch.items()
    }


def training_dataset(
    features: Features,
    order: TrainingOrder,
    padding: Padding,
    start_step: int = 0,
    rows: slice | None = None,
) -> tf.data.Dataset:
    """Returns the batches of `batching.training_batches` as a prefetching dataset.

    Args:
        features: the features of the examples.
        order: how the examples are shuffled and batched.
        padding: how batches are padded.
        start_step: step of the first batch.
        rows: the rows of each batch that this process trains on; None for all.
    """

    def make() -> Iterator[dict[str, Any]]:
        for batch in batching.training_batches(features, order, padding, start_step):
            yield {name: value[rows or slice(None)] for name, value in batch.items()}

    signature = batch_signature(features)
    return prefetch(tf.data.Dataset.from_generator(make, output_signature=signature))


class BatchRunner:
    """Computes the outputs of a model for all examples. Weights may change between calls.

    Args:
        model: the model, called with (batch, training=False).
        features: the features of N examples.
        batch_size: B.
        padding: how batches are padded.
        outputs: name of each output → padding value for outputs whose width differs between
            batches, as with questions that have different numbers of options.
        predictions: converts the model's outputs to these outputs; None if they are the same.
        shows_progress: whether to show a progress bar, if standard error is a terminal.
        compile_step: compiles the function that computes a batch, given its TensorSpecs; None for
            `tf.function`.

    Attributes:
        features: the features; may be replaced by others of the same kind between calls.
    """

    def __init__(
        self,
        model: Any,
        features: Features,
        batch_size: int,
        padding: Padding,
        outputs: Mapping[str, float],
        predictions: Callable[[Any], Mapping[str, tf.Tensor]] | None = None,
        shows_progress: bool = True,
        compile_step: Callable[..., Step] | None = None,
    ) -> None:
        self.model = model
        self.features = features
        self.fill = dict(outputs)
        self._predictions = predictions or (lambda outputs: outputs)
        self.batch_size = batch_size
        self.padding = padding
        self.shows_progress = shows_progress
        self._step = (compile_step or as_tf_function)(self._one_batch, batch_signature(features))

    def _one_batch(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        outputs = self._predictions(self.model(batch, training=False))
        return {name: outputs[name] for name in self.fill}

    def run(self) -> dict[str, NDArray[Any]]:
        """Returns name → outputs [N, …], in the order of the examples."""
        count = len(self.features)
        rows: dict[str, list[Any]] = {name: [None] * count for name in self.fill}
        batches = batching.evaluation_batches(self.features, self.batch_size, self.padding)
        total = -(-count // self.batch_size)
        if self.shows_progress:
            batches = hooks.with_progress(batches, "predicting", total)
        for numbers, batch in batches:
            for name, values in self._step(batch).items():
                for number, row in zip(numbers.tolist(), np.asarray(values), strict=True):
                    rows[name][number] = row
        return {name: _stack(rows[name], fill) for name, fill in self.fill.items()}


def as_tf_function(step: Step, signature: Mapping[str, tf.TensorSpec]) -> Step:
    """Returns a function of a batch as a `tf.function`, traced once for all lengths."""
    return tf.function(step, input_signature=[signature])


def _stack(rows: Sequence[NDArray[Any]], fill: float) -> NDArray[Any]:
    """Stacks rows, after padding them at the end of their last axis to the same width."""
    if rows[0].ndim == 0:
        return np.array(rows)
    width = max(row.shape[-1] for row in rows)
    if all(row.shape[-1] == width for row in rows):
        return np.stack(rows)
    unchanged = [(0, 0)] * (rows[0].ndim - 1)
    return np.stack(
        [
            np.pad(row, [*unchanged, (0, width - row.shape[-1])], constant_values=fill)
            for row in rows
        ]
    )

"""Computes a model's outputs for whole splits, with one trace for all splits of the same kind.

Shapes: N examples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import tensorflow as tf

from albert_tf.finetuning.batch_runner import BatchRunner, Outputs
from albert_tf.finetuning.batching import Features, Padding
from albert_tf.finetuning.dataset import batch_signature
from albert_tf.finetuning.tensorflow_step import tensorflow_step
from albert_tf.model.modeling import AlbertModel

Signature = tuple[tuple[str, tf.TensorSpec], ...]


class SplitOutputs:
    """Computes the outputs of a model for the features of splits.

    The model is traced once for all features whose batches have the same signature. Its weights may
    change between calls.

    Args:
        padding: how batches are padded.
        outputs: name of each output → padding value; see `BatchRunner`.
        predictions: converts the model's outputs to these outputs.
    """

    def __init__(
        self,
        padding: Padding,
        outputs: Mapping[str, float],
        predictions: Callable[[tf.Tensor], Mapping[str, tf.Tensor]],
    ) -> None:
        self._padding = padding
        self._outputs = outputs
        self._predictions = predictions
        self._model: AlbertModel | None = None  # the one that the runners belong to
        self._runners: dict[Signature, BatchRunner] = {}

    def compute(self, model: AlbertModel, features: Features, batch_size: int) -> Outputs:
        """Returns the outputs of a model, name → [N, …], in the order of the examples."""
        if model is not self._model:
            self._model, self._runners = model, {}
        signature = batch_signature(features)
        key = tuple(sorted(signature.items()))
        if key not in self._runners:
            step = tensorflow_step(
                lambda batch: self._predictions(model(batch, training=False)),
                signature,
                self._outputs,
            )
            self._runners[key] = BatchRunner(step, self._padding, self._outputs)
        return self._runners[key].run(features, batch_size)

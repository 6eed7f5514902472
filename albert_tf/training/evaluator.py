"""The metrics of a task over a dataset, for tasks whose metrics are means."""

from __future__ import annotations

import tensorflow as tf

from albert_tf.model.modeling import AlbertModel
from albert_tf.training.progress import with_progress
from albert_tf.training.task import Batch, LossTask, Sums, add_derived


class Evaluator:
    """Computes the metrics of a task over a dataset; the weights may change between calls.

    Args:
        model: called as `model(batch, training=False)`.
        task: computes loss and metrics from the model's outputs.
        dataset: batches, which may differ in size.
        max_steps: the maximum number of batches; None for all.
    """

    def __init__(
        self,
        model: AlbertModel,
        task: LossTask,
        dataset: tf.data.Dataset,
        max_steps: int | None = None,
    ) -> None:
        self.model = model
        self.task = task
        self.dataset = dataset.take(-1 if max_steps is None else max_steps)
        features = {
            name: tf.TensorSpec((None, *spec.shape[1:]), spec.dtype)
            for name, spec in dataset.element_spec.items()
        }
        self._step = tf.function(self._one_batch, input_signature=[features])

    def _one_batch(self, batch: Batch) -> Sums:
        loss, sums = self.task.loss(self.model(batch, training=False), batch)
        return sums | {"loss": (loss, tf.ones_like(loss))}

    def evaluate(self) -> dict[str, float]:
        """Returns metric → weighted mean over the dataset.

        `loss` is the unweighted mean of the batches' losses, as in Google's programs
        (`tf.metrics.mean` of an Estimator).
        """
        totals: dict[str, list[float]] = {}
        for batch in with_progress(self.dataset, "evaluating"):
            for name, (total, weight) in self._step(batch).items():
                entry = totals.setdefault(name, [0.0, 0.0])
                entry[0] += float(total)
                entry[1] += float(weight)
        means = {name: total / max(weight, 1e-9) for name, (total, weight) in totals.items()}
        return add_derived(self.task, means)

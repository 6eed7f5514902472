"""The interface between fine-tuning tasks and the engine in `finetuning.run`.

A task is one class that inherits `FineTuningTask`. It reads its data, makes features, computes a
loss and metrics, and writes its files. Training, early stopping, evaluation of all checkpoints,
sweeps, prediction and export are the engine's.

Letters: B batch, N examples.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from numpy.typing import NDArray

from albert_tf.finetuning import results
from albert_tf.finetuning.batching import Features, Padding
from albert_tf.serving import saved_model
from albert_tf.training.evaluation import Evaluation, best_of

Batch = dict[str, tf.Tensor]
Sums = dict[str, tuple[tf.Tensor, tf.Tensor]]
Outputs = Mapping[str, NDArray[Any]]


@dataclasses.dataclass(frozen=True, eq=False)
class Split:
    """Examples and their features.

    Attributes:
        name: "train", "dev", "test", or another one that the task predicts.
        data: the examples, as `FineTuningTask.read` returned them.
        features: of these, as `FineTuningTask.make_features` returned them.
    """

    name: str
    data: Any
    features: Features


class FineTuningTask(abc.ABC):
    """What the engine needs of a task. Methods that are not abstract suit most tasks.

    Attributes:
        selection_metric: the name of the metric of `measure` that picks the best checkpoint;
            larger is better.
        takes_last: whether the last of equally good checkpoints is the best one; in Google's
            programs it is the first, even if that is the one before training.
        outputs: name of each output that `predictions` returns → the value that pads it where
            batches differ in width, as with questions of different numbers of options.
    """

    selection_metric: str
    takes_last: bool = True
    outputs: Mapping[str, float]

    # Data.

    @abc.abstractmethod
    def read(self, split: str) -> Any:
        """Returns the examples of "train", "dev" or "test".

        Raises:
            ValueError, OSError: there are none, or they are not as they should be.
        """

    @abc.abstractmethod
    def make_features(self, data: Any, split: str) -> Features:
        """Returns the features of the examples that `read` returned for a split."""

    def checksum(self, data: Any) -> str:
        """Returns the SHA-256 of the examples that `read` returned, hexadecimal."""
        return str(data.checksum())

    def num_examples(self, train: Split) -> int:
        """Returns the number of examples of an epoch; an example may have several features."""
        return len(train.features)

    def padding(self, padding: Padding) -> Padding:
        """Returns the padding of batches, given the padding of the settings."""
        return padding

    # Training.

    @abc.abstractmethod
    def build_model(self) -> Any:
        """Returns a model with random weights: a head of `albert_tf.heads` or the like."""

    @abc.abstractmethod
    def losses(self, outputs: Any, batch: Batch) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Returns the loss of each example, and the metrics that training logs.

        Args:
            outputs: of the model.
            batch: of the features.

        Returns:
            float32 [B], and metric → [B], whose means are logged; or all [B, S], where
            `sample_weights` are.
        """

    def sample_weights(self, batch: Batch) -> tf.Tensor:
        """Returns the weight of each of the `losses` in their mean: 1, float32 [B]."""
        return tf.ones(tf.shape(batch["input_ids"])[:1])

    def loss_weights(self, batch: Batch) -> tf.Tensor:
        """Returns the divisor of the sum of a batch's losses, float32 [1]."""
        return tf.reduce_sum(self.sample_weights(batch))[None]

    def loss(
        self, outputs: Any, batch: Batch, weights: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, Sums]:
        """Returns the mean loss of a batch, and the weighted sums of its metrics.

        Args:
            outputs: of the model.
            batch: of the features.
            weights: `loss_weights` of the global batch, if this is a micro-batch.

        Returns:
            the loss, float32 scalar, and metric → (weighted sum, weight), float32 scalars.
        """
        losses, logged = self.losses(outputs, batch)
        counts = self.sample_weights(batch)
        count = tf.reduce_sum(counts)
        total = count if weights is None else weights[0]
        sums = {
            name: (tf.reduce_sum(tf.cast(values, tf.float32) * counts), count)
            for name, values in logged.items()
        }
        return tf.reduce_sum(losses * counts) / total, sums

    # Evaluation on the dev split.

    def predictions(self, outputs: Any) -> dict[str, tf.Tensor]:
        """Returns the outputs to collect, name → [B, …], given the model's outputs."""
        collected: dict[str, tf.Tensor] = outputs
        return collected

    @abc.abstractmethod
    def measure(self, split: Split, outputs: Outputs, batch_size: int) -> dict[str, float]:
        """Returns the metrics of a split whose labels are known.

        Args:
            split: its N examples.
            outputs: name → [N, …], the `predictions`, in the order of the examples.
            batch_size: of the evaluation, for metrics that are means over batches.
        """

    @abc.abstractmethod
    def measured_on(self, split: Split, batch_size: int, padding: Padding) -> str:
        """Returns a `digest` of everything that affects the metrics, except the checkpoint."""

    def best_of(self, evaluations: Sequence[Evaluation]) -> Evaluation | None:
        """Returns the best of evaluations, which are in the order of their steps."""
        return best_of(evaluations, self.selection_metric, self.takes_last)

    def write_evaluations(self, output_dir: str, evaluations: Sequence[Evaluation]) -> str:
        """Writes `eval_results.txt` after each evaluation, and returns its text.

        Args:
            output_dir: folder of the run.
            evaluations: of all checkpoints so far, by step.
        """
        return results.write_race_results(
            output_dir, evaluations, self.selection_metric, self.takes_last
        )

    def describe_evaluations(self, output_dir: str, evaluations: Sequence[Evaluation]) -> str:
        """Returns the text to print when all checkpoints of a folder have been evaluated."""
        best = self.best_of(evaluations)
        text = results.format_metrics(evaluations[-1].metrics)
        return text + results.format_best(best, self.selection_metric)

    def write_dev_predictions(
        self, output_dir: str, split: Split, predict: Callable[[], Outputs]
    ) -> None:
        """Writes predictions of the best checkpoint for the dev split, if the task has such a file.

        Args:
            output_dir: folder of the run.
            split: the dev split.
            predict: returns the outputs of the best checkpoint.
        """
        return

    # Prediction.

    @abc.abstractmethod
    def write_predictions(self, output_dir: str, split: Split, outputs: Outputs, step: int) -> str:
        """Writes the predictions of the best checkpoint for a split, and its metrics if known.

        Args:
            output_dir: folder of the run.
            split: "test", or another one that `read` knows.
            outputs: of the best checkpoint.
            step: of the best checkpoint.

        Returns:
            the text to print.
        """

    # The folder of a run, and its export.

    def check_folder(self, output_dir: str, is_training: bool) -> None:
        """Checks that the checkpoints in a folder, if there are any, belong to this task.

        Raises:
            ValueError: they belong to another task.
        """
        return

    def record(self, output_dir: str) -> None:
        """Records in the folder of a run which task its checkpoints are for."""
        return

    @abc.abstractmethod
    def served_outputs(self, outputs: Any) -> dict[str, tf.Tensor]:
        """Returns name → output of an exported model, given the model's outputs."""

    def export(
        self, model: Any, export_dir: str, max_seq_length: int, extra_files: Mapping[str, bytes]
    ) -> None:
        """Writes a SavedModel with `served_outputs` for inputs of any length.

        Args:
            model: of `build_model`, in float32, its weights loaded.
            export_dir: parent of the exports.
            max_seq_length: the length of serialized examples.
            extra_files: name → content of files to export with the model.
        """
        saved_model.export_saved_model(
            export_dir,
            model,
            saved_model.token_features(max_seq_length),
            self.served_outputs,
            any_length=True,
            extra_files=extra_files,
        )

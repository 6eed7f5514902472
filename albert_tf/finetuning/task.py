"""The interface between fine-tuning tasks and the engine in `finetuning.run`.

A task is a class that inherits from `FineTuningTask`. It reads its data, converts examples to
features, builds the model, computes the loss and the metrics, and writes its files. The engine
provides training, early stopping, evaluation of all checkpoints, sweeps, prediction and export.

Shapes: B batch size, N examples, S sequence length.
"""

from __future__ import annotations

import abc
import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging
from numpy.typing import NDArray

from albert_tf import files
from albert_tf.finetuning import batching, results
from albert_tf.finetuning.batching import Features, Padding
from albert_tf.serving import saved_model
from albert_tf.training.evaluation import Evaluation, best_of, digest

Batch = dict[str, tf.Tensor]
Sums = dict[str, tuple[tf.Tensor, tf.Tensor]]
Outputs = Mapping[str, NDArray[Any]]


@dataclasses.dataclass(frozen=True, eq=False)
class Split:
    """Examples and their features.

    Attributes:
        name: "train", "dev", "test", or another split that the task predicts.
        data: the examples, as returned by `FineTuningTask.read`.
        features: their features, as returned by `FineTuningTask.make_features`.
    """

    name: str
    data: Any
    features: Features


class FineTuningTask(abc.ABC):
    """The interface of a task. The implementations of non-abstract methods suit most tasks.

    Attributes:
        settings: the settings of the program, `FineTuningSettings` and its own.
        name: name of the task in `albert_tf.tasks`, which a run records; "" for the name with which
            `finetuning.program.run_task` was called.
        labels: names of the model's outputs, in the order of their ids; () if they have none. They
            are recorded with the checkpoints, and compared when these are used.
        selection_metric: name of the metric, among those of `measure`, that selects the best
            checkpoint; larger is better.
        percentages: endings of the names of metrics in percent, for messages.
        outputs: name of each output of `predictions` → padding value for outputs whose width
            differs between batches, as with questions that have different numbers of options.
    """

    settings: Any
    name: str = ""
    labels: tuple[str, ...] = ()
    selection_metric: str
    percentages: tuple[str, ...] = ()
    outputs: Mapping[str, float]

    # Data.

    @abc.abstractmethod
    def read(self, split: str) -> Any:
        """Returns the examples of a split: "train", "dev" or "test".

        Raises:
            ValueError, OSError: the data is missing or invalid.
        """

    @abc.abstractmethod
    def make_features(self, data: Any, split: str) -> Features:
        """Returns the features of the examples that `read` returned for a split.

        Models of this package ignore a feature with the name `label_ids`, of any shape and type.
        """

    def checksum(self, data: Any) -> str:
        """Returns the SHA-256 of the examples that `read` returned, in hexadecimal.

        The examples have a method `checksum`, or are lists of values with the same `repr` in every
        process.
        """
        if isinstance(data, list):
            return hashlib.sha256(repr(data).encode("utf-8")).hexdigest()
        return str(data.checksum())

    def num_examples(self, train: Split) -> int:
        """Returns the number of examples in an epoch; an example may have several features."""
        return len(train.features)

    def padding(self, padding: Padding) -> Padding:
        """Returns how batches are padded, given the padding that the settings ask for."""
        return padding

    # Training.

    @abc.abstractmethod
    def build_model(self) -> Any:
        """Returns the model with random weights, typically one of `albert_tf.heads`."""

    @abc.abstractmethod
    def losses(self, outputs: Any, batch: Batch) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Returns the loss and the training metrics of each example.

        Args:
            outputs: the model's outputs.
            batch: the features of the batch.

        Returns:
            Losses, float32 [B], and metric name → values [B], whose means are logged. All have
            shape [B, S] if `sample_weights` has.
        """

    def sample_weights(self, batch: Batch) -> tf.Tensor:
        """Returns the weight of each element of `losses` in the mean; float32 [B], all 1."""
        return tf.ones(tf.shape(batch["input_ids"])[:1])

    def loss_weights(self, batch: Batch) -> tf.Tensor:
        """Returns the sum of a batch's sample weights, which divides its loss; float32 [1]."""
        return tf.reduce_sum(self.sample_weights(batch))[None]

    def loss(
        self, outputs: Any, batch: Batch, weights: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, Sums]:
        """Returns the mean loss of a batch, and the weighted sums of its metrics.

        Args:
            outputs: the model's outputs.
            batch: the features of the batch.
            weights: `loss_weights` of the global batch, if `batch` is a micro-batch of it (gradient
                accumulation).

        Returns:
            The loss, a float32 scalar, and metric name → (weighted sum, weight), float32 scalars.
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
        """Converts the model's outputs to the outputs to collect, name → [B, …]."""
        collected: dict[str, tf.Tensor] = outputs
        return collected

    @abc.abstractmethod
    def measure(self, split: Split, outputs: Outputs, batch_size: int) -> dict[str, float]:
        """Computes the metrics of a split with known labels.

        Args:
            split: N examples.
            outputs: name → [N, …], the `predictions` in the order of the examples.
            batch_size: batch size of the evaluation, for metrics that are means over batches.

        Returns:
            Metric name → value.
        """

    def measured_on(self, split: Split, batch_size: int, padding: Padding) -> str:
        """Returns a `digest` of everything but the checkpoint that affects the metrics.

        The features contain the effect of all settings of reading and tokenization, so that no such
        setting can be forgotten.
        """
        features = batching.checksum(split.features, padding.max_seq_length)
        others = self.measured_with(split, batch_size, padding)
        return digest(self.checksum(split.data), features, others)

    def measured_with(self, split: Split, batch_size: int, padding: Padding) -> tuple[Any, ...]:
        """Returns what affects the metrics besides the examples, their features and the checkpoint.

        These are settings that change the model's outputs, how outputs are converted to answers, or
        how answers are measured. By default, those that decide `settings.MODEL`.

        Args:
            split: the examples.
            batch_size: batch size of the evaluation.
            padding: how its batches are padded.
        """
        names = sorted(self.settings.names_for_model)
        return tuple((name, getattr(self.settings, name)) for name in names)

    def best_of(self, evaluations: Sequence[Evaluation]) -> Evaluation | None:
        """Returns the best of some evaluations, which are sorted by step; None if there is none."""
        return best_of(evaluations, self.selection_metric, self.settings.official_order)

    def write_evaluations(self, output_dir: str, evaluations: Sequence[Evaluation]) -> str:
        """Writes `eval_results.txt` after each evaluation, and returns its text.

        Args:
            output_dir: folder of the run.
            evaluations: evaluations of all checkpoints so far, sorted by step.
        """
        return results.write_race_results(
            output_dir, evaluations, self.selection_metric, self.settings.official_order
        )

    def describe_evaluations(self, output_dir: str, evaluations: Sequence[Evaluation]) -> str:
        """Returns the text to print when all checkpoints of a folder have been evaluated."""
        best = self.best_of(evaluations)
        text = results.format_metrics(evaluations[-1].metrics)
        return text + results.format_best(best, self.selection_metric)

    def write_dev_predictions(
        self, output_dir: str, split: Split, predict: Callable[[], Outputs]
    ) -> None:
        """Writes predictions for the dev split with the best checkpoint. Does nothing by default.

        Args:
            output_dir: folder of the run.
            split: the dev split.
            predict: returns the outputs of the best checkpoint for this split.
        """
        return

    # Prediction.

    def result(self, outputs: Outputs) -> dict[str, Any]:
        """Returns the prediction for an example as a JSON object, which may contain NumPy values.

        Args:
            outputs: name → [...], the `predictions` for the example. By default, all of them are
                the result.
        """
        return dict(outputs)

    def write_predictions(self, output_dir: str, split: Split, outputs: Outputs, step: int) -> str:
        """Writes the best checkpoint's predictions for a split, and metrics if labels are known.

        By default, each line of `<split>_predictions.jsonl` is the `result` of an example.

        Args:
            output_dir: folder of the run.
            split: "test", or another split that `read` supports.
            outputs: the outputs of the best checkpoint.
            step: the step of the best checkpoint.

        Returns:
            The text to print.
        """
        path = os.path.join(output_dir, f"{split.name}_predictions.jsonl")
        with files.write_atomically(path) as stream:
            for result in self.results(outputs):
                stream.write(json.dumps(result, ensure_ascii=False) + "\n")
        logging.info("Predictions: %s", path)
        return ""

    def results(self, outputs: Outputs) -> list[dict[str, Any]]:
        """Returns the `result` of each of N examples, given `predictions` of the shapes [N, …]."""
        rows = (dict(zip(outputs, row, strict=True)) for row in zip(*outputs.values(), strict=True))
        return [results.as_json(self.result(row)) for row in rows]

    # The folder of a run, and its export.

    def check_folder(self, output_dir: str, is_training: bool) -> None:
        """Checks that the checkpoints in a folder, if any, belong to this task.

        Args:
            output_dir: folder of the run.
            is_training: whether the run trains.

        Raises:
            ValueError: they belong to another task.
        """
        return

    def record(self, output_dir: str) -> None:
        """Records in the folder of a run which task its checkpoints belong to."""
        return

    def served_outputs(self, outputs: Any) -> dict[str, tf.Tensor]:
        """Converts the model's outputs to the outputs of the exported model, name → tensor."""
        return self.predictions(outputs)

    def export(
        self,
        model: Any,
        export_dir: str,
        max_seq_length: int,
        extra_files: Mapping[str, bytes],
        output_dir: str = "",
    ) -> None:
        """Writes a SavedModel that returns `served_outputs` for inputs of any length.

        Args:
            model: a model of `build_model`, in float32, with its weights loaded.
            export_dir: parent folder of the exports.
            max_seq_length: sequence length of serialized examples.
            extra_files: name → content of files to export with the model.
            output_dir: folder of the run; "" for none.
        """
        saved_model.export_saved_model(
            export_dir,
            model,
            saved_model.token_features(max_seq_length),
            self.served_outputs,
            any_length=True,
            extra_files=extra_files,
        )

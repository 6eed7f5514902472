"""The interface of fine-tuning tasks.

A task is a class that inherits from `FineTuningTask`. It reads its data, converts examples to
features, builds the model, computes the loss and the metrics, and writes its files. The engine
provides training, early stopping, evaluation of all checkpoints, sweeps, prediction and export.

Shapes: B batch size, N examples, S sequence length.
"""

from __future__ import annotations

import abc
import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from absl import logging

from albert_tf import files
from albert_tf.checkpoints import finding
from albert_tf.checkpoints.run_folder import Evaluation, RunFolder, best_of, digest_of_data
from albert_tf.checkpoints.signatures import Export, token_inputs, token_signatures
from albert_tf.finetuning import batching, prediction, results, sweeps
from albert_tf.finetuning.batching import Features, Padding
from albert_tf.finetuning.prediction import BatchRunner
from albert_tf.finetuning.settings import FineTuningSettings
from albert_tf.finetuning.splits import (
    Outputs,
    Split,
    padding_multiple,
    training_order,
    training_steps,
)
from albert_tf.finetuning.text_task import TextTask, TrainedModel
from albert_tf.model.config import AlbertConfig
from albert_tf.model.optimization import WarmUpPolynomialDecay
from albert_tf.model.tokenization import Tokenizer
from albert_tf.training.task import Batch, Sums, Task

if TYPE_CHECKING:
    from typing_extensions import Self


class FineTuningTask(Task, TextTask):
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
        splits: name → examples and their features; see `use`.
    """

    settings: Any
    name: str = ""
    selection_metric: str
    percentages: tuple[str, ...] = ()
    splits: Mapping[str, Split]

    @classmethod
    def make(
        cls, settings: Any, config: AlbertConfig, tokenizer: Tokenizer, trained: RunFolder | None
    ) -> Self:
        """Returns the task: by default, of the first three arguments.

        Args:
            settings: the settings of the program.
            config: the model's config.
            tokenizer: the tokenizer.
            trained: folder of the model that the run starts with or uses, whose record says what is
                known of its task; None for random weights.
        """
        return cls(settings, config, tokenizer)  # type: ignore[call-arg]

    @classmethod
    def of_trained(cls, trained: TrainedModel) -> Self:
        """Returns the task to predict with a trained model: by default, that of `make`."""
        task = cls.make(trained.settings, trained.config, trained.tokenizer, trained.run)
        task.tokenizer = trained.tokenizer
        return task

    @property
    def max_seq_length(self) -> int:  # type: ignore[override]
        """The maximum sequence length, in tokens."""
        return int(self.settings.max_seq_length)

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

    # Training.

    @abc.abstractmethod
    def build_model(self) -> Any:
        """Returns the model with random weights, typically one of `albert_tf.model.heads`."""

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

    def measured_with(self, split: Split, batch_size: int, padding: Padding) -> tuple[Any, ...]:
        """Returns what affects the metrics besides the examples, their features and the checkpoint.

        These are settings that change the model's outputs, how outputs are converted to answers, or
        how answers are measured. By default, those that affect `settings.MODEL`.

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

    def write_evaluations(self, folder: RunFolder, evaluations: Sequence[Evaluation]) -> str:
        """Writes `eval_results.txt` after each evaluation, and returns its text.

        Args:
            folder: folder of the run.
            evaluations: evaluations of all checkpoints so far, sorted by step.
        """
        return results.write_race_results(
            folder, evaluations, self.selection_metric, self.settings.official_order
        )

    def describe_evaluations(self, folder: RunFolder, evaluations: Sequence[Evaluation]) -> str:
        """Returns the text to print when all checkpoints of a folder have been evaluated."""
        best = self.best_of(evaluations)
        text = results.format_metrics(evaluations[-1].metrics)
        return text + results.format_best(best, self.selection_metric)

    def write_dev_predictions(
        self, folder: RunFolder, split: Split, predict: Callable[[], Outputs]
    ) -> None:
        """Writes predictions for the dev split with the best checkpoint. Does nothing by default.

        Args:
            folder: folder of the run.
            split: the dev split.
            predict: returns the outputs of the best checkpoint for this split.
        """
        return

    # Prediction.

    def compute(self, model: Any, batch: Mapping[str, tf.Tensor]) -> Mapping[str, tf.Tensor]:
        """Returns the `predictions` of a model for a batch, name → [B, …]."""
        return self.predictions(model(batch, training=False))

    def result(self, outputs: Outputs) -> dict[str, Any]:
        """Returns the prediction for an example as a JSON object, which may contain NumPy values.

        Args:
            outputs: name → [...], the `predictions` for the example. By default, all of them are
                the result.
        """
        return dict(outputs)

    def write_predictions(
        self, folder: RunFolder, split: Split, outputs: Outputs, step: int
    ) -> str:
        """Writes the best checkpoint's predictions for a split, and metrics if labels are known.

        By default, each line of `<split>_predictions.jsonl` is the `result` of an example.

        Args:
            folder: folder of the run.
            split: "test", or another split that `read` supports.
            outputs: the outputs of the best checkpoint.
            step: the step of the best checkpoint.

        Returns:
            The text to print.
        """
        path = folder.file(f"{split.name}_predictions.jsonl")
        with files.write_atomically(path) as stream:
            for result in self.results(split.data, split.features, outputs):
                stream.write(json.dumps(result, ensure_ascii=False) + "\n")
        logging.info("Predictions: %s", path)
        return ""

    def results(
        self, examples: Sequence[Any], features: Features, outputs: Outputs
    ) -> list[dict[str, Any]]:
        """Returns the `result` of each of N examples, given `predictions` of the shapes [N, …]."""
        rows = (dict(zip(outputs, row, strict=True)) for row in zip(*outputs.values(), strict=True))
        return [results.as_json(self.result(row)) for row in rows]

    # The folder of a run, and its export.

    def check_trained(self, folder: RunFolder, is_training: bool) -> None:
        """Checks that the checkpoints in the folder of a run belong to this task.

        Args:
            folder: folder of the run, which has checkpoints.
            is_training: whether the run trains.

        Raises:
            ValueError: they belong to another task.
        """
        return

    def details(self) -> dict[str, Any]:
        """Returns what is recorded of the task besides its name and labels."""
        return {}

    @staticmethod
    def details_of_labels(labels: Sequence[str]) -> dict[str, Any]:
        """Returns the `details` of a model with these labels that no run has recorded."""
        return {}

    @staticmethod
    def recognizes(labels: Sequence[str]) -> bool:
        """Returns whether labels of an unknown task can only be those of this one."""
        return False

    def served_outputs(self, outputs: Any) -> dict[str, tf.Tensor]:
        """Converts the model's outputs to the outputs of the exported model, name → tensor."""
        return self.predictions(outputs)

    def serve(self, model: Any, batch: Batch) -> dict[str, tf.Tensor]:
        """Returns `served_outputs` of a model for a batch of tokens."""
        return self.served_outputs(model(batch, training=False))

    def make_export(self, model: Any, max_seq_length: int, folder: RunFolder) -> Export:
        """Returns what is exported: by default, `served_outputs` for inputs of any length.

        Args:
            model: a model of `build_model`, in float32, with its weights loaded.
            max_seq_length: sequence length of serialized examples.
            folder: folder with the record of the run.
        """
        inputs = token_inputs(max_seq_length)
        return Export(token_signatures(inputs, functools.partial(self.serve, model)))

    # What a run calls; see `training.task.Task`.

    def use(self, splits: Mapping[str, Split], strategy: tf.distribute.Strategy) -> None:
        """Sets the splits, and how their batches are padded on the devices of a strategy."""
        self.splits = splits
        limit = self.settings.max_seq_length
        self._padding = self.padding(Padding(limit, padding_multiple(self.settings, strategy)))
        self._model: Any = None  # the one that the next two belong to
        self._runners: dict[Any, BatchRunner] = {}
        self._steps: dict[Any, prediction.Step] = {}  # by signature of the batches
        # Digest of a checkpoint → its selection metric, and its outputs on the dev split. Those of
        # the best and the last evaluated one are kept.
        self._dev_outputs: dict[str, tuple[float, Outputs]] = {}

    @property
    def official_order(self) -> bool:  # type: ignore[override]
        """Whether checkpoints are evaluated and chosen as in Google's programs."""
        return bool(self.settings.official_order)

    @property
    def freezes_encoder(self) -> bool:  # type: ignore[override]
        """Whether only the head is trained."""
        return bool(self.settings.freeze_encoder)

    def count_examples(self) -> int:
        """Returns the number of training examples in an epoch."""
        return self.num_examples(self.splits["train"])

    def schedule(self, settings: FineTuningSettings) -> WarmUpPolynomialDecay:
        """Returns the learning rate schedule of a run."""
        rate = sweeps.learning_rate_of(settings)
        return WarmUpPolynomialDecay(rate, *training_steps(settings, self.count_examples()))

    def batches(self, settings: FineTuningSettings, step: int, rows: slice) -> Iterable[Batch]:
        """Returns the training batches from a step on, as a `tf.data.Dataset`."""
        features = self.splits["train"].features
        order = training_order(settings)
        return prediction.training_dataset(features, order, self._padding, step, rows)

    def keep_files(self, folder: RunFolder) -> None:
        """Copies the vocabulary to the folder of a run."""
        path = self.settings.vocabulary_file
        finding.keep_vocabulary(path, bool(self.settings.spm_model_file), folder.path)

    def batch_signature(self) -> dict[str, tf.TensorSpec]:
        """Returns name → TensorSpec of a batch, with all dimensions unknown."""
        return prediction.batch_signature(self.splits["train"].features)

    def measured_on(self) -> str:
        """Returns a `digest` of everything but the checkpoint that affects the metrics.

        The features contain the effect of all settings of reading and tokenization, so that no such
        setting can be forgotten.
        """
        dev = self.splits["dev"]
        features = batching.checksum(dev.features, self._padding.max_seq_length)
        others = self.measured_with(dev, self._batch_size(dev), self._padding)
        return digest_of_data(self.checksum(dev.data), features, others)

    def compute_metrics(self, model: Any, checkpoint: str) -> dict[str, float]:
        """Returns the metrics on the dev split; see `Task`."""
        dev = self.splits["dev"]
        outputs = self._runner(model, dev).run()
        metrics = self.measure(dev, outputs, self._batch_size(dev))
        best = max(self._dev_outputs.items(), key=lambda item: item[1][0], default=None)
        self._dev_outputs = {} if best is None else dict([best])
        self._dev_outputs[checkpoint] = metrics.get(self.selection_metric, -1.0), outputs
        return metrics

    def known_outputs(self, split: Split, checkpoint: str) -> Outputs | None:
        """Returns the outputs of a checkpoint that are kept since its evaluation, or None.

        Args:
            split: a split.
            checkpoint: digest of the checkpoint.
        """
        dev = self.splits.get("dev")
        if dev is None or split.features is not dev.features:
            return None
        return self._dev_outputs.get(checkpoint, (0.0, None))[1]

    def compute_outputs(self, model: Any, split: Split) -> Outputs:
        """Returns the outputs of a model for a split, name → [N, …]."""
        return self._runner(model, split).run()

    def _batch_size(self, split: Split) -> int:
        size: int = self.settings.predict_batch_size
        if split.name == "dev":
            size = self.settings.eval_batch_size or size
        return size

    def _runner(self, model: Any, split: Split) -> BatchRunner:
        """Returns the runner of a split, which is kept as long as the same model is used."""
        if model is not self._model:
            self._model, self._runners, self._steps = model, {}, {}
        size = self._batch_size(split)
        key = split.name, size
        if key not in self._runners:
            self._runners[key] = BatchRunner(
                model,
                split.features,
                size,
                self._padding,
                self.outputs,
                self.predictions,
                compile_step=self._compile_step,
            )
        return self._runners[key]

    def _compile_step(
        self, step: prediction.Step, signature: Mapping[str, tf.TensorSpec]
    ) -> prediction.Step:
        """Returns the prediction step, traced once for all splits with the same signature."""
        key = tuple(sorted(signature.items()))
        if key not in self._steps:
            self._steps[key] = prediction.as_tf_function(step, signature)
        return self._steps[key]

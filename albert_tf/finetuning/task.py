"""The interface of fine-tuning tasks.

A task is a class that inherits from `FineTuningTask`. It reads its data, converts examples to
features, builds the model, computes the loss and the metrics, and writes its files. The engine
provides training, early stopping, evaluation of all checkpoints, sweeps, prediction and export.

Shapes: B batch size, N examples, S sequence length.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf import files
from albert_tf.checkpoints import finding, record_comparison
from albert_tf.checkpoints.evaluations import Evaluation, best_of, digest_of_data, heading
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.signatures import Export, token_inputs, token_signatures
from albert_tf.checkpoints.store import evaluation_of_best
from albert_tf.checkpoints.weight_names import GLOBAL_STEP
from albert_tf.finetuning import batching
from albert_tf.finetuning.batch_runner import BatchRunner
from albert_tf.finetuning.batching import Features, Padding
from albert_tf.finetuning.dataset import batch_signature, training_dataset
from albert_tf.finetuning.json_values import as_json
from albert_tf.finetuning.plan import padding_multiple, training_order, training_steps
from albert_tf.finetuning.result_files import (
    RESULTS_FILE,
    SEPARATOR,
    TEST_RESULTS_FILE,
    format_copies,
    format_metrics,
)
from albert_tf.finetuning.settings import FineTuningSettings
from albert_tf.finetuning.text_task import Outputs, TextTask
from albert_tf.finetuning.trained_model import TrainedModel
from albert_tf.model.config import AlbertConfig
from albert_tf.model.schedules import WarmUpPolynomialDecay
from albert_tf.model.tokenization import Tokenizer
from albert_tf.training.task import Batch, Sums, Task

if TYPE_CHECKING:
    from typing_extensions import Self


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


class FineTuningTask(Task, TextTask):
    """The interface of a task. The implementations of non-abstract methods suit most tasks.

    Args:
        settings: the settings of the program, `FineTuningSettings` and its own.
        config: the model's config.
        tokenizer: the tokenizer.
        data: name → examples of each split that were read before; {} if `read` reads them.

    Attributes:
        settings, config, tokenizer, data: the arguments.
        name: name of the task in `albert_tf.finetuning.registry`, which a run records; "" for the
            name with which `finetuning.run_task` was called.
        labels: names of the model's outputs, in the order of their ids; () if they have none. They
            are recorded with the checkpoints, and compared when these are used.
        selection_metric: name of the metric, among those of `measure`, that selects the best
            checkpoint; larger is better.
        measured_with: names of settings that change the metrics of a checkpoint, besides those that
            affect `settings.MODEL`: how outputs are converted to answers, and answers are measured.
        percentages: endings of the names of metrics in percent, for messages.
        names_copies: whether `eval_results.txt` names the files that are copied.
        outputs: name of each output of `predictions` → padding value for outputs whose width
            differs between batches, as with questions that have different numbers of options.
        splits: name → examples and their features; see `use`.
    """

    settings: Any
    name: str = ""
    selection_metric: str
    measured_with: ClassVar[tuple[str, ...]] = ()
    percentages: tuple[str, ...] = ()
    names_copies: ClassVar[bool] = True
    splits: Mapping[str, Split] = MappingProxyType({})

    def __init__(
        self,
        settings: Any,
        config: AlbertConfig,
        tokenizer: Tokenizer,
        data: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.settings = settings
        self.config = config
        self.tokenizer = tokenizer
        self.data = data

    @classmethod
    def make(
        cls,
        settings: Any,
        config: AlbertConfig,
        tokenizer: Tokenizer,
        trained: RunFolder | None,
        data: Any = None,
    ) -> Self:
        """Returns the task: by default, of all arguments but `trained`, and of data if it has some.

        Args:
            settings: the settings of the program.
            config: the model's config.
            tokenizer: the tokenizer.
            trained: folder of the model that the run starts with or uses, whose record says what is
                known of its task; None for random weights.
            data: what the `reader` of the task's row returned; None if it has no reader.
        """
        return cls(settings, config, tokenizer, *([] if data is None else [data]))

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

    def read(self, split: str) -> Any:
        """Returns the examples of a split, "train", "dev" or "test": by default, those of `data`.

        Raises:
            ValueError, OSError: the data is missing or invalid.
        """
        return self.data[split]

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

    def best_of(self, evaluations: Sequence[Evaluation]) -> Evaluation | None:
        """Returns the best of some evaluations, which are sorted by step; None if there is none."""
        return best_of(evaluations, self.selection_metric, self.settings.official_order)

    def write_evaluations(self, folder: RunFolder, evaluations: Sequence[Evaluation]) -> str:
        """Writes `eval_results.txt` after each evaluation, and returns its text.

        As in Google's `run_race.py`, the file has a block for each checkpoint: the metrics, the
        best value before this checkpoint, the files that were copied if it is better (unless
        `names_copies` is false), and a line of "=".

        Args:
            folder: folder of the run.
            evaluations: evaluations of all checkpoints so far, sorted by step.
        """
        text = ""
        best = None
        for number, evaluation in enumerate(evaluations, 1):
            text += format_metrics(evaluation.metrics | {GLOBAL_STEP: evaluation.step})
            text += self.format_best(best)
            if self.best_of(evaluations[:number]) is evaluation:
                best = evaluation
                text += format_copies(folder, evaluation) if self.names_copies else ""
            text += SEPARATOR
        files.write_file(folder.file(RESULTS_FILE), heading(evaluations) + text)
        return text

    def best_value(self, evaluation: Evaluation | None) -> float:
        """Returns the selection metric of the best checkpoint; -1 if there is none yet."""
        if evaluation is None:
            return -1
        return float(np.float32(evaluation.metrics[self.selection_metric]))

    def format_best(self, evaluation: Evaluation | None) -> str:
        """Returns the line `best = value`; see `best_value`."""
        return f"best = {self.best_value(evaluation)}\n"

    def describe_evaluations(self, folder: RunFolder, evaluations: Sequence[Evaluation]) -> str:
        """Returns the text to print when all checkpoints of a folder have been evaluated.

        These are the metrics of the best checkpoint, or of the last one if there is no best.
        """
        best = self.best_of(evaluations) or evaluations[-1]
        metrics = best.metrics | {GLOBAL_STEP: best.step}
        return f"best checkpoint of {folder.path}\n{format_metrics(metrics)}"

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

    def write_test_results(
        self, folder: RunFolder, split: Split, outputs: Outputs, step: int
    ) -> str:
        """Writes `predict_results.txt` if the labels of a split of `Examples` are known.

        As in Google's `run_race.py`, it has the metrics of the split, and the best value of the
        selection metric on the dev set.

        Args:
            folder: folder of the run.
            split: the split.
            outputs: the outputs of the best checkpoint.
            step: the step of the best checkpoint.

        Returns:
            The text of the file, or "" without labels.
        """
        if not split.data.has_labels:
            return ""
        measured = self.measure(split, outputs, self.settings.predict_batch_size)
        text = "***** Predict results *****\n" + format_metrics(measured | {GLOBAL_STEP: step})
        best = evaluation_of_best(folder)
        if best is not None and self.selection_metric in best.metrics:
            text += self.format_best(best)
        files.write_file(folder.file(TEST_RESULTS_FILE), text)
        return text

    def results(
        self, examples: Sequence[Any], features: Features, outputs: Outputs
    ) -> list[dict[str, Any]]:
        """Returns the `result` of each of N examples, given `predictions` of the shapes [N, …]."""
        rows = (dict(zip(outputs, row, strict=True)) for row in zip(*outputs.values(), strict=True))
        return [as_json(self.result(row)) for row in rows]

    # The folder of a run, and its export.

    def details(self) -> dict[str, Any]:
        """Returns what is recorded of the task besides its name and labels."""
        return {}

    def served_outputs(self, outputs: Any) -> dict[str, tf.Tensor]:
        """Converts the model's outputs to the outputs of the exported model, name → tensor."""
        return self.predictions(outputs)

    def serve(self, model: Any, batch: Batch) -> dict[str, tf.Tensor]:
        """Returns `served_outputs` of a model for a batch of tokens."""
        return self.served_outputs(model(batch, training=False))

    @property
    def label_files(self) -> dict[str, bytes]:
        """Name → content of `labels.txt`, for the folder of an export; {} without labels."""
        lines = "".join(f"{label}\n" for label in self.labels)
        return {finding.LABELS_FILE: lines.encode()} if lines else {}

    def make_export(self, model: Any, max_seq_length: int, folder: RunFolder) -> Export:
        """Returns what is exported: by default, `served_outputs` for inputs of any length.

        Args:
            model: a model of `build_model`, in float32, with its weights loaded.
            max_seq_length: sequence length of serialized examples.
            folder: folder with the record of the run.
        """
        inputs = token_inputs(max_seq_length)
        signatures = token_signatures(inputs, functools.partial(self.serve, model))
        return Export(signatures, self.label_files)

    # What a run calls; see `training.task.Task`.

    def use(self, splits: Mapping[str, Split], strategy: tf.distribute.Strategy) -> None:
        """Sets the splits, and how their batches are padded on the devices of a strategy."""
        self.splits = splits
        limit = self.settings.max_seq_length
        others = [splits[name] for name in splits if name != "train"]
        counts = [-(-len(split.features) // self._batch_size(split)) for split in others]
        self._padding, self._eval_padding = (
            self.padding(Padding(limit, padding_multiple(self.settings, strategy, num_batches)))
            for num_batches in (None, max(counts, default=0))
        )  # of training, and of all else
        self._model: Any = None  # the one that the runners belong to
        self._runners: dict[Any, BatchRunner] = {}  # by signature of the batches
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
        """Returns the number of training examples in an epoch; each may have several features."""
        return len(self.splits["train"].features)

    def schedule(self, settings: Any) -> WarmUpPolynomialDecay:
        """Returns the learning rate schedule of a run."""
        steps = training_steps(settings, self.count_examples())
        return WarmUpPolynomialDecay(settings.learning_rate, *steps)

    def batches(self, settings: FineTuningSettings, step: int, rows: slice) -> Iterable[Batch]:
        """Returns the training batches from a step on, as a `tf.data.Dataset`."""
        features = self.splits["train"].features
        order = training_order(settings)
        return training_dataset(features, order, self._padding, step, rows)

    def keep_files(self, folder: RunFolder) -> None:
        """Copies the vocabulary to the folder of a run."""
        path = self.settings.vocabulary_file
        finding.keep_vocabulary(path, bool(self.settings.spm_model_file), folder.path)

    def batch_signature(self) -> dict[str, tf.TensorSpec]:
        """Returns name → TensorSpec of a batch, with all dimensions unknown."""
        return batch_signature(self.splits["train"].features)

    def measured_on(self) -> str:
        """Returns a `digest` of everything but the checkpoint that affects the metrics.

        The features contain the effect of all settings of reading and tokenization, so that no such
        setting can be forgotten.
        """
        dev = self.splits["dev"]
        features = batching.checksum(dev.features, self.max_seq_length)
        names = {*self.settings.names_for_model, *self.measured_with} - record_comparison.OF_TEXT
        values = [(name, getattr(self.settings, name)) for name in sorted(names)]
        return digest_of_data(self.checksum(dev.data), features, self.name, self.labels, values)

    def compute_metrics(self, model: Any, checkpoint: str) -> dict[str, float]:
        """Returns the metrics on the dev split; see `Task`."""
        dev = self.splits["dev"]
        outputs = self.compute_outputs(model, dev)
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

    def _batch_size(self, split: Split) -> int:
        size: int = self.settings.predict_batch_size
        if split.name == "dev":
            size = self.settings.eval_batch_size or size
        return size

    def compute_outputs(self, model: Any, split: Split) -> Outputs:
        """Returns the outputs of a model for a split, name → [N, …].

        The model is traced once for all splits whose batches have the same signature.
        """
        if model is not self._model:
            self._model, self._runners = model, {}
        size = self._batch_size(split)
        key = tuple(sorted(batch_signature(split.features).items()))
        if key not in self._runners:
            self._runners[key] = BatchRunner(
                model, split.features, size, self._eval_padding, self.outputs, self.predictions
            )
        runner = self._runners[key]
        runner.features, runner.batch_size = split.features, size
        return runner.run()

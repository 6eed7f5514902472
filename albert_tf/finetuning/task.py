"""What the author of a fine-tuning task writes.

A task is a class that inherits from `FineTuningTask`. It reads its data, converts examples to
features, builds the model, and computes the loss, the predictions and the metrics. The engine
provides training, early stopping, evaluation of all checkpoints, sweeps, prediction and export.

Shapes: B batch size, N examples, S sequence length.
"""

from __future__ import annotations

import abc
import hashlib
from collections.abc import Mapping
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Protocol,
    TypeAlias,
    cast,
    runtime_checkable,
)

import tensorflow as tf
import tf_keras

from albert_tf import files
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.finetuning.batch_runner import Outputs
from albert_tf.finetuning.exporter import Exporter
from albert_tf.finetuning.predicting_task import PredictingTask, SettingsType
from albert_tf.finetuning.result_files import ResultFiles
from albert_tf.finetuning.splits import DataType, FeaturesType, Split
from albert_tf.finetuning.trained_model import TrainedModel
from albert_tf.model.config import AlbertConfig
from albert_tf.model.modeling import AlbertModel
from albert_tf.model.tokenization import Tokenizer
from albert_tf.training.task import Batch, ModelOutputs

if TYPE_CHECKING:
    from typing_extensions import Self

AnyTask: TypeAlias = "FineTuningTask[Any, Any, Any]"


@runtime_checkable
class HasChecksum(Protocol):
    """Examples that know their checksum."""

    def checksum(self) -> str:
        """Returns the SHA-256 of all examples, in hexadecimal."""


class FineTuningTask(
    PredictingTask[SettingsType, DataType], abc.ABC, Generic[SettingsType, DataType, FeaturesType]
):
    """A task, as its author describes it. The methods that are not abstract suit most tasks.

    For type checkers, it has the types of its settings, of the examples of a split and of their
    features, as in `FineTuningTask[Settings, list[str], TokenSequences]`.

    Args:
        settings: the settings of the program, `FineTuningSettings` and its own.
        config: the model's config.
        tokenizer: the tokenizer.
        data: name → examples of each split that were read before; {} if `read` reads them.

    Attributes, besides those of `PredictingTask`:
        selection_metric: name of the metric, among those of `measure`, that selects the best
            checkpoint; larger is better.
        measured_with: names of settings that change the metrics of a checkpoint, besides those that
            affect `settings.MODEL`: how outputs are converted to answers, and answers are measured.
        percentages: endings of the names of metrics in percent, for messages.
    """

    selection_metric: str
    measured_with: ClassVar[tuple[str, ...]] = ()
    percentages: tuple[str, ...] = ()

    @classmethod
    def make(
        cls,
        settings: SettingsType,
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
        """Returns the task that a model was trained for: by default, that of `make`.

        Raises:
            ValueError: what is recorded of the task is damaged, or does not fit the model.
        """
        task = cls.make(trained.settings, trained.config, trained.tokenizer, trained.run)
        task.tokenizer = trained.tokenizer
        return task

    # Data.

    def read(self, split: str) -> DataType:
        """Returns the examples of a split, "train", "dev" or "test": by default, those of `data`.

        Raises:
            ValueError, OSError: the data is missing or invalid.
        """
        return self.data[split]

    def checksum(self, data: DataType) -> str:
        """Returns the SHA-256 of the examples that `read` returned, in hexadecimal.

        The examples have a method `checksum`, or are lists of values with the same `repr` in every
        process.

        Raises:
            TypeError: they are something else.
        """
        if isinstance(data, list):
            return hashlib.sha256(repr(data).encode("utf-8")).hexdigest()
        if isinstance(data, HasChecksum):
            return data.checksum()
        raise TypeError(
            f"{type(self).__name__}.read returns {type(data).__name__}: expected a list, or an "
            "object with a method `checksum`"
        )

    @abc.abstractmethod
    def make_features(self, data: DataType, split: str) -> FeaturesType:
        """Returns the features of the examples that `read` returned for a split.

        Models of this package ignore a feature with the name `label_ids`, of any shape and type.
        """

    def as_row(self, example: Any) -> files.JsonObject:
        """Returns an example, without its label, as a row of a file that `albert predict` reads.

        The page of `--web` shows a few of the training data. By default {}, which shows none.
        """
        return {}

    def count_examples(self, split: Split[DataType, FeaturesType]) -> int:
        """Returns the number of examples in an epoch: by default, that of the features."""
        return len(split.features)

    # The model, and its training.

    @abc.abstractmethod
    def build_model(self) -> AlbertModel:
        """Returns the model with random weights, typically one of `albert_tf.model.heads`."""

    @abc.abstractmethod
    def losses(self, outputs: ModelOutputs, batch: Batch) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
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

    # Predictions and their metrics.

    def predictions(self, outputs: ModelOutputs) -> Mapping[str, tf.Tensor]:
        """Converts the model's outputs to the outputs to collect, name → [B, …]."""
        return cast("Mapping[str, tf.Tensor]", outputs)  # a single tensor has no name: override

    def compute(
        self, model: tf_keras.layers.Layer, batch: Mapping[str, tf.Tensor]
    ) -> Mapping[str, tf.Tensor]:
        """Returns the `predictions` of a model for a batch, name → [B, …]."""
        return self.predictions(model(dict(batch), training=False))

    @abc.abstractmethod
    def measure(
        self, split: Split[DataType, FeaturesType], outputs: Outputs, batch_size: int
    ) -> dict[str, float]:
        """Computes the metrics of a split with known labels.

        Args:
            split: N examples.
            outputs: name → [N, …], the `predictions` in the order of the examples.
            batch_size: batch size of the evaluation, for metrics that are means over batches.

        Returns:
            Metric name → value.
        """

    # What is recorded, and the parts that write, answer and export.

    def details(self) -> files.JsonObject:
        """Returns what is recorded of the task besides its name and labels."""
        return {}

    def result_files(self) -> ResultFiles[DataType, FeaturesType]:
        """Returns what writes the files of results: override it for files of other formats."""
        return ResultFiles(self)

    def exporter(self) -> Exporter:
        """Returns what is exported: override it for other signatures."""
        return Exporter(self)

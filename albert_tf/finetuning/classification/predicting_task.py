"""Predictions of classes, any number of labels, or scores.

Shapes: K labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from albert_tf.checkpoints import tasks
from albert_tf.finetuning.batch_runner import Outputs
from albert_tf.finetuning.batching import Padding
from albert_tf.finetuning.classification import Settings
from albert_tf.finetuning.classification.custom import recorded_labels
from albert_tf.finetuning.classification.parsing import Example
from albert_tf.finetuning.classification.tasks import ClassificationTask
from albert_tf.finetuning.examples import Examples
from albert_tf.finetuning.predicting_task import PredictingTask
from albert_tf.finetuning.text_task import Result
from albert_tf.finetuning.trained_model import TrainedModel
from albert_tf.model.config import AlbertConfig
from albert_tf.model.tokenization import Tokenizer

if TYPE_CHECKING:
    from typing_extensions import Self

THRESHOLD = 0.5  # of the probability of a label in multi-label tasks


class PredictingClassifier(PredictingTask[Settings, Examples[Example]]):
    """The part of `Classifier` that predicts, which needs no TensorFlow.

    Args:
        settings: the settings of the program.
        config: the model's config.
        tokenizer: the tokenizer.
        data: the task, from the table or a custom one, with its labels; and the examples of each
            split. See `reading.read_data`.

    Attributes:
        definition: the task.
    """

    outputs: Mapping[str, float] = {"probabilities": 0.0}

    def __init__(
        self,
        settings: Settings,
        config: AlbertConfig,
        tokenizer: Tokenizer,
        data: tuple[ClassificationTask, Mapping[str, Examples[Example]]],
    ) -> None:
        self.definition, splits = data
        super().__init__(settings, config, tokenizer, splits)
        self.labels = self.definition.labels
        self.name = tasks.REGRESSION if self.definition.is_regression else tasks.CLASSIFICATION
        if self.definition.is_multi_label:
            self.name = tasks.MULTI_LABEL

    @classmethod
    def of_trained(cls, trained: TrainedModel) -> Self:
        """Returns the task that a model was trained for, with labels "0", "1", … if unknown."""
        is_regression = trained.task == tasks.REGRESSION
        labels = () if is_regression else recorded_labels(trained.run.record)
        if labels:
            trained.check_labels(labels)
        elif not is_regression:
            labels = tuple(map(str, range(trained.num_outputs)))
        task = ClassificationTask(
            name="",
            folder="",
            splits={},
            labels=labels,
            is_regression=is_regression,
            is_multi_label=trained.task == tasks.MULTI_LABEL,
        )
        return cls(trained.settings, trained.config, trained.tokenizer, (task, {}))

    def padding(self, padding: Padding) -> Padding:
        """Returns how batches are padded: all to the same length without `use_pooled_output`.

        The mean over all positions includes the padding then, as in Google's program.
        """
        if self.settings.use_pooled_output:
            return padding
        return Padding(padding.max_seq_length, padding.max_seq_length)

    def result(self, outputs: Outputs) -> Result:
        """Returns `label` and `probabilities` (label → probability), or `score` in regression.

        In multi-label tasks, `labels` are those whose probability is above 0.5.
        """
        row = outputs["probabilities"]  # [K]
        if self.definition.is_regression:
            return {"score": row[0]}
        predicted: Result = {"label": self.labels[row.argmax()]}
        if self.definition.is_multi_label:
            predicted = {"labels": self.labels_above_threshold(row)}
        return predicted | {"probabilities": dict(zip(self.labels, row, strict=True))}

    def labels_above_threshold(self, row: NDArray[np.float32]) -> list[str]:
        """Returns the labels whose probability is above 0.5, in multi-label tasks.

        Args:
            row: the probability of each label, [K].
        """
        return [label for label, x in zip(self.labels, row, strict=True) if x > THRESHOLD]

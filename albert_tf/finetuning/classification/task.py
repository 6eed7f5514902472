"""Classification and regression as a fine-tuning task: features, loss, metrics and predictions.

The table of tasks is in `tasks`; `reading` reads their examples. Source: `run_classifier.py` and
`classifier_utils.py` of google-research/albert.

Shapes: B batch size, N examples, K labels, S sequence length.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import tensorflow as tf
from absl import logging
from numpy.typing import NDArray

from albert_tf.checkpoints import tasks
from albert_tf.finetuning.batch_runner import Outputs
from albert_tf.finetuning.batching import Array, Padding
from albert_tf.finetuning.classification import Settings
from albert_tf.finetuning.classification.custom import recorded_labels
from albert_tf.finetuning.classification.evaluation import evaluate
from albert_tf.finetuning.classification.exporter import ClassifierExporter
from albert_tf.finetuning.classification.parsing import Example
from albert_tf.finetuning.classification.result_files import ClassifierFiles, ClassifierSplit
from albert_tf.finetuning.classification.tasks import ClassificationTask
from albert_tf.finetuning.examples import Examples
from albert_tf.finetuning.task import FineTuningTask
from albert_tf.finetuning.text_task import Result
from albert_tf.finetuning.token_sequences import TokenSequences, log_full_sequences
from albert_tf.finetuning.trained_model import TrainedModel
from albert_tf.model.config import AlbertConfig
from albert_tf.model.heads import AlbertForClassification
from albert_tf.model.losses import classification_losses, multi_label_losses, regression_losses
from albert_tf.model.tokenization import Tokenizer
from albert_tf.training.task import Batch

EXAMPLES_AT_ONCE = 1000
BEST_TRIAL_FILE = "best_trial.txt"
THRESHOLD = 0.5  # of the probability of a label in multi-label tasks
# The outputs to collect, and their padding values.
OUTPUTS = {"logits": 0.0, "probabilities": 0.0}


class Classifier(FineTuningTask[Settings, Examples[Example], TokenSequences]):
    """Classification or regression of texts and text pairs, as a fine-tuning task.

        classify = albert_tf.load_predictor("lcqmc_model/")
        classify([("你多大了", "你几岁"), ("天气好", "天气不好")])

    The result of a prediction is a dict of `label` and `probabilities` (label → probability), or of
    `score` in regression. A model with any number of labels returns `labels`, those above 0.5, in
    place of `label`. Labels of a model that transformers saved have the names that its `pipeline`
    returns, such as "LABEL_0" if it was trained without names.

    Args:
        settings: the settings of the program.
        config: the model's config.
        tokenizer: the tokenizer.
        data: the task, from the table or a custom one, with its labels; and the examples of each
            split. See `reading.read_data`.
    """

    measured_with = ("task_name", "eval_batch_size")  # Google's program averages over batches
    outputs = OUTPUTS

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
        self.selection_metric = self.definition.selection_metric

    @classmethod
    def of_trained(cls, trained: TrainedModel) -> Classifier:
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

    def make_features(self, data: Examples[Example], split: str) -> TokenSequences:
        """Returns the token sequences of a split, identical to those of Google's program.

        Longer pairs are truncated at the end of the longer text.

        Returns:
            The sequences and the column `label_ids`, in the order of the examples.
        """
        logging.info("Tokenizing the %d examples of %s", len(data), data.path)
        columns = {"label_ids": self._label_ids(data)}
        features = TokenSequences.pack(self._sequences(data), columns)
        ids = features.input_ids[: features.sequence_lengths[0]].tolist()
        tokens = " ".join(self.tokenizer.convert_ids_to_tokens(ids))
        logging.info("%s (%s): %s", data.examples[0].guid, data.examples[0].label, tokens)
        log_full_sequences(data.path, features, self.settings.max_seq_length)
        return features

    def _sequences(self, data: Examples[Example]) -> Iterator[tuple[list[int], int]]:
        for begin in range(0, len(data), EXAMPLES_AT_ONCE):
            examples = data.examples[begin : begin + EXAMPLES_AT_ONCE]
            firsts = [example.text_a for example in examples]
            seconds = [example.text_b for example in examples]
            yield from self.tokenizer.sequences(firsts, seconds, self.settings.max_seq_length)

    def _label_ids(self, data: Examples[Example]) -> Array:
        """Returns label ids, int32 [N], or numbers in regression, float32 [N]; 0 if unknown.

        In multi-label tasks, this is 1 for the labels of each example and 0 for others, [N, K].
        """
        if self.definition.is_regression:
            return np.array([float(str(x.label or 0)) for x in data.examples], np.float32)
        ids: dict[object, int] = {label: number for number, label in enumerate(self.labels)}
        if self.definition.is_multi_label:
            label_ids = np.zeros((len(data), len(ids)), np.int32)
            for row, example in zip(label_ids, data.examples, strict=True):
                row[[ids[label] for label in example.labels]] = 1
            return label_ids
        return np.array([(ids | {None: 0})[x.label] for x in data.examples], np.int32)

    def padding(self, padding: Padding) -> Padding:
        """Returns how batches are padded: all to the same length without `use_pooled_output`.

        The mean over all positions includes the padding then, as in Google's program.
        """
        if self.settings.use_pooled_output:
            return padding
        return Padding(padding.max_seq_length, padding.max_seq_length)

    def build_model(self) -> AlbertForClassification:
        """Returns the model with random weights."""
        task = self.definition
        return AlbertForClassification(
            self.config,
            task.num_labels,
            task.is_regression,
            self.settings.use_pooled_output,
            task.is_multi_label,
        )

    def losses(self, outputs: tf.Tensor, batch: Batch) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Returns the losses, [B], and the training metric: the accuracy, or MSE in regression.

        In multi-label tasks, the accuracy counts examples whose labels are all correct.

        Args:
            outputs: logits, float32 [B, K].
            batch: has `label_ids`, [B], or [B, K] in multi-label tasks.
        """
        labels = batch["label_ids"]
        if self.definition.is_regression:
            losses = regression_losses(outputs[:, 0], labels)
            return losses, {"MSE": losses}
        if self.definition.is_multi_label:
            hits = (outputs > 0) == (labels > 0)  # [B, K]
            return multi_label_losses(outputs, labels), {"accuracy": tf.reduce_all(hits, axis=-1)}
        predictions = tf.argmax(outputs, axis=-1, output_type=labels.dtype)
        return classification_losses(outputs, labels), {"accuracy": predictions == labels}

    def predictions(self, outputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns `logits` and `probabilities`, both [B, K]; both are the scores in regression."""
        if self.definition.is_regression:
            return {"logits": outputs, "probabilities": outputs}
        squash = tf.nn.sigmoid if self.definition.is_multi_label else tf.nn.softmax
        return {"logits": outputs, "probabilities": squash(outputs)}

    def measure(
        self, split: ClassifierSplit, outputs: Outputs, batch_size: int
    ) -> dict[str, float]:
        """Returns the metrics of the task; see `evaluate`."""
        return evaluate(self.definition, outputs["logits"], self._label_ids(split.data), batch_size)

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

    def result_files(self) -> ClassifierFiles:
        """Returns what writes the files of Google's program."""
        return ClassifierFiles(self)

    def exporter(self) -> ClassifierExporter:
        """Returns what is exported for tokens, raw strings and TFLite."""
        return ClassifierExporter(self)

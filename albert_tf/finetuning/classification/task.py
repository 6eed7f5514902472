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

from albert_tf import files
from albert_tf.finetuning.batch_runner import Outputs
from albert_tf.finetuning.batching import Array
from albert_tf.finetuning.classification import Settings
from albert_tf.finetuning.classification.evaluation import evaluate
from albert_tf.finetuning.classification.exporter import ClassifierExporter
from albert_tf.finetuning.classification.parsing import Example
from albert_tf.finetuning.classification.predicting_task import PredictingClassifier
from albert_tf.finetuning.classification.result_files import ClassifierFiles, ClassifierSplit
from albert_tf.finetuning.classification.tasks import ClassificationTask
from albert_tf.finetuning.examples import Examples
from albert_tf.finetuning.task import FineTuningTask
from albert_tf.finetuning.token_sequences import TokenSequences, log_full_sequences
from albert_tf.model.config import AlbertConfig
from albert_tf.model.heads import AlbertForClassification
from albert_tf.model.losses import classification_losses, multi_label_losses, regression_losses
from albert_tf.model.tokenization import Tokenizer
from albert_tf.training.task import Batch

EXAMPLES_AT_ONCE = 1000
BEST_TRIAL_FILE = "best_trial.txt"
# The outputs to collect, and their padding values; the logits are for the metrics.
OUTPUTS = {"logits": 0.0, **PredictingClassifier.outputs}


class Classifier(PredictingClassifier, FineTuningTask[Settings, Examples[Example], TokenSequences]):
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
        super().__init__(settings, config, tokenizer, data)
        self.selection_metric = self.definition.selection_metric

    def as_row(self, example: Example) -> files.JsonObject:
        """Returns the text, or the pair of texts, of an example."""
        pair = {"text_b": example.text_b} if example.text_b else {}
        return {"text": example.text_a, **pair}

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

    def result_files(self) -> ClassifierFiles:
        """Returns what writes the files of Google's program."""
        return ClassifierFiles(self)

    def exporter(self) -> ClassifierExporter:
        """Returns what is exported for tokens, raw strings and TFLite."""
        return ClassifierExporter(self)

"""Classification and regression as a task: features, loss, metrics, predictions and export.

The table of tasks is in `tasks`; `reading` reads their examples. Source: `run_classifier.py` and
`classifier_utils.py` of google-research/albert.

Shapes: B batch size, N examples, K labels, S sequence length.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from absl import logging
from numpy.typing import NDArray

from albert_tf import files
from albert_tf.checkpoints import tasks
from albert_tf.checkpoints.evaluations import Evaluation
from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.finetuning import metrics, result_files
from albert_tf.finetuning.batching import Array, Outputs, Padding
from albert_tf.finetuning.classification.custom import FIRST_ID, recorded_labels
from albert_tf.finetuning.classification.encoding import EncodedTexts, Example
from albert_tf.finetuning.classification.prediction_files import (
    label_list,
    write_dev_predictions,
    write_submissions,
)
from albert_tf.finetuning.classification.reading import read_data
from albert_tf.finetuning.classification.settings import Settings
from albert_tf.finetuning.classification.tasks import CUSTOM_TASK, ClassificationTask
from albert_tf.finetuning.splits import Split
from albert_tf.finetuning.task import FineTuningTask, Result, check_labels
from albert_tf.finetuning.token_sequences import TokenSequences, log_full_sequences
from albert_tf.model.config import AlbertConfig
from albert_tf.model.tokenization import Tokenizer
from albert_tf.tables import Table

if TYPE_CHECKING:  # what needs TensorFlow
    import tensorflow as tf
    import tf_keras
    from typing_extensions import Self

    from albert_tf.export.signatures import Export, Tensors
    from albert_tf.model.heads import AlbertForClassification
    from albert_tf.training.task import Batch

BEST_TRIAL_FILE = "best_trial.txt"
THRESHOLD = 0.5  # of the probability of a label in multi-label tasks

ClassifierSplit = Split[EncodedTexts, TokenSequences]


class Classifier(FineTuningTask[Settings, EncodedTexts, TokenSequences]):
    """Classification or regression of texts and text pairs.

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

    Attributes:
        definition: the task.
    """

    settings_class = Settings
    outputs: Mapping[str, float] = {"probabilities": 0.0}
    measured_outputs: Mapping[str, float] = {"logits": 0.0}
    measured_with = ("task_name", "eval_batch_size")  # Google's program averages over batches
    names = (tasks.CLASSIFICATION, tasks.REGRESSION, tasks.MULTI_LABEL)
    names_copies = False
    flags = ("text", "text_b")

    def __init__(
        self,
        settings: Settings,
        config: AlbertConfig,
        tokenizer: Tokenizer,
        data: tuple[ClassificationTask, Mapping[str, EncodedTexts]],
    ) -> None:
        self.definition, splits = data
        super().__init__(settings, config, tokenizer, splits)
        self.selection_metric = self.definition.selection_metric
        self.labels = self.definition.labels
        self.name = tasks.REGRESSION if self.definition.is_regression else tasks.CLASSIFICATION
        if self.definition.is_multi_label:
            self.name = tasks.MULTI_LABEL

    @classmethod
    def open(
        cls, settings: Settings, source: ModelSource, given: Mapping[str, Table] | None = None
    ) -> Self:
        """Returns the task with the name `--task_name`, and its data; see `reading.read_data`."""
        tokenizer = source.unchecked_tokenizer
        data = read_data(settings, tokenizer, source.trained, given)
        return cls(settings, source.config, tokenizer, data)

    @classmethod
    def of_trained(
        cls, name: str, settings: Settings, source: ModelSource, num_outputs: int
    ) -> Self:
        """Returns the task that a model was trained for, with labels "0", "1", … if unknown."""
        is_regression = name == tasks.REGRESSION
        labels = () if is_regression else recorded_labels(source.run.record)
        if labels:
            check_labels(labels, num_outputs, source)
        elif not is_regression:
            labels = tuple(map(str, range(num_outputs)))
        task = ClassificationTask(
            name="",
            folder="",
            splits={},
            labels=labels,
            is_regression=is_regression,
            is_multi_label=name == tasks.MULTI_LABEL,
        )
        return cls(settings, source.config, source.tokenizer, (task, {}))

    def padding(self, padding: Padding) -> Padding:
        """Returns how batches are padded: all to the same length without `use_pooled_output`.

        The mean over all positions includes the padding then, as in Google's program.
        """
        if self.settings.use_pooled_output:
            return padding
        return Padding(padding.max_seq_length, padding.max_seq_length)

    def details(self) -> files.JsonObject:
        """Returns from where the ids of labels are counted that the settings name."""
        first_id = self.definition.first_id
        return {} if first_id is None else {FIRST_ID: first_id}

    # Features.

    def as_row(self, example: Example) -> files.JsonObject:
        """Returns the text, or the pair of texts, of an example."""
        pair = {"text_b": example.text_b} if example.text_b else {}
        return {"text": example.text_a, **pair}

    def make_features(self, data: EncodedTexts, split: str) -> TokenSequences:
        """Returns the token sequences of a split, identical to those of Google's program.

        Returns:
            The sequences and the column `label_ids`, in the order of the examples.
        """
        features = dataclasses.replace(data.features, columns={"label_ids": self._label_ids(data)})
        ids = features.input_ids[: features.sequence_lengths[0]].tolist()
        tokens = " ".join(self.tokenizer.convert_ids_to_tokens(ids))
        logging.info("%s (%s): %s", data.examples[0].guid, data.examples[0].label, tokens)
        log_full_sequences(data.path, features, self.settings.max_seq_length)
        return features

    def _label_ids(self, data: EncodedTexts) -> Array:
        """Returns label ids, int32 [N], or numbers in regression, float32 [N]; 0 if unknown.

        In multi-label tasks, this is 1 for the labels of each example and 0 for others, [N, K].
        """
        labels, indices = data.examples.labels, data.examples.label_indices()
        if self.definition.is_regression:
            numbers: Array = np.array([float(str(label or 0)) for label in labels], np.float32)
            return np.take(numbers, indices)
        ids: dict[object, int] = {label: number for number, label in enumerate(self.labels)}
        if self.definition.is_multi_label:
            label_ids = np.zeros((len(labels), len(ids)), np.int32)
            for row, label in zip(label_ids, labels, strict=True):
                row[[ids[part] for part in label or ()]] = 1
            return np.take(label_ids, indices, axis=0)
        of_labels = np.array([(ids | {None: 0})[label] for label in labels], np.int32)
        return np.take(of_labels, indices)

    # The model, its loss and its predictions.

    def build_model(self) -> AlbertForClassification:
        """Returns the model with random weights."""
        from albert_tf.model.heads import AlbertForClassification

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
        import tensorflow as tf

        from albert_tf.model import losses

        labels = batch["label_ids"]
        if self.definition.is_regression:
            squared = losses.regression_losses(outputs[:, 0], labels)  # [B]
            return squared, {"MSE": squared}
        if self.definition.is_multi_label:
            hits = tf.reduce_all((outputs > 0) == (labels > 0), axis=-1)  # [B]
            return losses.multi_label_losses(outputs, labels), {"accuracy": hits}
        hits = tf.argmax(outputs, axis=-1, output_type=labels.dtype) == labels  # [B]
        return losses.classification_losses(outputs, labels), {"accuracy": hits}

    def predictions(self, outputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns `logits` and `probabilities`, both [B, K]; both are the scores in regression."""
        import tensorflow as tf

        if self.definition.is_regression:
            return {"logits": outputs, "probabilities": outputs}
        squash = tf.nn.sigmoid if self.definition.is_multi_label else tf.nn.softmax
        return {"logits": outputs, "probabilities": squash(outputs)}

    def result(self, outputs: Outputs) -> Result:
        """Returns `label` and `probabilities` (label → probability), or `score` in regression.

        In multi-label tasks, `labels` are those whose probability is above 0.5.
        """
        row = outputs["probabilities"]  # [K]
        if self.definition.is_regression:
            return {"score": row[0]}
        predicted: Result = {"label": self.labels[row.argmax()]}
        if self.definition.is_multi_label:
            predicted = {"labels": self._labels_above_threshold(row)}
        return predicted | {"probabilities": dict(zip(self.labels, row, strict=True))}

    def _labels_above_threshold(self, row: NDArray[np.float32]) -> list[str]:
        """Returns the labels whose probability is above 0.5, given all probabilities, [K]."""
        return [label for label, x in zip(self.labels, row, strict=True) if x > THRESHOLD]

    # Metrics, and the files of results.

    def measure(
        self, split: ClassifierSplit, outputs: Outputs, batch_size: int
    ) -> dict[str, float]:
        """Returns the metrics of the task, with the keys of Google's program; see `metrics`."""
        task = self.definition
        logits = outputs["logits"]  # [N, K]
        label_ids = self._label_ids(split.data)
        if task.is_regression:
            logits = logits[:, 0]  # [N]
        if task.is_multi_label:
            measured = metrics.multi_label_metrics(logits > 0, label_ids, task.labels)
        else:
            predicted = logits if task.is_regression else logits.argmax(axis=1)  # [N]
            measured = {key: metrics.METRICS[key](predicted, label_ids) for key in task.metrics}
        losses = metrics.losses_of_examples(logits, label_ids)
        return measured | metrics.loss_metrics(losses, batch_size)

    def write_evaluations(self, folder: RunFolder, evaluations: Sequence[Evaluation]) -> None:
        """Writes `eval_results.txt` and `best_trial.txt` like Google's program.

        The latter has the content `<last step>:<best step>:<best value>`, with -1 if there is none.
        """
        super().write_evaluations(folder, evaluations)
        best = self.best_of(evaluations)
        value = result_files.best_value(best, self.selection_metric)
        steps = (evaluations[-1].step, -1 if best is None else best.step)
        files.write_file(folder.file(BEST_TRIAL_FILE), f"{steps[0]}:{steps[1]}:{value}")

    def write_dev_predictions(
        self, folder: RunFolder, split: ClassifierSplit, predict: Callable[[], Outputs]
    ) -> None:
        """Writes `dev_predictions.tsv`, for error analysis; see `prediction_files`."""
        rows = predict()["probabilities"].astype(np.float32)  # [N, K]
        predicted = self._predicted_labels(rows)
        write_dev_predictions(folder, self.definition, split.data.examples, predicted, rows)

    def write_predictions(
        self, folder: RunFolder, split: ClassifierSplit, outputs: Outputs, step: int
    ) -> str:
        """Writes predictions for the test split in all formats, and metrics if labels are known.

        See `prediction_files.write_submissions`.

        Returns:
            The text of `predict_results.txt`, or "" without labels.
        """
        rows = outputs["probabilities"].astype(np.float32)  # [N, K]
        is_custom = self.definition.name == CUSTOM_TASK
        guids = [x.id if is_custom else x.guid for x in split.data.examples]
        write_submissions(folder, self.definition, guids, self._predicted_labels(rows), rows)
        if not split.data.has_labels:
            return ""
        return self.write_test_results(folder, split, outputs, step)

    def _predicted_labels(self, rows: NDArray[np.float32]) -> list[str]:
        """Returns the most probable label of each example, or the score in regression.

        In multi-label tasks, this is a JSON list of labels.

        Args:
            rows: the probabilities of each example, or its score, [N, K].
        """
        if self.definition.is_regression:
            return [str(score) for score in rows[:, 0]]
        if self.definition.is_multi_label:
            return [label_list(self._labels_above_threshold(row)) for row in rows]
        return [self.labels[label] for label in rows.argmax(axis=1)]

    # Export.

    def served_outputs(self, outputs: tf.Tensor) -> Tensors:
        """Returns `probabilities` [B, K] and `predictions` [B]; both are the scores in regression.

        In multi-label tasks, `predictions` are 1 for each predicted label, int32 [B, K].

        `threshold`, the constant of `--threshold_to_export`, is only returned, not applied.
        """
        import tensorflow as tf

        if self.definition.is_regression:
            predictions = outputs[:, 0]
        elif self.definition.is_multi_label:
            predictions = tf.cast(outputs > 0, tf.int32)
        else:
            predictions = tf.argmax(outputs, axis=-1, output_type=tf.int32)
        probabilities = self.predictions(outputs)["probabilities"]
        served = {"probabilities": probabilities, "predictions": predictions}
        if not math.isnan(self.settings.threshold_to_export):
            served["threshold"] = tf.constant(self.settings.threshold_to_export, tf.float32)
        return served

    def _served_texts(self, outputs: tf.Tensor) -> Tensors:
        """Returns `served_outputs`, and the names of the predicted `labels`, string [B].

        In multi-label tasks, these are [B, K], with "" for labels that are not predicted.
        """
        import tensorflow as tf

        served = self.served_outputs(outputs)
        names = tf.constant(self.labels)  # [K]
        if self.definition.is_multi_label:
            served["labels"] = tf.where(served["predictions"] > 0, names, "")
        elif not self.definition.is_regression:
            served["labels"] = tf.gather(names, served["predictions"])
        return served

    def make_export(
        self, model: tf_keras.layers.Layer, max_seq_length: int, folder: RunFolder
    ) -> Export:
        """Returns an export like that of Google's program, with `labels.txt` and for raw strings.

        With `tflite_quantization`, there is a TFLite file as well.
        """
        from albert_tf.export.signatures import (
            Export,
            Signature,
            token_inputs,
            token_signatures,
        )
        from albert_tf.export.text_graph import text_signatures

        call = functools.partial(model, training=False)
        inputs = token_inputs(max_seq_length)
        # Without the pooled output, padding affects the result; see `padding`.
        any_length = self.settings.use_pooled_output
        signatures = token_signatures(
            inputs, lambda batch: self.served_outputs(call(batch)), any_length=any_length
        )
        if self.settings.export_texts:
            pad_to = None if any_length else max_seq_length
            signatures |= text_signatures(
                self.tokenizer, call, self._served_texts, max_seq_length, pad_to
            )

        def probabilities(batch: Tensors) -> Tensors:
            return {"probabilities": self.predictions(call(batch))["probabilities"]}

        return Export(
            signatures,
            self.label_files,
            Signature(inputs, probabilities),
            self.settings.tflite_quantization,
        )

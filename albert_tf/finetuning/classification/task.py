"""Classification and regression as a fine-tuning task: features, loss, metrics and predictions.

The table of tasks is in `tasks`; `reading` reads their examples. Source: `run_classifier.py` and
`classifier_utils.py` of google-research/albert.

Shapes: B batch size, N examples, K labels, S sequence length.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging
from numpy.typing import NDArray

from albert_tf import files
from albert_tf.checkpoints import tasks
from albert_tf.checkpoints.evaluations import Evaluation
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.signatures import Export, Signature, token_inputs, token_signatures
from albert_tf.checkpoints.text_signature import text_signatures
from albert_tf.finetuning.batching import Padding
from albert_tf.finetuning.classification import Settings
from albert_tf.finetuning.classification.custom import recorded_labels
from albert_tf.finetuning.classification.dev_predictions import (
    DEV_COLUMNS,
    DEV_PREDICTIONS,
    MULTI_LABEL_COLUMNS,
    SCORE,
)
from albert_tf.finetuning.classification.evaluation import evaluate
from albert_tf.finetuning.classification.parsing import Example
from albert_tf.finetuning.classification.tasks import ClassificationTask
from albert_tf.finetuning.examples import Examples
from albert_tf.finetuning.task import FineTuningTask, Split
from albert_tf.finetuning.text_task import Outputs
from albert_tf.finetuning.token_sequences import TokenSequences, log_full_sequences
from albert_tf.finetuning.trained_model import TrainedModel
from albert_tf.model.config import AlbertConfig
from albert_tf.model.heads import (
    AlbertForClassification,
    classification_losses,
    multi_label_losses,
    regression_losses,
)
from albert_tf.model.tokenization import Tokenizer
from albert_tf.training.task import Batch

EXAMPLES_AT_ONCE = 1000
BEST_TRIAL_FILE = "best_trial.txt"
THRESHOLD = 0.5  # of the probability of a label in multi-label tasks
# The outputs to collect, and their padding values.
OUTPUTS = {"logits": 0.0, "probabilities": 0.0}


class Classifier(FineTuningTask):
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
    names_copies = False
    outputs = OUTPUTS

    def __init__(
        self,
        settings: Settings,
        config: AlbertConfig,
        tokenizer: Tokenizer,
        data: tuple[ClassificationTask, Mapping[str, Examples[Example]]],
    ) -> None:
        self.task, splits = data
        super().__init__(settings, config, tokenizer, splits)
        self.labels = self.task.labels
        self.name = tasks.REGRESSION if self.task.is_regression else tasks.CLASSIFICATION
        if self.task.is_multi_label:
            self.name = tasks.MULTI_LABEL
        self.selection_metric = self.task.selection_metric

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
        log_full_sequences(data.path, features, self.max_seq_length)
        return features

    def _sequences(self, data: Examples[Example]) -> Iterator[tuple[list[int], int]]:
        for begin in range(0, len(data), EXAMPLES_AT_ONCE):
            examples = data.examples[begin : begin + EXAMPLES_AT_ONCE]
            firsts = [example.text_a for example in examples]
            seconds = [example.text_b for example in examples]
            yield from self.tokenizer.sequences(firsts, seconds, self.max_seq_length)

    def _label_ids(self, data: Examples[Example]) -> NDArray[Any]:
        """Returns label ids, int32 [N], or numbers in regression, float32 [N]; 0 if unknown.

        In multi-label tasks, this is 1 for the labels of each example and 0 for others, [N, K].
        """
        if self.task.is_regression:
            return np.array([float(str(x.label or 0)) for x in data.examples], np.float32)
        ids: dict[Any, int] = {label: number for number, label in enumerate(self.labels)}
        if self.task.is_multi_label:
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
        task = self.task
        return AlbertForClassification(
            self.config,
            task.num_labels,
            task.is_regression,
            self.settings.use_pooled_output,
            task.is_multi_label,
        )

    def losses(self, outputs: Any, batch: Batch) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Returns the losses, [B], and the training metric: the accuracy, or MSE in regression.

        In multi-label tasks, the accuracy counts examples whose labels are all correct.

        Args:
            outputs: logits, float32 [B, K].
            batch: has `label_ids`, [B], or [B, K] in multi-label tasks.
        """
        labels = batch["label_ids"]
        if self.task.is_regression:
            losses = regression_losses(outputs[:, 0], labels)
            return losses, {"MSE": losses}
        if self.task.is_multi_label:
            hits = (outputs > 0) == (labels > 0)  # [B, K]
            return multi_label_losses(outputs, labels), {"accuracy": tf.reduce_all(hits, axis=-1)}
        predictions = tf.argmax(outputs, axis=-1, output_type=labels.dtype)
        return classification_losses(outputs, labels), {"accuracy": predictions == labels}

    def predictions(self, outputs: Any) -> dict[str, tf.Tensor]:
        """Returns `logits` and `probabilities`, both [B, K]; both are the scores in regression."""
        if self.task.is_regression:
            return {"logits": outputs, "probabilities": outputs}
        squash = tf.nn.sigmoid if self.task.is_multi_label else tf.nn.softmax
        return {"logits": outputs, "probabilities": squash(outputs)}

    def measure(self, split: Split, outputs: Outputs, batch_size: int) -> dict[str, float]:
        """Returns the metrics of the task; see `evaluate`."""
        return evaluate(self.task, outputs["logits"], self._label_ids(split.data), batch_size)

    def result(self, outputs: Outputs) -> dict[str, Any]:
        """Returns `label` and `probabilities` (label → probability), or `score` in regression.

        In multi-label tasks, `labels` are those whose probability is above 0.5.
        """
        row = outputs["probabilities"]  # [K]
        if self.task.is_regression:
            return {"score": row[0]}
        predicted: dict[str, Any] = {"label": self.labels[row.argmax()]}
        if self.task.is_multi_label:
            predicted = {"labels": self._above_threshold(row)}
        return predicted | {"probabilities": dict(zip(self.labels, row, strict=True))}

    def write_evaluations(self, folder: RunFolder, evaluations: Sequence[Evaluation]) -> str:
        """Writes `eval_results.txt` and `best_trial.txt` like Google's program.

        The latter has the content `<last step>:<best step>:<best value>`, with -1 if there is none.
        """
        text = super().write_evaluations(folder, evaluations)
        best = self.best_of(evaluations)
        steps = (evaluations[-1].step, -1 if best is None else best.step)
        files.write_file(
            folder.file(BEST_TRIAL_FILE), f"{steps[0]}:{steps[1]}:{self.best_value(best)}"
        )
        return text

    def write_dev_predictions(
        self, folder: RunFolder, split: Split, predict: Callable[[], Outputs]
    ) -> None:
        """Writes `dev_predictions.tsv`, for error analysis.

        Each row describes an example: its line in the file, guid, label, prediction, and the
        probabilities of the labels, or the score in regression. In multi-label tasks, the true and
        the predicted labels are JSON lists.
        """
        rows = predict()["probabilities"].astype(np.float32)  # [N, K]
        is_multi_label = self.task.is_multi_label
        columns = MULTI_LABEL_COLUMNS if is_multi_label else DEV_COLUMNS
        predictions = self._predicted_labels(rows)
        with files.write_atomically(folder.file(DEV_PREDICTIONS)) as stream:
            stream.write("\t".join((*columns, *(self.labels or (SCORE,)))) + "\n")
            for example, prediction, row in zip(
                split.data.examples, predictions, rows, strict=True
            ):
                label = _as_list(example.labels) if is_multi_label else example.label
                cells = (example.line, example.guid, label, prediction, *row)
                stream.write("\t".join(map(str, cells)) + "\n")

    def write_predictions(
        self, folder: RunFolder, split: Split, outputs: Outputs, step: int
    ) -> str:
        """Writes predictions for the test split in all formats, and metrics if labels are known.

        * `test_results.tsv`, as in Google's program: one line per example, with the probabilities
          of the labels, or the score in regression;
        * `submit_results.tsv`, as in Google's program: `index` and `prediction`, in multi-label
          tasks a JSON list of labels; also under the name that GLUE's leaderboard expects, such as
          `MRPC.tsv`;
        * `<task>_predict.json` for CLUE: one JSON object per line, with `id` and `label`;
        * `predict_results.txt`: the metrics.

        Returns:
            The text of `predict_results.txt`, or "" without labels.
        """
        rows = outputs["probabilities"].astype(np.float32)  # [N, K]
        predictions = self._predicted_labels(rows)
        guids = [example.guid for example in split.data.examples]
        submission = "index\tprediction\n" + "".join(
            f"{guid}\t{prediction}\n" for guid, prediction in zip(guids, predictions, strict=True)
        )
        contents = {
            "test_results.tsv": "".join("\t".join(map(str, row)) + "\n" for row in rows),
            "submit_results.tsv": submission,
        }
        if self.task.leaderboard_file:
            contents[self.task.leaderboard_file] = submission
        if self.task.clue_fields is not None:
            contents[f"{self.task.name}_predict.json"] = self._clue_lines(guids, rows, predictions)
        for name, content in contents.items():
            files.write_file(folder.file(name), content)
        logging.info("Predictions of %d examples: %s", len(guids), ", ".join(contents))
        return self.write_test_results(folder, split, outputs, step)

    def _predicted_labels(self, rows: NDArray[np.float32]) -> list[str]:
        """Returns the most probable label of each example, or the score in regression.

        In multi-label tasks, this is a JSON list of labels.
        """
        if self.task.is_regression:
            return [str(score) for score in rows[:, 0]]
        if self.task.is_multi_label:
            return [_as_list(self._above_threshold(row)) for row in rows]
        return [self.labels[label] for label in rows.argmax(axis=1)]

    def _above_threshold(self, row: NDArray[np.float32]) -> list[str]:
        return [label for label, x in zip(self.labels, row, strict=True) if x > THRESHOLD]

    def _clue_lines(
        self, guids: Sequence[str], rows: NDArray[np.float32], predictions: Sequence[str]
    ) -> str:
        task = self.task
        if task.group_size > 1:  # options of one question, whose label is the most probable option
            best = rows[:, -1].reshape(-1, task.group_size).argmax(axis=1)
            guids = [""] * len(best)
            predictions = [str(choice) for choice in best]
        lines = []
        for number, (guid, prediction) in enumerate(zip(guids, predictions, strict=True)):
            name = int(guid) if guid.isdecimal() else number
            lines.append(json.dumps({"id": name, "label": prediction, **(task.clue_fields or {})}))
        return "".join(line + "\n" for line in lines)

    def served_outputs(self, outputs: Any) -> dict[str, tf.Tensor]:
        """Returns `probabilities` [B, K] and `predictions` [B]; both are the scores in regression.

        In multi-label tasks, `predictions` are 1 for each predicted label, int32 [B, K].

        `threshold`, the constant of `--threshold_to_export`, is only returned, not applied.
        """
        if self.task.is_regression:
            predictions = outputs[:, 0]
        elif self.task.is_multi_label:
            predictions = tf.cast(outputs > 0, tf.int32)
        else:
            predictions = tf.argmax(outputs, axis=-1, output_type=tf.int32)
        probabilities = self.predictions(outputs)["probabilities"]
        served = {"probabilities": probabilities, "predictions": predictions}
        if not math.isnan(self.settings.threshold_to_export):
            served["threshold"] = tf.constant(self.settings.threshold_to_export, tf.float32)
        return served

    def make_export(self, model: Any, max_seq_length: int, folder: RunFolder) -> Export:
        """Returns an export like that of Google's program, with `labels.txt` and for raw strings.

        With `tflite_quantization`, there is a TFLite file as well.
        """
        call = functools.partial(model, training=False)
        inputs = token_inputs(max_seq_length)
        # Without the pooled output, padding affects the result; see `padding`.
        any_length = self.settings.use_pooled_output
        signatures = token_signatures(
            inputs, functools.partial(self.serve, model), any_length=any_length
        )
        if self.settings.export_texts:
            pad_to = None if any_length else max_seq_length
            signatures |= text_signatures(
                self.tokenizer, call, self._served_texts, max_seq_length, pad_to
            )

        def probabilities(batch: Batch) -> dict[str, tf.Tensor]:
            return {"probabilities": self.predictions(call(batch))["probabilities"]}

        return Export(
            signatures,
            self.label_files,
            Signature(inputs, probabilities),
            self.settings.tflite_quantization,
        )

    def _served_texts(self, outputs: Any) -> dict[str, tf.Tensor]:
        """Returns `served_outputs`, and the names of the predicted `labels`, string [B].

        In multi-label tasks, these are [B, K], with "" for labels that are not predicted.
        """
        served = self.served_outputs(outputs)
        names = tf.constant(self.labels)
        if self.task.is_multi_label:
            served["labels"] = tf.where(served["predictions"] > 0, names, "")
        elif not self.task.is_regression:
            served["labels"] = tf.gather(names, served["predictions"])
        return served


def _as_list(labels: Sequence[str]) -> str:
    return json.dumps(labels, ensure_ascii=False)

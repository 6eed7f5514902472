"""One run of a classifier, apart from its training: evaluation, predictions, export.

Everything goes into the folder of the run. The results of several runs are compared in `sweeps`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from absl import logging
from numpy.typing import NDArray

from albert_tf import files
from albert_tf.checkpoints import loading, store
from albert_tf.checkpoints.names import GLOBAL_STEP
from albert_tf.classification import custom
from albert_tf.classification import task as classification
from albert_tf.classification.reading import ExampleSet
from albert_tf.finetuning import results
from albert_tf.finetuning.batching import Padding
from albert_tf.finetuning.prediction import Predictor, find_best
from albert_tf.finetuning.sequences import TokenSequences
from albert_tf.finetuning.sweeps import Result, Run
from albert_tf.serving import saved_model
from albert_tf.training import evaluation

NEVER = evaluation.EarlyStopping()


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a model is evaluated and used.

    Attributes:
        eval_batch_size, predict_batch_size: examples of a step.
        padding: how far batches are padded.
        vocabulary: what tells vocabularies and their use apart.
        init_checkpoint: what to take where the run has no checkpoint.
        early_stopping: when training is given up.
        is_training: whether the model is trained as well.
    """

    eval_batch_size: int
    predict_batch_size: int
    padding: Padding
    vocabulary: str
    init_checkpoint: str | None = None
    early_stopping: evaluation.EarlyStopping = NEVER
    is_training: bool = False


class ClassificationRun:
    """A classifier in the folder of a run.

    Args:
        run: the folder, and what the run is called by.
        classifier: the task and the model's shape.
        data: split → examples, for the splits that are used.
        features: the same, as the model takes them.
        settings: how it is evaluated and used.

    Raises:
        ValueError: the folder holds a model of another task.
    """

    def __init__(
        self,
        run: Run,
        classifier: classification.Classifier,
        data: Mapping[str, ExampleSet],
        features: Mapping[str, TokenSequences],
        settings: Settings,
    ) -> None:
        self.run, self.task, self.settings = run, classifier.task, settings
        self._classifier = classifier
        self.data, self.features = data, features
        if store.list_checkpoints(run.folder):
            custom.check_task(run.folder, self.task, settings.is_training)
        if settings.is_training:
            custom.remember_task(run.folder, self.task)
        self.model = classifier.build_model()
        self.evaluator = self._make_evaluator() if "dev" in data else None

    def _predictor(self, split: str, batch_size: int) -> Predictor:
        outputs = classification.OUTPUTS
        return Predictor(
            self.model, self.features[split], batch_size, self.settings.padding, outputs
        )

    def _measure(
        self, outputs: Mapping[str, NDArray[Any]], split: str, batch_size: int
    ) -> dict[str, float]:
        labels = self.features[split].columns["label_ids"]
        return classification.evaluate(self.task, outputs["logits"], labels, batch_size)

    def _make_evaluator(self) -> evaluation.CheckpointEvaluator:
        settings = self.settings
        size = settings.eval_batch_size
        predictor = self._predictor("dev", size)
        return evaluation.CheckpointEvaluator(
            self.run.folder,
            self.model,
            lambda: self._measure(predictor.predict(), "dev", size),
            self.task.selection_metric,
            evaluation.digest(
                self.data["dev"].checksum(),
                settings.vocabulary,
                size,
                settings.padding.max_seq_length,
                self._classifier.use_pooled_output,
            ),
            results.write_classifier_results,
            settings.early_stopping,
        )

    def evaluate(self) -> Result:
        """Evaluates every checkpoint on the dev split and describes what the best one does there.

        Returns:
            the best. Without any, as where the metric is undefined, the metrics are empty.

        Raises:
            ValueError: as `CheckpointEvaluator.evaluate_all`.
        """
        if self.evaluator is None:
            raise ValueError("there is no dev split to evaluate on")
        metric = self.task.selection_metric
        evaluations = self.evaluator.evaluate_all(self.settings.init_checkpoint)
        best = evaluation.best_of(evaluations, metric)
        self._write_dev_predictions()
        if best is None:
            return Result(self.run, evaluations[-1].step, remark=f"no {metric}")
        return Result(self.run, best.step, best.metrics)

    def _write_dev_predictions(self) -> None:
        folder, data = self.run.folder, self.data["dev"]
        predictor = self._predictor("dev", self.settings.eval_batch_size)
        _, outputs = predictor.predict_with_best(folder, self.settings.init_checkpoint)
        probabilities = classification.probabilities_of(self.task, outputs["logits"]).numpy()
        classification.write_dev_predictions(folder, data, probabilities)

    def predict(self) -> str:
        """Predicts the test split with the best checkpoint.

        Returns:
            the text of `predict_results.txt` where the labels are known, else "".
        """
        folder, data, size = self.run.folder, self.data["test"], self.settings.predict_batch_size
        predictor = self._predictor("test", size)
        step, outputs = predictor.predict_with_best(folder, self.settings.init_checkpoint)
        probabilities = classification.probabilities_of(self.task, outputs["logits"]).numpy()
        paths = classification.write_predictions(folder, data, probabilities)
        logging.info("Predictions of %d examples: %s", len(data), ", ".join(paths))
        if not data.has_labels:
            return ""
        found = self._measure(outputs, "test", size) | {GLOBAL_STEP: step}
        return results.write_test_results(folder, found, self.task.selection_metric)

    def export(
        self, export_dir: str, threshold: float | None = None, vocabulary_file: str | None = None
    ) -> str:
        """Writes a SavedModel of the best checkpoint, as the official program.

        Its outputs are `probabilities` [B, K] and `predictions` [B]; in regression both are the
        score. `assets.extra` has `albert_config.json`, the vocabulary, and `labels.txt`, the
        labels in the order of their ids.

        Args:
            export_dir: parent of the exports.
            threshold: served as the constant `threshold`, float32, and applied to nothing.
            vocabulary_file: to put in.

        Returns:
            the folder of the export.
        """
        with saved_model.float32_models():
            model = self._classifier.build_model()
        prefix = find_best(self.run.folder, self.settings.init_checkpoint)
        loading.load_weights(model, prefix)

        def outputs(logits: tf.Tensor) -> dict[str, tf.Tensor]:
            if self.task.is_regression:
                predictions = logits[:, 0]
            else:
                predictions = tf.argmax(logits, axis=-1, output_type=tf.int32)
            probabilities = classification.probabilities_of(self.task, logits)
            served = {"probabilities": probabilities, "predictions": predictions}
            if threshold is not None:
                served["threshold"] = tf.constant(threshold, tf.float32)
            return served

        extra = {"labels.txt": "".join(f"{label}\n" for label in self.task.labels).encode()}
        for path in (os.path.join(self.run.folder, "albert_config.json"), vocabulary_file):
            with contextlib.suppress(FileNotFoundError):
                if path:
                    with files.open_binary(path) as stream:
                        extra[os.path.basename(path)] = stream.read()
        return saved_model.export_saved_model(
            export_dir,
            model,
            saved_model.token_features(self.settings.padding.max_seq_length),
            outputs,
            any_length=model.use_pooled_output,
            extra_files=extra,
        )

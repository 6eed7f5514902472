"""The files of results that a run writes, and the text that its program prints.

Shapes: N examples.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import ClassVar, Generic, Protocol

import numpy as np
from absl import logging

from albert_tf import files
from albert_tf.checkpoints.best_evaluation import evaluation_of_best
from albert_tf.checkpoints.evaluations import Evaluation, best_of, heading
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.weight_names import GLOBAL_STEP
from albert_tf.finetuning.batch_runner import Outputs
from albert_tf.finetuning.results_text import (
    RESULTS_FILE,
    SEPARATOR,
    TEST_RESULTS_FILE,
    format_copies,
    format_metrics,
)
from albert_tf.finetuning.settings import FineTuningSettings
from albert_tf.finetuning.splits import DataType, FeaturesType, Split
from albert_tf.finetuning.text_task import Result


class MeasuredTask(Protocol[DataType, FeaturesType]):
    """What the files of results read of a task; see `FineTuningTask`."""

    selection_metric: str

    @property
    def settings(self) -> FineTuningSettings:
        """The settings of the program."""

    def measure(
        self, split: Split[DataType, FeaturesType], outputs: Outputs, batch_size: int
    ) -> dict[str, float]:
        """Computes the metrics of a split with known labels."""

    def results(self, outputs: Outputs) -> list[Result]:
        """Returns the result of each of N examples, given predictions of the shapes [N, …]."""


class ResultFiles(Generic[DataType, FeaturesType]):
    """Writes the files of results of a task; tasks with other formats override its methods.

    Args:
        task: the task.

    Attributes:
        task: the argument.
        names_copies: whether `eval_results.txt` names the files that are copied.
    """

    names_copies: ClassVar[bool] = True

    def __init__(self, task: MeasuredTask[DataType, FeaturesType]) -> None:
        self.task = task

    # Evaluations of checkpoints.

    def best_of(self, evaluations: Sequence[Evaluation]) -> Evaluation | None:
        """Returns the best of some evaluations, which are sorted by step; None if there is none."""
        return best_of(evaluations, self.task.selection_metric, self.task.settings.official_order)

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
        return float(np.float32(evaluation.metrics[self.task.selection_metric]))

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

    # Predictions of the best checkpoint.

    def write_dev_predictions(
        self,
        folder: RunFolder,
        split: Split[DataType, FeaturesType],
        predict: Callable[[], Outputs],
    ) -> None:
        """Writes predictions for the dev split with the best checkpoint. Does nothing by default.

        Args:
            folder: folder of the run.
            split: the dev split.
            predict: returns the outputs of the best checkpoint for this split.
        """
        return

    def write_predictions(
        self,
        folder: RunFolder,
        split: Split[DataType, FeaturesType],
        outputs: Outputs,
        step: int,
    ) -> str:
        """Writes the best checkpoint's predictions for a split, and metrics if labels are known.

        By default, each line of `<split>_predictions.jsonl` is the task's `result` of an example.

        Args:
            folder: folder of the run.
            split: "test", or another split that the task's `read` supports.
            outputs: the outputs of the best checkpoint.
            step: the step of the best checkpoint.

        Returns:
            The text to print.
        """
        path = folder.file(f"{split.name}_predictions.jsonl")
        with files.write_atomically(path) as stream:
            for result in self.task.results(outputs):
                stream.write(json.dumps(result, ensure_ascii=False) + "\n")
        logging.info("Predictions: %s", path)
        return ""

    def write_test_results(
        self,
        folder: RunFolder,
        split: Split[DataType, FeaturesType],
        outputs: Outputs,
        step: int,
    ) -> str:
        """Writes `predict_results.txt` for a split with known labels.

        As in Google's `run_race.py`, it has the metrics of the split, and the best value of the
        selection metric on the dev set.

        Args:
            folder: folder of the run.
            split: the split.
            outputs: the outputs of the best checkpoint.
            step: the step of the best checkpoint.

        Returns:
            The text of the file.
        """
        task = self.task
        measured = task.measure(split, outputs, task.settings.predict_batch_size)
        text = "***** Predict results *****\n" + format_metrics(measured | {GLOBAL_STEP: step})
        best = evaluation_of_best(folder)
        if best is not None and task.selection_metric in best.metrics:
            text += self.format_best(best)
        files.write_file(folder.file(TEST_RESULTS_FILE), text)
        return text

"""The files of results of classification, regression and multi-label tasks.

Source: `run_classifier.py` of google-research/albert.

Shapes: N examples, K labels.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from absl import logging
from numpy.typing import NDArray

from albert_tf import files
from albert_tf.checkpoints.evaluations import Evaluation
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.finetuning.batch_runner import Outputs
from albert_tf.finetuning.classification.dev_predictions import (
    DEV_COLUMNS,
    DEV_PREDICTIONS,
    MULTI_LABEL_COLUMNS,
    SCORE,
)
from albert_tf.finetuning.classification.parsing import Example
from albert_tf.finetuning.examples import Examples
from albert_tf.finetuning.result_files import ResultFiles
from albert_tf.finetuning.splits import Split
from albert_tf.finetuning.token_sequences import TokenSequences

if TYPE_CHECKING:
    from albert_tf.finetuning.classification.task import Classifier

BEST_TRIAL_FILE = "best_trial.txt"

ClassifierSplit = Split[Examples[Example], TokenSequences]


class ClassifierFiles(ResultFiles[Examples[Example], TokenSequences]):
    """Writes the files of Google's program, and `dev_predictions.tsv`."""

    task: Classifier
    names_copies = False

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
        self, folder: RunFolder, split: ClassifierSplit, predict: Callable[[], Outputs]
    ) -> None:
        """Writes `dev_predictions.tsv`, for error analysis.

        Each row describes an example: its line in the file, guid, label, prediction, and the
        probabilities of the labels, or the score in regression. In multi-label tasks, the true and
        the predicted labels are JSON lists.
        """
        rows = predict()["probabilities"].astype(np.float32)  # [N, K]
        is_multi_label = self.task.definition.is_multi_label
        columns = MULTI_LABEL_COLUMNS if is_multi_label else DEV_COLUMNS
        predictions = self._predicted_labels(rows)
        with files.write_atomically(folder.file(DEV_PREDICTIONS)) as stream:
            stream.write("\t".join((*columns, *(self.task.labels or (SCORE,)))) + "\n")
            for example, prediction, row in zip(
                split.data.examples, predictions, rows, strict=True
            ):
                label = _as_list(example.labels) if is_multi_label else example.label
                cells = (example.line, example.guid, label, prediction, *row)
                stream.write("\t".join(map(str, cells)) + "\n")

    def write_predictions(
        self, folder: RunFolder, split: ClassifierSplit, outputs: Outputs, step: int
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
        if self.task.definition.leaderboard_file:
            contents[self.task.definition.leaderboard_file] = submission
        if self.task.definition.clue_fields is not None:
            lines = self._clue_lines(guids, rows, predictions)
            contents[f"{self.task.definition.name}_predict.json"] = lines
        for name, content in contents.items():
            files.write_file(folder.file(name), content)
        logging.info("Predictions of %d examples: %s", len(guids), ", ".join(contents))
        if not split.data.has_labels:
            return ""
        return self.write_test_results(folder, split, outputs, step)

    def _predicted_labels(self, rows: NDArray[np.float32]) -> list[str]:
        """Returns the most probable label of each example, or the score in regression.

        In multi-label tasks, this is a JSON list of labels.
        """
        if self.task.definition.is_regression:
            return [str(score) for score in rows[:, 0]]
        if self.task.definition.is_multi_label:
            return [_as_list(self.task.labels_above_threshold(row)) for row in rows]
        return [self.task.labels[label] for label in rows.argmax(axis=1)]

    def _clue_lines(
        self, guids: Sequence[str], rows: NDArray[np.float32], predictions: Sequence[str]
    ) -> str:
        task = self.task.definition
        if task.group_size > 1:  # options of one question, whose label is the most probable option
            best = rows[:, -1].reshape(-1, task.group_size).argmax(axis=1)
            guids = guids[:: task.group_size]
            predictions = [str(choice) for choice in best]
        lines = []
        for number, (guid, prediction) in enumerate(zip(guids, predictions, strict=True)):
            name = int(guid) if guid.isdecimal() else number
            lines.append(json.dumps({"id": name, "label": prediction, **(task.clue_fields or {})}))
        return "".join(line + "\n" for line in lines)


def _as_list(labels: Sequence[str]) -> str:
    return json.dumps(labels, ensure_ascii=False)

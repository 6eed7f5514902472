"""The files of predictions of multiple choice."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from albert_tf import files
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.finetuning.batch_runner import Outputs
from albert_tf.finetuning.examples import Examples
from albert_tf.finetuning.race.questions import Question
from albert_tf.finetuning.result_files import ResultFiles
from albert_tf.finetuning.splits import Split
from albert_tf.finetuning.token_sequences import TokenSequences

if TYPE_CHECKING:
    from albert_tf.finetuning.race.task import MultipleChoice

RaceSplit = Split[Examples[Question], TokenSequences]


class RaceFiles(ResultFiles[Examples[Question], TokenSequences]):
    """Writes the predictions of questions, besides the files of `run_race.py`."""

    task: MultipleChoice

    def write_predictions(
        self, folder: RunFolder, split: RaceSplit, outputs: Outputs, step: int
    ) -> str:
        """Writes `<task_name>_predictions.jsonl` and, if labels are known, `predict_results.txt`.

        A line of the former is a JSON object with the keys `id` (of the passage), `question`,
        `prediction` (an index, starting at 0), `answer` (the letter of the prediction) and
        `probabilities` (of the question's options).

        Returns:
            The text of `predict_results.txt`, or "" without labels.
        """
        path = folder.file(f"{self.task.settings.task_name}_predictions.jsonl")
        with files.write_atomically(path) as stream:
            for question, row in zip(split.data.examples, outputs["probabilities"], strict=True):
                prediction = int(row.argmax())
                line = {
                    "id": question.example_id,
                    "question": question.question,
                    "prediction": prediction,
                    "answer": chr(ord("A") + prediction),
                    "probabilities": [float(p) for p in row[: len(question.options)]],
                }
                stream.write(json.dumps(line, ensure_ascii=False) + "\n")
        if not split.data.has_labels:
            return ""
        return self.write_test_results(folder, split, outputs, step)

"""The files of results of question answering.

Source: `run_squad_v1.py`, `run_squad_v2.py` and `squad_utils.py` of google-research/albert.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from albert_tf import files
from albert_tf.checkpoints.evaluations import Evaluation, heading
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.weight_names import GLOBAL_STEP
from albert_tf.finetuning.batch_runner import Outputs
from albert_tf.finetuning.result_files import ResultFiles
from albert_tf.finetuning.results_text import RESULTS_FILE, SEPARATOR, format_copies
from albert_tf.finetuning.splits import Split
from albert_tf.finetuning.squad.answers import write_answers
from albert_tf.finetuning.squad.features import SquadFeatures
from albert_tf.finetuning.squad.metrics import format_exactly
from albert_tf.finetuning.squad.questions import SquadData
from albert_tf.finetuning.squad.threshold import null_threshold

if TYPE_CHECKING:
    from albert_tf.finetuning.squad.task import QuestionAnswering


class SquadFiles(ResultFiles[SquadData, SquadFeatures]):
    """Writes the files of Google's programs."""

    task: QuestionAnswering

    def write_evaluations(self, folder: RunFolder, evaluations: Sequence[Evaluation]) -> str:
        """Writes `eval_results.txt` like Google's SQuAD programs, and returns its text.

        The file has a block for each checkpoint: the metrics, the files that were copied if it is
        the best checkpoint so far, the best value up to this checkpoint, and a line of "=". At the
        end are the metrics and the step of the best checkpoint.
        """
        text = ""
        best = None
        for number, evaluation in enumerate(evaluations, 1):
            text += format_exactly(evaluation.metrics | {GLOBAL_STEP: evaluation.step})
            if self.best_of(evaluations[:number]) is evaluation:
                best = evaluation
                text += format_copies(folder, evaluation)
            value = -1 if best is None else best.metrics[self.task.selection_metric]
            text += f"best {self.task.selection_metric} = {value}\n" + SEPARATOR
        if best is not None:
            text += format_exactly(best.metrics) + f"best perf happened at step: {best.step}"
        files.write_file(folder.file(RESULTS_FILE), heading(evaluations) + text)
        return text

    def describe_evaluations(self, folder: RunFolder, evaluations: Sequence[Evaluation]) -> str:
        """Returns the metrics of the best checkpoint as text."""
        best = self.best_of(evaluations)
        return format_exactly(best.metrics) if best else ""

    def write_predictions(
        self, folder: RunFolder, split: Split[SquadData, SquadFeatures], outputs: Outputs, step: int
    ) -> str:
        """Writes the prediction files."""
        answers = self.task.answer(split, outputs)
        if split.data.has_labels:
            predictions = self.task.evaluate_answers(split.data, answers)[1]
        else:
            threshold = null_threshold(self.task.settings, self.task.version_2, folder)
            predictions = answers.predictions(threshold)
        write_answers(folder.path, answers, predictions)
        return ""

"""The files of predicted tags."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from absl import logging

from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.finetuning.batch_runner import Outputs
from albert_tf.finetuning.examples import Examples
from albert_tf.finetuning.result_files import ResultFiles
from albert_tf.finetuning.splits import Split
from albert_tf.finetuning.token_classification.conll import write_predictions
from albert_tf.finetuning.token_classification.sentences import Sentence
from albert_tf.finetuning.token_classification.windows import Windows

if TYPE_CHECKING:
    from albert_tf.finetuning.token_classification.task import TokenClassifier

DEV_PREDICTIONS = "dev_predictions.tsv"
TEST_PREDICTIONS = "test_predictions.tsv"

TokenSplit = Split[Examples[Sentence], Windows]


class TokenFiles(ResultFiles[Examples[Sentence], Windows]):
    """Writes the tags of sentences in the columns of CoNLL."""

    task: TokenClassifier

    def write_dev_predictions(
        self, folder: RunFolder, split: TokenSplit, predict: Callable[[], Outputs]
    ) -> None:
        """Writes `dev_predictions.tsv`; see `write_predictions`."""
        labels = self.task.predicted_labels(split, predict())
        write_predictions(folder.file(DEV_PREDICTIONS), split.data, labels)

    def write_predictions(
        self, folder: RunFolder, split: TokenSplit, outputs: Outputs, step: int
    ) -> str:
        """Writes `test_predictions.tsv` and, if labels are known, `predict_results.txt`.

        Returns:
            The text of `predict_results.txt`, or "" without labels.
        """
        path = folder.file(TEST_PREDICTIONS)
        write_predictions(path, split.data, self.task.predicted_labels(split, outputs))
        logging.info("Predictions of %d sentences: %s", len(split.data), path)
        if not split.data.has_labels:
            return ""
        return self.write_test_results(folder, split, outputs, step)

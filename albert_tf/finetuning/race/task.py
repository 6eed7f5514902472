"""Multiple choice as a fine-tuning task: features, loss, metrics and predictions.

Each option of a question is a separate sequence, and the model scores each of them.

Source: `run_race.py` of google-research/albert.

Shapes: B batch size, N questions, C options, S sequence length.
"""

from __future__ import annotations

import tensorflow as tf
from absl import logging

from albert_tf import files
from albert_tf.finetuning.batch_runner import Outputs
from albert_tf.finetuning.examples import Examples
from albert_tf.finetuning.race import Settings
from albert_tf.finetuning.race.evaluation import SELECTION_METRIC, evaluate
from albert_tf.finetuning.race.exporter import RaceExporter
from albert_tf.finetuning.race.predicting_task import PredictingMultipleChoice
from albert_tf.finetuning.race.questions import Question
from albert_tf.finetuning.race.result_files import RaceFiles
from albert_tf.finetuning.splits import Split
from albert_tf.finetuning.task import FineTuningTask
from albert_tf.finetuning.token_sequences import TokenSequences, log_full_sequences
from albert_tf.model.heads import AlbertForMultipleChoice
from albert_tf.model.losses import classification_losses
from albert_tf.model.ops import MASKED_SCORE
from albert_tf.training.task import Batch

RaceSplit = Split[Examples[Question], TokenSequences]

# The outputs to collect, and their padding values for missing options; logits are for the loss.
OUTPUTS = {"logits": MASKED_SCORE, **PredictingMultipleChoice.outputs}


class MultipleChoice(
    PredictingMultipleChoice, FineTuningTask[Settings, Examples[Question], TokenSequences]
):
    """Multiple choice as a fine-tuning task.

        choose = albert_tf.load_predictor("race_model/")
        choose("The river was wider.", "The river is _ now.", ["narrower", "colder"])

    Lists of passages, questions and options are answered by a list of results. The result of a
    prediction is a dict of `prediction` (zero-based index), `answer` (the option) and
    `probabilities`.
    """

    selection_metric = SELECTION_METRIC
    measured_with = ("eval_batch_size",)  # over which Google's program averages the loss
    outputs = OUTPUTS

    def as_row(self, example: Question) -> files.JsonObject:
        """Returns the passage, if there is one, the question and its options."""
        passage = {"passage": example.passage} if example.passage else {}
        return {**passage, "question": example.question, "options": list(example.options)}

    def make_features(self, data: Examples[Question], split: str) -> TokenSequences:
        """Returns the token sequences and labels of a split."""
        logging.info("Tokenizing the %d questions of %s", len(data), data.path)
        features = self.features_of(data)
        log_full_sequences(data.path, features, self.settings.max_seq_length)
        return features

    def build_model(self) -> AlbertForMultipleChoice:
        """Returns the model with random weights."""
        return AlbertForMultipleChoice(self.config, self.settings.dropout_prob)

    def losses(self, outputs: tf.Tensor, batch: Batch) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Returns the cross-entropies, [B], and whether predictions are correct, bool [B].

        Args:
            outputs: logits, float32 [B, C].
            batch: has `label_ids`, int32 [B].
        """
        labels = batch["label_ids"]
        predictions = tf.argmax(outputs, axis=-1, output_type=labels.dtype)
        return classification_losses(outputs, labels), {"accuracy": predictions == labels}

    def predictions(self, outputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns `logits` and `probabilities`, both [B, C]."""
        return {"logits": outputs, "probabilities": tf.nn.softmax(outputs)}

    def measure(self, split: RaceSplit, outputs: Outputs, batch_size: int) -> dict[str, float]:
        """Returns the accuracy and the losses; see `evaluate`."""
        return evaluate(split.data, outputs["logits"], batch_size)

    def result_files(self) -> RaceFiles:
        """Returns what writes the predictions of questions."""
        return RaceFiles(self)

    def exporter(self) -> RaceExporter:
        """Returns what is exported for any number of options."""
        return RaceExporter(self)

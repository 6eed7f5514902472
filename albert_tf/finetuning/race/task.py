"""Multiple choice as a fine-tuning task: features, loss, metrics and predictions.

Each option of a question is a separate sequence, and the model scores each of them.

Source: `run_race.py` of google-research/albert.

Shapes: B batch size, N questions, C options, S sequence length.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf import files
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.signatures import Export, token_inputs, token_signatures
from albert_tf.finetuning.batching import Features
from albert_tf.finetuning.examples import Examples
from albert_tf.finetuning.json_values import as_json
from albert_tf.finetuning.race.evaluation import SELECTION_METRIC, evaluate
from albert_tf.finetuning.race.features import SPECIAL_TOKENS, option_sequences
from albert_tf.finetuning.race.questions import Question, num_choices
from albert_tf.finetuning.task import FineTuningTask, Split
from albert_tf.finetuning.text_task import Outputs
from albert_tf.finetuning.token_sequences import TokenSequences, log_full_sequences
from albert_tf.model.heads import AlbertForMultipleChoice, classification_losses
from albert_tf.model.ops import MASKED_SCORE
from albert_tf.model.tokenization import split_pairs
from albert_tf.training.task import Batch

# The outputs to collect, and their padding values for missing options.
OUTPUTS = {"logits": MASKED_SCORE, "probabilities": 0.0}


class MultipleChoice(FineTuningTask):
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
    demos = (
        {"passage": "Anna sells bread.", "question": "Anna sells _.", "options": "bread\ntea"},
    )

    def make_features(self, data: Examples[Question], split: str) -> TokenSequences:
        """Returns the token sequences and labels of a split."""
        logging.info("Tokenizing the %d questions of %s", len(data), data.path)
        features = self._features(data)
        log_full_sequences(data.path, features, self.max_seq_length)
        return features

    def _features(self, data: Examples[Question]) -> TokenSequences:
        """Returns C sequences per question, and `label_ids`, which is 0 if the label is unknown."""
        max_qa_length = min(self.settings.max_qa_length, self.max_seq_length - SPECIAL_TOKENS)
        sequences = option_sequences(data, self.tokenizer, self.max_seq_length, max_qa_length)
        labels = np.array([question.label or 0 for question in data.examples], np.int32)
        return TokenSequences.pack(sequences, {"label_ids": labels}, num_choices(data.examples))

    def build_model(self) -> AlbertForMultipleChoice:
        """Returns the model with random weights."""
        return AlbertForMultipleChoice(self.config, self.settings.dropout_prob)

    def losses(self, outputs: Any, batch: Batch) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Returns the cross-entropies, [B], and whether predictions are correct, bool [B].

        Args:
            outputs: logits, float32 [B, C].
            batch: has `label_ids`, int32 [B].
        """
        labels = batch["label_ids"]
        predictions = tf.argmax(outputs, axis=-1, output_type=labels.dtype)
        return classification_losses(outputs, labels), {"accuracy": predictions == labels}

    def predictions(self, outputs: Any) -> dict[str, tf.Tensor]:
        """Returns `logits` and `probabilities`, both [B, C]."""
        return {"logits": outputs, "probabilities": tf.nn.softmax(outputs)}

    def measure(self, split: Split, outputs: Outputs, batch_size: int) -> dict[str, float]:
        """Returns the accuracy and the losses; see `evaluate`."""
        return evaluate(split.data, outputs["logits"], batch_size)

    def parse_call(  # type: ignore[override]
        self,
        passage: str | Sequence[str],
        question: str | Sequence[str],
        options: Sequence[str] | Sequence[Sequence[str]],
    ) -> tuple[list[Question], bool]:
        """Returns the questions in the arguments of a call, and whether it is for a single one.

        Args:
            passage: the text that the question is about; or a list of them.
            question: the question, in which "_" stands for the option; may be "". Or a list.
            options: two or more options; or a list of them for each question.

        Raises:
            ValueError: the lists have different lengths, or hold other values.
        """
        passages, questions = split_pairs(passage, question)
        rows: Sequence[Any] = [options] if isinstance(passage, str) else options
        if len(rows) != len(passages) or any(isinstance(row, str) for row in rows):
            raise ValueError(f"{len(passages)} passages: expected a list of options for each")
        found = [
            Question("", text, asked, tuple(row), None)
            for text, asked, row in zip(passages, questions, rows, strict=True)
        ]
        return found, isinstance(passage, str)

    def features_of(self, examples: Sequence[Question]) -> TokenSequences:
        """Returns the token sequences of questions."""
        return self._features(Examples("questions", list(examples)))

    def results(
        self, examples: Sequence[Question], features: Features, outputs: Outputs
    ) -> list[dict[str, Any]]:
        """Returns the option that is chosen for each question."""
        return [
            {
                "prediction": int(row.argmax()),
                "answer": question.options[row.argmax()],
                "probabilities": as_json(row[: len(question.options)]),
            }
            for question, row in zip(examples, outputs["probabilities"], strict=True)
        ]

    @staticmethod
    def show(row: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, float]:
        """Returns the probabilities of the options, for the web page."""
        return dict(zip(row["options"], result["probabilities"], strict=True))

    def write_predictions(
        self, folder: RunFolder, split: Split, outputs: Outputs, step: int
    ) -> str:
        """Writes `<task_name>_predictions.jsonl` and, if labels are known, `predict_results.txt`.

        A line of the former is a JSON object with the keys `id` (of the passage), `question`,
        `prediction` (an index, starting at 0), `answer` (the letter of the prediction) and
        `probabilities` (of the question's options).

        Returns:
            The text of `predict_results.txt`, or "" without labels.
        """
        path = folder.file(f"{self.settings.task_name}_predictions.jsonl")
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
        return self.write_test_results(folder, split, outputs, step)

    def served_outputs(self, outputs: Any) -> dict[str, tf.Tensor]:
        """Returns `probabilities` [B, C] and `predictions` [B], the indices of the best options."""
        return {
            "probabilities": tf.nn.softmax(outputs),
            "predictions": tf.argmax(outputs, axis=-1, output_type=tf.int32),
        }

    def make_export(self, model: Any, max_seq_length: int, folder: RunFolder) -> Export:
        """Returns an export with inputs [B, C, S], for any number of options C.

        A missing option is a row of zeros. A serialized example contains the concatenated sequences
        of all options, as in Google's records.
        """
        options = tf.TensorSpec([None, None, max_seq_length], tf.int32)
        inputs = dict.fromkeys(token_inputs(max_seq_length), options)
        serve = functools.partial(self.serve, model)
        return Export(token_signatures(inputs, serve, takes_examples=False))

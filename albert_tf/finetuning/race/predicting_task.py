"""Predictions of the best of several options.

Shapes: N questions, C options.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from albert_tf.finetuning.examples import Examples
from albert_tf.finetuning.predicting_task import PredictingTask
from albert_tf.finetuning.race import Settings
from albert_tf.finetuning.race.features import SPECIAL_TOKENS, option_sequences
from albert_tf.finetuning.race.questions import Question, num_choices
from albert_tf.finetuning.race.text_task import RaceTextTask
from albert_tf.finetuning.token_sequences import TokenSequences
from albert_tf.finetuning.trained_model import TrainedModel


class PredictingMultipleChoice(PredictingTask[Settings, Examples[Question]]):
    """The part of `MultipleChoice` that predicts, which needs no TensorFlow."""

    outputs: Mapping[str, float] = {"probabilities": 0.0}

    def features_of(self, data: Examples[Question]) -> TokenSequences:
        """Returns C sequences per question, and `label_ids`, which is 0 if the label is unknown."""
        max_seq_length = self.settings.max_seq_length
        max_qa_length = min(self.settings.max_qa_length, max_seq_length - SPECIAL_TOKENS)
        sequences = option_sequences(data, self.tokenizer, max_seq_length, max_qa_length)
        labels = np.array([question.label or 0 for question in data.examples], np.int32)
        return TokenSequences.pack(sequences, {"label_ids": labels}, num_choices(data.examples))

    def text_task(self, trained: TrainedModel) -> RaceTextTask:
        """Returns what chooses options for questions."""
        return RaceTextTask(self)

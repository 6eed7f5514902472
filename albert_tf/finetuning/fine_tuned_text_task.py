"""What a predictor asks of a task that its model was fine-tuned for.

Shapes: N examples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from albert_tf.finetuning.batch_runner import Outputs
from albert_tf.finetuning.batching import Padding
from albert_tf.finetuning.settings import FineTuningSettings
from albert_tf.finetuning.splits import FeaturesType
from albert_tf.finetuning.text_pairs import encode_pairs, parse_pairs
from albert_tf.finetuning.text_task import ExampleType, Result, TextTask
from albert_tf.finetuning.token_sequences import TokenSequences
from albert_tf.model.tokenization import Tokenizer


class Predicting(Protocol):
    """What a predictor reads of the task; see `PredictingTask`."""

    tokenizer: Tokenizer
    labels: tuple[str, ...]

    @property
    def outputs(self) -> Mapping[str, float]:
        """Name of each prediction → padding value."""

    @property
    def settings(self) -> FineTuningSettings:
        """The settings that the model was trained with."""

    def padding(self, padding: Padding) -> Padding:
        """Returns how batches are padded, given the padding that the settings ask for."""

    def results(self, outputs: Outputs) -> list[Result]:
        """Returns the result of each of N examples, given predictions of the shapes [N, …]."""


class FineTunedTextTask(TextTask[ExampleType, FeaturesType, list[Result]]):
    """Describes the predictions of a task.

    Args:
        task: the task, with the tokenizer and the settings that the model was trained with.

    Attributes:
        task: the argument.
    """

    def __init__(self, task: Predicting) -> None:
        self.task = task
        self.tokenizer = task.tokenizer
        self.max_seq_length = task.settings.max_seq_length
        self.labels = task.labels
        self.outputs = task.outputs

    def padding(self, padding: Padding) -> Padding:
        """Returns how batches are padded, given the padding that the settings ask for."""
        return self.task.padding(padding)

    def results(
        self, examples: Sequence[ExampleType], features: FeaturesType, outputs: Outputs
    ) -> list[Result]:
        """Returns the task's `result` of each of N examples."""
        return self.task.results(outputs)


class TextPairTask(FineTunedTextTask[tuple[str, str], TokenSequences]):
    """Predicts texts or pairs of texts, as (text, text or "")."""

    def parse_call(
        self,
        texts: str | Sequence[str] | Sequence[Sequence[str]],
        pairs: str | Sequence[str] | None = None,
    ) -> tuple[list[tuple[str, str]], bool]:
        """Returns the pairs in the arguments of a call, and whether it is for a single one.

        Args:
            texts: a text, a list of texts, or a list of pairs of texts.
            pairs: the second text of the pair, or one for each of `texts`.

        Raises:
            ValueError: an input is not a string.
        """
        return parse_pairs(texts, pairs)

    def features_of(self, examples: Sequence[tuple[str, str]]) -> TokenSequences:
        """Returns the token sequences of one or more pairs, and counts those that are truncated."""
        features, num_truncated = encode_pairs(examples, self.tokenizer, self.max_seq_length)
        self.count_truncated(num_truncated)
        return features

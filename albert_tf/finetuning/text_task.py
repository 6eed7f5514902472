"""What a predictor asks of a task: how input becomes features, and outputs become results.

Shapes: B batch size, N examples.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import tensorflow as tf
from numpy.typing import NDArray

from albert_tf.finetuning.batching import Features, Padding
from albert_tf.finetuning.token_sequences import TokenSequences
from albert_tf.finetuning.trained_model import TrainedModel
from albert_tf.model.tokenization import Tokenizer, split_pairs

if TYPE_CHECKING:
    from typing_extensions import Self

Outputs = Mapping[str, NDArray[Any]]
Result = dict[str, Any]


class TextTask(abc.ABC):
    """The interface between a task and the predictor.

    By default, an example is a text or a pair of texts, as (text, text or "").

    Attributes:
        tokenizer: the tokenizer of the model.
        max_seq_length: maximum sequence length, in tokens.
        labels: names of the model's outputs, in the order of their ids; () if they have none.
        outputs: name of each output of `compute` → padding value for outputs whose width differs
            between batches, as with questions that have different numbers of options.
        num_truncated: number of texts so far that were longer, and of which only a part was read.
        demos: rows to try the task with on the web page, which all have the same columns.
        marks_spans: whether the web page shows a text with marked spans, not a number per label.
    """

    tokenizer: Tokenizer
    max_seq_length: int
    labels: tuple[str, ...] = ()
    outputs: Mapping[str, float]
    num_truncated: int = 0
    demos: ClassVar[Sequence[Mapping[str, str]]] = (
        {"text": "What a lovely day!", "text_b": ""},
        {"text": "你多大了", "text_b": "你几岁"},
    )
    marks_spans: ClassVar[bool] = False

    @classmethod
    def of_trained(cls, trained: TrainedModel) -> Self:
        """Returns the task to predict with a trained model: by default, of this argument.

        Raises:
            ValueError: what is recorded of the task is damaged, or does not fit the model.
        """
        return cls(trained)  # type: ignore[call-arg]

    def padding(self, padding: Padding) -> Padding:
        """Returns how batches are padded, given the padding that the settings ask for."""
        return padding

    # From input to features.

    def parse_call(
        self,
        texts: str | Sequence[str] | Sequence[Sequence[str]],
        pairs: str | Sequence[str] | None = None,
    ) -> tuple[list[Any], bool]:
        """Returns the examples in the arguments of a call, and whether it is for a single one.

        Args:
            texts: a text, a list of texts, or a list of pairs of texts.
            pairs: the second text of the pair, or one for each of `texts`.

        Raises:
            ValueError: an input is not a string.
        """
        return list(zip(*split_pairs(texts, pairs), strict=True)), isinstance(texts, str)

    def features_of(self, examples: Sequence[Any]) -> Features | None:
        """Returns the features of one or more examples; None if they have none.

        By default, these are token sequences. Those that are truncated are counted.
        """
        firsts, seconds = (list(side) for side in zip(*examples, strict=True))
        limit = self.max_seq_length
        rows = self.tokenizer.sequences(firsts, seconds, limit + 1)  # shows what is too long
        too_long = [number for number, (ids, _) in enumerate(rows) if len(ids) > limit]
        self.num_truncated += len(too_long)
        for number in too_long:
            (rows[number],) = self.tokenizer.sequences(firsts[number], seconds[number], limit)
        return TokenSequences.pack(rows, {})

    # From features to results.

    @abc.abstractmethod
    def compute(self, model: Any, batch: Mapping[str, tf.Tensor]) -> Mapping[str, tf.Tensor]:
        """Returns the `outputs` of a model for a batch, name → [B, …]."""

    @abc.abstractmethod
    def results(self, examples: Sequence[Any], features: Features, outputs: Outputs) -> Any:
        """Returns the result of each of N examples.

        Args:
            examples: the examples.
            features: their features.
            outputs: name → [N, …], or one row for each of the features if these are more.
        """

    def unanswered(self, examples: Sequence[Any]) -> Any:
        """Returns the results of examples without features; [] if there are no examples."""
        return []

    def as_objects(self, results: Any) -> Sequence[Result]:
        """Returns results as JSON objects; they are such objects by default."""
        objects: Sequence[Result] = results
        return objects

    @staticmethod
    def show(row: Mapping[str, Any], result: Result) -> Any:
        """Returns what the web page shows of a result, as one of Gradio's components takes it.

        This is label → number, or a number. With `marks_spans`, it is a text and its spans; see
        `mark`.
        """
        return result.get("probabilities", result.get("score"))


def mark(text: str, spans: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns a text with its spans, as `gradio.HighlightedText` expects them.

    Args:
        text: the text.
        spans: `type`, `begin` and `end` of each span; `begin` is negative if there is none.
    """
    keys = {"entity": "type", "start": "begin", "end": "end"}
    found = [span for span in spans if span["begin"] >= 0]
    return {"text": text, "entities": [{k: span[v] for k, v in keys.items()} for span in found]}

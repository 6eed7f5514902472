"""What a predictor asks of a task: how input becomes features, and outputs become results.

In between, a model computes the outputs of batches of features: one of TensorFlow, or a file for
another runtime. TensorFlow is not imported here.

Shapes: B batch size, N examples.
"""

from __future__ import annotations

import abc
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar, cast

from albert_tf import files
from albert_tf.finetuning.batch_runner import Outputs
from albert_tf.finetuning.batching import Padding
from albert_tf.finetuning.splits import FeaturesType
from albert_tf.finetuning.trained_model import TrainedModel
from albert_tf.model.tokenization import Tokenizer

if TYPE_CHECKING:
    from typing_extensions import Self

Result = files.JsonObject
ExampleType = TypeVar("ExampleType")  # what the predictor is asked
ResultsType = TypeVar("ResultsType")  # what it answers to a list of examples
AnyTextTask: TypeAlias = "TextTask[Any, Any, Any]"

_counting = threading.Lock()


class TextTask(abc.ABC, Generic[ExampleType, FeaturesType, ResultsType]):
    """The interface between a task and the predictor.

    A predictor may be called from several threads at the same time: no method keeps what belongs to
    one call in an attribute.

    Attributes:
        tokenizer: the tokenizer of the model.
        max_seq_length: maximum sequence length, in tokens.
        labels: names of the model's outputs, in the order of their ids; () if they have none.
        outputs: name of each output that the model computes → padding value for outputs whose
            width differs between batches, as with questions that have different numbers of options.
        num_truncated: number of texts so far that were longer, and of which only a part was read.
        argument_names: names of the arguments of `parse_call` in rows of files, in their order; a
            call may use them too.
        demos: rows to try the task with on the web page, if the run has kept none; all have the
            same columns.
        marks_spans: whether the web page shows a text with marked spans, not a number per label.
        table_columns: names of the columns of `table`.
    """

    tokenizer: Tokenizer
    max_seq_length: int
    labels: tuple[str, ...] = ()
    outputs: Mapping[str, float]
    num_truncated: int = 0
    argument_names: ClassVar[Sequence[str]] = ("text", "text_b")
    demos: ClassVar[Sequence[Mapping[str, str]]] = (
        {"text": "What a lovely day!", "text_b": ""},
        {"text": "你多大了", "text_b": "你几岁"},
    )
    marks_spans: ClassVar[bool] = False
    table_columns: ClassVar[Sequence[str]] = ("label", "probability")

    @classmethod
    def of_trained(cls, trained: TrainedModel) -> Self:
        """Returns the task to predict with a trained model: by default, of this argument.

        Raises:
            ValueError: what is recorded of the task is damaged, or does not fit the model.
        """
        return cls(trained)  # type: ignore[call-arg] # subclasses take it

    def padding(self, padding: Padding) -> Padding:
        """Returns how batches are padded, given the padding that the settings ask for."""
        return padding

    # From input to features.

    @abc.abstractmethod
    def parse_call(self, *inputs: Any, **named_inputs: Any) -> tuple[list[ExampleType], bool]:
        """Returns the examples in the arguments of a call, and whether it is for a single one.

        Raises:
            ValueError: an input is not of the expected type.
        """

    @abc.abstractmethod
    def features_of(self, examples: Sequence[ExampleType]) -> FeaturesType | None:
        """Returns the features of one or more examples; None if they have none."""

    def count_truncated(self, number: int) -> None:
        """Adds to `num_truncated`, also if several threads do so at the same time."""
        with _counting:
            self.num_truncated += number

    # From features to results.

    def outputs_of(self, exported: Outputs) -> Outputs:
        """Returns the `outputs` of a batch, name → [B, …], given those of an exported model.

        By default, they have the same names.
        """
        return {name: exported[name] for name in self.outputs}

    @abc.abstractmethod
    def results(
        self, examples: Sequence[ExampleType], features: FeaturesType, outputs: Outputs
    ) -> ResultsType:
        """Returns the result of each of N examples.

        Args:
            examples: the examples.
            features: their features.
            outputs: name → [N, …], or one row for each of the features if these are more.
        """

    def unanswered(self, examples: Sequence[ExampleType]) -> ResultsType:
        """Returns the results of examples without features, or of none: by default, []."""
        return cast("ResultsType", [])

    def as_objects(self, results: ResultsType) -> Sequence[Result]:
        """Returns results as JSON objects: by default, as they are."""
        return cast("Sequence[Result]", results)

    @staticmethod
    def show(row: files.JsonObject, result: Result) -> files.Json:
        """Returns what the web page shows of a result, as one of Gradio's components takes it.

        This is label → number, or a number. With `marks_spans`, it is a text and its spans; see
        `mark`.
        """
        return result.get("probabilities", result.get("score"))

    @staticmethod
    def table(row: files.JsonObject, result: Result) -> list[Sequence[files.Json]]:
        """Returns what else the answer may be, the most probable first; the last cell is a number.

        The web page shows it as a table; none if it is empty.
        """
        return ranked(result.get("probabilities") or {})


def ranked(numbers: Mapping[str, float]) -> list[Sequence[files.Json]]:
    """Returns pairs of a name and its number, in descending order of the numbers."""
    return sorted(numbers.items(), key=lambda pair: -pair[1])


def mark(text: str, spans: Sequence[Result]) -> files.JsonObject:
    """Returns a text with its spans, as `gradio.HighlightedText` expects them.

    Args:
        text: the text.
        spans: `type`, `begin` and `end` of each span; `begin` is negative if there is none.
    """
    keys = {"entity": "type", "start": "begin", "end": "end"}
    found = [span for span in spans if span["begin"] >= 0]
    return {"text": text, "entities": [{k: span[v] for k, v in keys.items()} for span in found]}

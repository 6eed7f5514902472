"""Chooses options for the questions that a predictor is asked.

Shapes: N questions, C options.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from albert_tf import files
from albert_tf.finetuning.batch_runner import Outputs
from albert_tf.finetuning.examples import Examples
from albert_tf.finetuning.fine_tuned_text_task import FineTunedTextTask
from albert_tf.finetuning.json_values import as_json
from albert_tf.finetuning.race.questions import Question
from albert_tf.finetuning.text_task import Result, ranked
from albert_tf.finetuning.token_sequences import TokenSequences
from albert_tf.model.tokenization import split_pairs

if TYPE_CHECKING:
    from albert_tf.finetuning.race.predicting_task import PredictingMultipleChoice


class RaceTextTask(FineTunedTextTask[Question, TokenSequences]):
    """Predicts passages with a question and its options."""

    task: PredictingMultipleChoice
    argument_names = ("passage", "question", "options")
    table_columns = ("option", "probability")
    demos = (
        {"passage": "Anna sells bread.", "question": "Anna sells _.", "options": "bread\ntea"},
        {"passage": "王小明卖面包。", "question": "王小明卖什么？", "options": "面包\n茶"},
    )

    def parse_call(
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
        # The options of one question, or of each.
        rows = cast("Sequence[Sequence[str]]", [options] if isinstance(passage, str) else options)
        if len(rows) != len(passages) or any(isinstance(row, str) for row in rows):
            raise ValueError(f"{len(passages)} passages: expected a list of options for each")
        found = [
            Question("", text, asked, tuple(row), None)
            for text, asked, row in zip(passages, questions, rows, strict=True)
        ]
        return found, isinstance(passage, str)

    def features_of(self, examples: Sequence[Question]) -> TokenSequences:
        """Returns the token sequences of questions."""
        return self.task.features_of(Examples("questions", list(examples)))

    def results(
        self, examples: Sequence[Question], features: TokenSequences, outputs: Outputs
    ) -> list[Result]:
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
    def show(row: files.JsonObject, result: Result) -> dict[str, float]:
        """Returns the probabilities of the options, for the web page."""
        return dict(zip(row["options"], result["probabilities"], strict=True))

    @staticmethod
    def table(row: files.JsonObject, result: Result) -> list[Sequence[files.Json]]:
        """Returns the options with their probabilities."""
        return ranked(RaceTextTask.show(row, result))

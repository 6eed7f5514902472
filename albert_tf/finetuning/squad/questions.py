"""Questions about contexts."""

from __future__ import annotations

import dataclasses

from albert_tf.finetuning.columns import CONTEXT, QUESTION, unnamed_texts
from albert_tf.finetuning.examples import Examples
from albert_tf.finetuning.rows import BadRowError, Row, text_cell

MAX_NAMED = 5  # question ids in a warning


@dataclasses.dataclass(frozen=True, slots=True)
class SquadExample:
    """A question about a context.

    Attributes:
        qas_id: id of the question.
        question, context: the texts.
        answers: the texts of the answers; empty if the question is unanswerable or its answers are
            unknown.
        answer_start: offset of the first answer in `context`; -1 without answers.
        is_impossible: whether the question is marked as unanswerable.
    """

    qas_id: str = dataclasses.field(repr=False)
    question: str
    context: str
    answers: tuple[str, ...] = ()
    answer_start: int = -1
    is_impossible: bool = False

    @property
    def is_answer_in_place(self) -> bool:
        """Whether the first answer occurs in the context at `answer_start`."""
        return (
            bool(self.answers and self.answers[0])
            and self.answer_start >= 0
            and self.context.startswith(self.answers[0], self.answer_start)
        )


@dataclasses.dataclass(frozen=True)
class SquadData(Examples[SquadExample]):
    """The questions of a file; `has_labels` if predictions for them can be evaluated.

    That is, if every question has answers or is marked as unanswerable.

    Attributes:
        version_2: whether there are unanswerable questions, or the file declares version v2.
        is_chinese: whether most answers contain Chinese characters, or most questions if there are
            no answers.
    """

    version_2: bool = False
    is_chinese: bool = False


def parse_question(row: Row) -> tuple[str, str]:
    """Returns the question and the context of a row."""
    if isinstance(row, dict):
        found = text_cell(row, QUESTION.of(row)), text_cell(row, CONTEXT.of(row))
    else:
        cells = unnamed_texts(row, 2)
        found = text_cell(cells, 0), text_cell(cells, 1)
    for name, text in zip(("question", "context"), found, strict=True):
        if not text.strip():
            raise BadRowError(f"the {name} is empty")
    return found

"""Questions about contexts, and what is checked of those of a file."""

from __future__ import annotations

import collections
import dataclasses
import random
import re
from collections.abc import Sequence

from absl import logging

from albert_tf.finetuning.columns import CONTEXT, QUESTION, unnamed_texts
from albert_tf.finetuning.examples import Examples
from albert_tf.finetuning.rows import BadRowError, Row, abbreviate, text_cell

SHUFFLE_SEED = 12345  # as in Google's programs
MAX_NAMED = 5  # question ids in a warning
_HAN = re.compile("[\u4e00-\u9fff]")


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


def make_data(
    path: str,
    questions: Sequence[tuple[SquadExample, bool]],
    declares_version_2: bool,
    is_training: bool,
) -> SquadData:
    """Returns the questions of a file, after checks of them all.

    Args:
        path: the file.
        questions: the questions, and whether the answers of each are known.
        declares_version_2: whether the file says that questions may be unanswerable.
        is_training: whether every question must have an answer or be marked as `is_impossible`. The
            first answer is used, and questions whose answer is not at its offset are skipped with a
            warning. If False, answers may be missing, and all questions are kept.

    Raises:
        ValueError: there is no question. For training, there is no usable question; otherwise,
            there are duplicate ids.
    """
    if not questions:
        raise ValueError(f"{path}: contains no question")
    examples = [example for example, _ in questions]
    if is_training:
        _warn_of_duplicate_ids(path, examples)
    else:
        refuse_duplicate_ids(path, examples)
    version_2 = any(e.is_impossible for e in examples) or declares_version_2
    texts = [answer for e in examples for answer in e.answers] or [e.question for e in examples]
    return SquadData(
        path=path,
        examples=_keep_usable(path, examples) if is_training else examples,
        # In SQuAD 1.1, either all questions have answers or the answers are unknown.
        has_labels=all(is_known and bool(e.answers or version_2) for e, is_known in questions),
        version_2=version_2,
        is_chinese=2 * sum(bool(_HAN.search(text)) for text in texts) > len(texts),
    )


def shuffled(examples: Sequence[SquadExample]) -> list[SquadExample]:
    """Returns the questions in the order in which Google's programs train on them."""
    result = list(examples)
    random.Random(SHUFFLE_SEED).shuffle(result)
    return result


def refuse_duplicate_ids(path: str, examples: Sequence[SquadExample]) -> None:
    """Raises a ValueError if questions to predict have the same id."""
    twice = _duplicate_ids(examples)
    if twice:
        raise ValueError(
            f"{path}: predictions are stored by id, but {_name(twice)} have duplicate ids. Give "
            "each question a unique id."
        )


def _warn_of_duplicate_ids(path: str, examples: Sequence[SquadExample]) -> None:
    twice = _duplicate_ids(examples)
    if twice:
        logging.warning("%s: duplicate ids: %s", path, _name(twice))


def _duplicate_ids(examples: Sequence[SquadExample]) -> list[str]:
    counts = collections.Counter(example.qas_id for example in examples)
    return [qas_id for qas_id, count in counts.items() if count > 1]


def _keep_usable(path: str, examples: list[SquadExample]) -> list[SquadExample]:
    usable: list[SquadExample] = []
    lost = []
    for example in examples:
        if example.is_impossible or example.is_answer_in_place:
            usable.append(example)
        else:
            lost.append(example.qas_id)
    if lost:
        logging.warning("%s: skipped, answer not at answer_start: %s", path, _name(lost))
    if not usable:
        raise ValueError(
            f"{path}: no answer occurs at its answer_start (in characters, starting at 0)"
        )
    return usable


def _name(ids: list[str]) -> str:
    noun = "question" if len(ids) == 1 else "questions"
    return f"{len(ids)} {noun} ({abbreviate(ids, MAX_NAMED)})"


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

"""Multiple-choice questions, and how they are parsed from JSON objects."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence

from albert_tf import files
from albert_tf.finetuning.cells import cell, check_name, check_text, text_cell
from albert_tf.finetuning.race.question_columns import parse_options, with_known_names
from albert_tf.finetuning.rows import BadRowError, Row


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """A question with its options, mostly about a passage.

    Attributes:
        example_id: id of the passage, shared by all its questions.
        passage: the text; "" if the question is about none.
        question: the question, which may have a "_" to be replaced by the option, or be "" if there
            is a passage.
        options: two or more options.
        label: index of the correct option, starting at 0; None if unknown.
        level: part of the data set, such as "middle"; or "".
    """

    example_id: str = dataclasses.field(repr=False)
    passage: str
    question: str
    options: tuple[str, ...]
    label: int | None
    level: str = ""


def num_choices(questions: Sequence[Question]) -> int:
    """Returns the largest number of options of any question."""
    return max(len(question.options) for question in questions)


def nonempty_text(row: files.JsonObject, key: str) -> str:
    """Returns the text of a key.

    Raises:
        BadRowError: there is no such key, or it has no text, or only spaces.
    """
    text = text_cell(row, key)
    if not text.strip():
        raise BadRowError(f"{key!r} is empty")
    return text


def parse_question(
    parts: files.JsonObject, num_options: int | None = None
) -> tuple[Question, tuple[str, ...]]:
    """Returns a question, without its label, and the names of its options.

    Args:
        parts: its parts; see `with_known_names`.
        num_options: the number of options; None for any.

    Raises:
        BadRowError: these are not the parts of a question.
    """
    options, names = parse_options(cell(parts, "options"), num_options)
    question = text_cell(parts, "question") if "question" in parts else ""
    passage = ""
    if "passage" in parts or not question:
        passage = sys.intern(nonempty_text(parts, "passage"))  # held once for all its questions
    example_id = check_text(str(parts.get("id", "")), "'id'")
    level = str(parts.get("level", ""))
    if level:
        level = check_name(level, "'level'")
    return Question(example_id, passage, question, options, None, level), names


def parse_choice(row: Row) -> Question:
    """Returns the question of a row, without its label."""
    return parse_question(with_known_names(object_of(row)))[0]


def object_of(row: Row) -> files.JsonObject:
    """Returns the JSON object that a row is.

    Raises:
        BadRowError: the row has cells.
    """
    if not isinstance(row, dict):
        raise BadRowError("expected a JSON object with passage, question and options")
    return row

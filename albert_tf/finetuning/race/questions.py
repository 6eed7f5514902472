"""Multiple-choice questions, and how they are parsed from JSON objects."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from albert_tf import files
from albert_tf.finetuning.cells import cell, check_name, check_text, text_cell
from albert_tf.finetuning.rows import BadRowError, Row


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """A question about a passage, with its options.

    Attributes:
        example_id: id of the passage, shared by all its questions.
        passage: the text.
        question: the question, which may have a "_" to be replaced by the option, or be "".
        options: two or more options.
        label: index of the correct option, starting at 0; None if unknown.
        level: part of the data set, such as "middle"; or "".
    """

    example_id: str
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


def _options(values: object, num_options: int | None) -> tuple[str, ...]:
    if not isinstance(values, list) or len(values) < 2:
        raise BadRowError(f"options {files.quote(values)}: expected a list of two or more")
    for number, value in enumerate(values, 1):
        if not check_text(value, f"option {number}").strip():
            raise BadRowError(f"option {number} of {len(values)} is empty")
    if num_options not in (None, len(values)):
        raise BadRowError(f"{len(values)} options, expected {num_options}")
    return tuple(values)


def _label(value: object, options: Sequence[str]) -> int:
    """Returns the index of the correct option, given as its index or letter.

    Raises:
        BadRowError: there is no such option.
    """
    number = value
    if isinstance(value, str) and value.isdecimal():
        number = int(value)
    elif isinstance(value, str) and len(value) == 1:
        number = ord(value) - ord("A")
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < len(options):
        last = chr(ord("A") + min(len(options), 26) - 1)
        raise BadRowError(
            f"label {files.quote(value)} for {len(options)} options: expected 0 to "
            f"{len(options) - 1} or A to {last}"
        )
    return number


def parse_question(row: files.JsonObject, split: str, num_options: int | None = None) -> Question:
    """Returns the question in a JSON object; see `read_questions`.

    Args:
        row: the object.
        split: "train", "dev" or "test".
        num_options: the number of options; None for any.

    Raises:
        BadRowError: the object is not a valid question.
    """
    passage = nonempty_text(row, "passage")
    options = _options(cell(row, "options"), num_options)
    question = text_cell(row, "question") if "question" in row else ""
    is_labeled = split != "test" or row.get("label") is not None
    label = _label(cell(row, "label"), options) if is_labeled else None
    example_id = check_text(str(row.get("id", "")), "'id'")
    level = str(row.get("level", ""))
    if level:
        level = check_name(level, "'level'")
    return Question(example_id, passage, question, options, label, level)


def parse_choice(row: Row) -> Question:
    """Returns the question of a row, without its label."""
    values = object_of(row)
    return parse_question({key: values[key] for key in values if key != "label"}, "test")


def object_of(row: Row) -> files.JsonObject:
    """Returns the JSON object that a row is.

    Raises:
        BadRowError: the row has cells.
    """
    if not isinstance(row, dict):
        raise BadRowError("expected a JSON object with passage, question and options")
    return row

"""Reads multiple-choice questions: RACE in both of its formats, and custom JSON lines.

The main functions, `read_race` and `read_questions`, each read a split.
"""

from __future__ import annotations

import dataclasses
import glob
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

from absl import logging

from albert_tf import files
from albert_tf.finetuning import tables
from albert_tf.finetuning.examples import Examples
from albert_tf.finetuning.tables import BadRowError, RowReports

LEVELS = ("middle", "high")
ALL_IN_ONE = "all.txt"
RACE_OPTIONS = 4
EXTENSIONS = (".jsonl", ".json")


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

    @property
    def is_labeled(self) -> bool:
        """Whether the correct option is known."""
        return self.label is not None

    @property
    def content(self) -> tuple[Any, ...]:
        """All attributes."""
        return dataclasses.astuple(self)


def num_choices(questions: Sequence[Question]) -> int:
    """Returns the largest number of options of any question."""
    return max(len(question.options) for question in questions)


def _text(row: dict[str, Any], key: str) -> str:
    text = tables.text_cell(row, key)
    if not text.strip():
        raise BadRowError(f"{key!r} is empty")
    return text


def _list(row: dict[str, Any], key: str) -> list[Any]:
    values = tables.cell(row, key)
    if not isinstance(values, list):
        raise BadRowError(f"{key!r} is {type(values).__name__}, expected a list")
    return values


def _options(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list) or len(values) < 2:
        raise BadRowError(f"options {files.quote(values)}: expected a list of two or more")
    for number, value in enumerate(values, 1):
        if not tables.check_text(value, f"option {number}").strip():
            raise BadRowError(f"option {number} of {len(values)} is empty")
    return tuple(values)


def _label(value: Any, options: Sequence[str]) -> int:
    """Returns the index of the correct option, given as its index, letter or text."""
    number = value
    if isinstance(value, str):
        if len(value) == 1 and "A" <= value <= "Z":
            number = ord(value) - ord("A")
        elif value.isdecimal():
            number = int(value)
        is_index = isinstance(number, int) and number < len(options)
        if not is_index and options.count(value) == 1:
            number = options.index(value)
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < len(options):
        last = chr(ord("A") + min(len(options), 26) - 1)
        raise BadRowError(
            f"label {files.quote(value)} for {len(options)} options: expected 0 to "
            f"{len(options) - 1} or A to {last}"
        )
    return number


def _refuse_ambiguous(value: Any, number: int, options: Sequence[str]) -> None:
    """Raises BadRowError if a label is the index or letter of one option, and the text of another.

    RACE has letters only, so that this is a question for custom tasks.
    """
    if isinstance(value, str) and value in options and options[number] != value:
        raise BadRowError(
            f"label {files.quote(value)} is the index or letter of option {number}, "
            f"{files.quote(options[number])}, and the text of option {options.index(value)}. Write "
            f"the index as a number: {number} or {options.index(value)}"
        )


def _questions_of_article(
    row: Any, level: str, is_test: bool, place: str, reports: RowReports
) -> Iterator[Question]:
    """Yields the questions of an article of RACE, and reports bad ones."""
    try:
        if not isinstance(row, dict):
            raise row if isinstance(row, BadRowError) else BadRowError("not a JSON object")
        passage = _text(row, "article")
        texts = _list(row, "questions")
        options = _list(row, "options")
        has_answers = "answers" in row or not is_test
        answers = _list(row, "answers") if has_answers else [None] * len(texts)
        if not len(texts) == len(options) == len(answers):
            counts = f"{len(texts)} questions, {len(options)} options, {len(answers)} answers"
            raise BadRowError(f"{counts}: expected equal numbers")
        example_id = tables.check_text(str(row.get("id", place)), "'id'")
    except BadRowError as error:
        reports.bad(place, str(error))
        return
    for number, (text, choices, answer) in enumerate(zip(texts, options, answers, strict=True), 1):
        try:
            given = _options(choices)
            if len(given) != RACE_OPTIONS:
                raise BadRowError(f"{len(given)} options, expected {RACE_OPTIONS}")
            label = _label(answer, given) if has_answers else None
            text = tables.check_text(text, "question")
            yield Question(example_id, passage, text, given, label, level)
        except BadRowError as error:
            reports.bad(f"{place}, question {number} of {example_id}", str(error))


def _text_files(folder: str) -> list[str]:
    try:
        return files.expand_patterns([os.path.join(glob.escape(folder), "*.txt")], "--data_dir")
    except ValueError:  # no file matches
        return []


def _read_articles(folder: str) -> Iterator[tuple[str, Any]]:
    """Yields (place, JSON object) of each article, from the lines of `all.txt` or from files."""
    together = os.path.join(folder, ALL_IN_ONE)
    if files.is_file(together):
        for line, row in tables.read_json_lines(together):
            yield f"{ALL_IN_ONE}, line {line}", row
        return
    for path in _text_files(folder):
        try:
            yield os.path.basename(path), json.loads(files.read_text(path))
        except ValueError as error:
            yield os.path.basename(path), BadRowError(f"expected a JSON object: {error}")


def _level_folders(data_dir: str, split: str, levels: Sequence[str]) -> dict[str, str]:
    roots = [os.path.join(data_dir, "RACE"), data_dir]
    for root in roots:
        folders = {level: os.path.join(root, split, level) for level in levels}
        existing = {level: folder for level, folder in folders.items() if _text_files(folder)}
        if existing:
            for level in folders.keys() - existing:
                logging.warning("%s does not exist; continuing without it", folders[level])
            return existing
    tried = " and ".join(os.path.join(root, split, "{" + ",".join(levels) + "}") for root in roots)
    raise FileNotFoundError(
        f"no RACE questions: neither {ALL_IN_ONE} nor other .txt files in {tried}. --data_dir must "
        "be the folder that contains RACE/."
    )


def read_race(data_dir: str, split: str, levels: Sequence[str] = LEVELS) -> Examples[Question]:
    """Reads a split of RACE, middle before high, as Google's program does.

    Both formats are supported: `<split>/<level>/all.txt` with one article per line, or the folders
    of the original distribution with one file per article, sorted by name.

    Args:
        data_dir: parent folder of `RACE/`, or that folder.
        split: "train", "dev" or "test".
        levels: the levels to read, from LEVELS.

    Raises:
        FileNotFoundError: there are no questions.
        ValueError: there is a bad article or question (invalid JSON, an empty article, missing
            options, an invalid answer); the message names the file, the article and the question.
    """
    questions: list[Question] = []
    folders = _level_folders(data_dir, split, levels)
    reports = RowReports(os.path.dirname(next(iter(folders.values()))))
    for level, folder in folders.items():
        for place, row in _read_articles(folder):
            place = f"{level}/{place}"
            questions += _questions_of_article(row, level, split == "test", place, reports)
    return _examples("race", split, questions, reports)


def _examples(
    name: str, split: str, questions: list[Question], reports: RowReports
) -> Examples[Question]:
    reports.check()
    if not questions:
        raise ValueError(f"{reports.path}: contains no usable question")
    return Examples(reports.path, split, questions, name)


def parse_question(row: Any, split: str, line: int) -> Question:
    """Returns the question in a JSON object; see `read_questions`.

    Args:
        row: the object, or the error that occurred when it was read.
        split: "train", "dev" or "test".
        line: line number in the file, starting at 1.

    Raises:
        BadRowError: the object is not a valid question.
    """
    if isinstance(row, BadRowError):
        raise row
    passage = _text(row, "passage")
    options = _options(tables.cell(row, "options"))
    question = tables.text_cell(row, "question") if "question" in row else ""
    label = None
    if split != "test" or row.get("label") is not None:
        label = _label(tables.cell(row, "label"), options)
        _refuse_ambiguous(row["label"], label, options)
    example_id = tables.check_text(str(row.get("id", f"{split}-{line - 1}")), "'id'")
    level = str(row.get("level", ""))
    if level:
        level = tables.check_name(level, "'level'")
    return Question(example_id, passage, question, options, label, level)


def read_questions(data_dir: str, split: str) -> Examples[Question]:
    """Reads a split of a custom task: `<split>.jsonl` or `.json`, with one JSON object per line.

    The keys of an object are:

    * `passage`: the text;
    * `question`: optional; may have a "_" to be replaced by the option;
    * `options`: two or more; the number may vary between questions;
    * `label`: index (starting at 0), letter or text of the correct option; optional in test files;
    * `id`: optional;
    * `level`: optional; accuracy is also reported for each level.

    Args:
        data_dir: folder of the file.
        split: "train", "dev" or "test".

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: there is a bad question; the message names the file, the line and the question.
    """
    paths = [os.path.join(data_dir, split + ending) for ending in EXTENSIONS]
    path = next((path for path in paths if files.is_file(path)), "")
    if not path:
        raise FileNotFoundError(f"no {split} questions: neither {' nor '.join(paths)} exists")
    reports = RowReports(path)
    questions = []
    for line, row in tables.read_json_lines(path):
        try:
            questions.append(parse_question(row, split, line))
        except BadRowError as error:
            name = f" ({row['id']})" if isinstance(row, dict) and "id" in row else ""
            reports.bad(f"line {line}{name}", str(error))
    return _examples("choice", split, questions, reports)

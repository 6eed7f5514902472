"""Reads multiple-choice questions: RACE in both of its formats, and custom JSON lines.

The main functions, `read_race` and `read_questions`, each read a split.
"""

from __future__ import annotations

import dataclasses
import functools
import glob
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from absl import logging

from albert_tf import files
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.finetuning import rows
from albert_tf.finetuning.race import Settings
from albert_tf.finetuning.rows import JSON_LINES, BadRowError, Examples, Row, RowReports

LEVELS = ("middle", "high")
ALL_IN_ONE = "all.txt"
RACE_OPTIONS = 4
EXTENSIONS = (".jsonl", ".json")
_LETTERS = list("ABCD")


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
    text = rows.text_cell(row, key)
    if not text.strip():
        raise BadRowError(f"{key!r} is empty")
    return text


def _list(row: dict[str, Any], key: str) -> list[Any]:
    values = rows.cell(row, key)
    if not isinstance(values, list):
        raise BadRowError(f"{key!r} is {type(values).__name__}, expected a list")
    return values


def _options(values: Any, num_options: int | None) -> tuple[str, ...]:
    if not isinstance(values, list) or len(values) < 2:
        raise BadRowError(f"options {files.quote(values)}: expected a list of two or more")
    for number, value in enumerate(values, 1):
        if not rows.check_text(value, f"option {number}").strip():
            raise BadRowError(f"option {number} of {len(values)} is empty")
    if num_options not in (None, len(values)):
        raise BadRowError(f"{len(values)} options, expected {num_options}")
    return tuple(values)


def _label(value: Any, options: Sequence[str]) -> int:
    """Returns the index of the correct option, given as its index, letter or text.

    Raises:
        BadRowError: there is no such option, or the label is the index or letter of one option, and
            the text of another.
    """
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
    if isinstance(value, str) and value in options and options[number] != value:
        raise BadRowError(
            f"label {files.quote(value)} is the index or letter of option {number}, "
            f"{files.quote(options[number])}, and the text of option {options.index(value)}. Write "
            f"the index as a number: {number} or {options.index(value)}"
        )
    return number


def _rows_of_article(
    article: Any, place: str, level: str, is_test: bool
) -> list[tuple[str, dict[str, Any]]]:
    """Returns (place, row) of each question of RACE, with the keys of `read_questions`."""
    if not isinstance(article, dict):
        raise BadRowError("not a JSON object")
    passage = _text(article, "article")
    keys = ["questions", "options", "answers"]
    if is_test and "answers" not in article:
        keys.remove("answers")
    columns = [_list(article, key) for key in keys]
    if len(set(map(len, columns))) > 1:
        counts = [f"{len(column)} {key}" for column, key in zip(columns, keys, strict=True)]
        raise BadRowError(f"{', '.join(counts)}: expected equal numbers")
    example_id = rows.check_text(str(article.get("id", place)), "'id'")
    found = []
    for number, (question, options, *answers) in enumerate(zip(*columns, strict=True), 1):
        row = {
            "passage": passage,
            "question": question,
            "options": options,
            # As a number, because a letter may also be the text of an option.
            "label": next((_LETTERS.index(x) if x in _LETTERS else x for x in answers), None),
            "id": example_id,
            "level": level,
        }
        found.append((f"{place}, question {number} of {example_id}", row))
    return found


def _text_files(folder: str) -> list[str]:
    try:
        return files.expand_patterns([os.path.join(glob.escape(folder), "*.txt")], "--data_dir")
    except ValueError:  # no file matches
        return []


def _read_articles(folder: str, level: str) -> Iterator[tuple[str, Any]]:
    """Yields (place, JSON object) of each article, from the lines of `all.txt` or from files."""
    together = os.path.join(folder, ALL_IN_ONE)
    if files.is_file(together):
        for line, row in rows.read(together, JSON_LINES):
            yield f"{level}/{ALL_IN_ONE}, line {line}", row
        return
    for path in _text_files(folder):
        place = f"{level}/{os.path.basename(path)}"
        try:
            yield place, json.loads(files.read_text(path))
        except ValueError as error:
            yield place, BadRowError(f"expected a JSON object: {error}")


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
    numbered: list[tuple[str, Any]] = []
    folders = _level_folders(data_dir, split, levels)
    reports = RowReports(os.path.dirname(next(iter(folders.values()))))
    for level, folder in folders.items():
        expand = functools.partial(_rows_of_article, level=level, is_test=split == "test")
        articles = reports.parsed(_read_articles(folder, level), expand)
        numbered += [pair for _, pairs in articles for pair in pairs]
    return _parse_questions(numbered, split, reports, "race", RACE_OPTIONS)


def _parse_questions(
    numbered: Iterable[tuple[str, Any]],
    split: str,
    reports: RowReports,
    task: str,
    num_options: int | None = None,
) -> Examples[Question]:
    parsed = reports.parsed(numbered, lambda row, place: parse_question(row, split, num_options))
    return reports.examples(split, [question for _, question in parsed], "question", task)


def parse_question(row: dict[str, Any], split: str, num_options: int | None = None) -> Question:
    """Returns the question in a JSON object; see `read_questions`.

    Args:
        row: the object.
        split: "train", "dev" or "test".
        num_options: the number of options; None for any.

    Raises:
        BadRowError: the object is not a valid question.
    """
    passage = _text(row, "passage")
    options = _options(rows.cell(row, "options"), num_options)
    question = rows.text_cell(row, "question") if "question" in row else ""
    is_labeled = split != "test" or row.get("label") is not None
    label = _label(rows.cell(row, "label"), options) if is_labeled else None
    example_id = rows.check_text(str(row.get("id", "")), "'id'")
    level = str(row.get("level", ""))
    if level:
        level = rows.check_name(level, "'level'")
    return Question(example_id, passage, question, options, label, level)


def parse_choice(row: Row) -> Question:
    """Returns the question of a row, without its label."""
    if not isinstance(row, dict):
        raise BadRowError("expected a JSON object with passage, question and options")
    return parse_question({key: row[key] for key in row if key != "label"}, "test")


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
    return _parse_questions(_read_custom(path, split), split, RowReports(path), "choice")


def _read_custom(path: str, split: str) -> Iterator[tuple[str, Any]]:
    """Yields (place, JSON object with an id) of each line."""
    for line, row in rows.read(path, JSON_LINES):
        place = f"line {line}"
        if isinstance(row, dict):
            place += f" ({row['id']})" if "id" in row else ""
            row = row | {"id": row.get("id", f"{split}-{line - 1}")}
        yield place, row


def read_data(
    settings: Settings, trained: RunFolder | None = None
) -> dict[str, Examples[Question]]:
    """Returns the questions of each split; see `read_race` and `read_questions`."""
    if settings.task_name == "choice":
        return {split: read_questions(settings.data_dir, split) for split in settings.splits}
    if settings.middle_only and settings.high_only:
        raise ValueError("--middle_only and --high_only exclude each other: set one of them")
    levels: Sequence[str] = LEVELS
    if settings.middle_only:
        levels = ["middle"]
    elif settings.high_only:
        levels = ["high"]
    return {split: read_race(settings.data_dir, split, levels) for split in settings.splits}

"""Reads multiple-choice questions: RACE in both of its formats, and custom JSON lines.

The main functions, `read_race` and `read_questions`, each read a split.
"""

from __future__ import annotations

import functools
import glob
import json
import os
from collections.abc import Iterator, Sequence

from absl import logging

from albert_tf import files
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.finetuning import rows, split_files
from albert_tf.finetuning.cells import cell
from albert_tf.finetuning.examples import Examples
from albert_tf.finetuning.race import Settings
from albert_tf.finetuning.race.questions import Question, nonempty_text, object_of, parse_question
from albert_tf.finetuning.rows import BadRowError, Row
from albert_tf.tables import JSON_LINES, open_table

LEVELS: tuple[str, ...] = ("middle", "high")
ALL_IN_ONE = "all.txt"
RACE_OPTIONS = 4
EXTENSIONS = (".jsonl", ".json")


def _list(row: files.JsonObject, key: str) -> list[files.Json]:
    values = cell(row, key)
    if not isinstance(values, list):
        raise BadRowError(f"{key!r} is {type(values).__name__}, expected a list")
    return values


def _questions_of_article(article: Row, place: str, level: str, split: str) -> list[Question]:
    """Returns the questions of an article of RACE."""
    if not isinstance(article, dict):
        raise BadRowError("not a JSON object")
    passage = nonempty_text(article, "article")
    keys = ["questions", "options", "answers"]
    if split == "test" and "answers" not in article:
        keys.remove("answers")
    columns = [_list(article, key) for key in keys]
    if len(set(map(len, columns))) > 1:
        counts = [f"{len(column)} {key}" for column, key in zip(columns, keys, strict=True)]
        raise BadRowError(f"{', '.join(counts)}: expected equal numbers")
    example_id = article.get("id", f"{level}/{place}")
    found = []
    for number, (question, options, *answers) in enumerate(zip(*columns, strict=True), 1):
        row = {
            "passage": passage,
            "question": question,
            "options": options,
            "label": answers[0] if answers else None,
            "id": example_id,
            "level": level,
        }
        try:
            found.append(parse_question(row, split, RACE_OPTIONS))
        except BadRowError as error:
            raise BadRowError(f"question {number}: {error}") from None
    return found


def _text_files(folder: str) -> list[str]:
    try:
        return files.expand_patterns([os.path.join(glob.escape(folder), "*.txt")], "--data_dir")
    except ValueError:  # no file matches
        return []


def _read_articles(folder: str) -> Iterator[tuple[str, Row | BadRowError]]:
    """Yields (place, JSON object) of each article, from the lines of `all.txt` or from files."""
    together = os.path.join(folder, ALL_IN_ONE)
    if files.is_file(together):
        for line, row in open_table(together, JSON_LINES):
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
    found: list[Question] = []
    for level, folder in _level_folders(data_dir, split, levels).items():
        parse = functools.partial(_questions_of_article, level=level, split=split)
        for _, questions in rows.parse_rows(folder, _read_articles(folder), parse):
            found += questions
    return _examples(os.path.join(data_dir, split), found)


def _examples(path: str, questions: list[Question]) -> Examples[Question]:
    return Examples(path, questions, all(question.label is not None for question in questions))


def read_questions(data_dir: str, split: str) -> Examples[Question]:
    """Reads a split of a custom task: `<split>.jsonl` or `.json`, with one JSON object per line.

    The keys of an object are:

    * `passage`: the text;
    * `question`: optional; may have a "_" to be replaced by the option;
    * `options`: two or more; the number may vary between questions;
    * `label`: index (starting at 0) or letter of the correct option; optional in test files;
    * `id`: optional;
    * `level`: optional; accuracy is also reported for each level.

    Args:
        data_dir: folder of the file.
        split: "train", "dev" or "test".

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: there are two files, or a bad question; the message names the file and the line.
    """
    path = split_files.find_file(data_dir, split, EXTENSIONS)

    def parse(row: Row, line: int) -> Question:
        return parse_question({"id": f"{split}-{line - 1}"} | object_of(row), split)

    table = open_table(path, JSON_LINES)
    parsed = rows.parse_rows(table.place, table, parse)
    return _examples(path, [question for _, question in parsed])


def read_data(
    settings: Settings, trained: RunFolder | None = None
) -> dict[str, Examples[Question]]:
    """Returns the questions of each split; see `read_race` and `read_questions`."""
    if settings.task_name == "choice":
        return {split: read_questions(settings.data_dir, split) for split in settings.splits}
    if settings.middle_only and settings.high_only:
        raise ValueError("--middle_only and --high_only exclude each other: set one of them")
    levels = LEVELS
    if settings.middle_only or settings.high_only:
        levels = ("middle",) if settings.middle_only else ("high",)
    return {split: read_race(settings.data_dir, split, levels) for split in settings.splits}

"""Reads multiple-choice questions: RACE in both of its formats, and rows of any data set.

The main function, `read_data`, reads the splits that a run uses.
"""

from __future__ import annotations

import dataclasses
import functools
import glob
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence

from absl import logging

from albert_tf import files
from albert_tf.finetuning import rows
from albert_tf.finetuning.examples import Examples, Unlabeled, is_none
from albert_tf.finetuning.race.answers import AnswerForms, LabeledOptions
from albert_tf.finetuning.race.questions import (
    USUAL_COLUMNS,
    Question,
    QuestionColumns,
    nonempty_text,
    object_of,
    parse_question,
    with_known_names,
)
from albert_tf.finetuning.race.settings import Settings
from albert_tf.finetuning.rows import BadRowError, Row, cell
from albert_tf.finetuning.splits import Layout, MissingSplitError, SplitTables, read_splits
from albert_tf.tables import JSON_LINES, Table, open_table
from albert_tf.tables.splits import has_splits
from albert_tf.tables.table import normalized

LEVELS: tuple[str, ...] = ("middle", "high")
ALL_IN_ONE = "all.txt"
RACE_OPTIONS = 4
EXTENSIONS = (".jsonl", ".json")


def _list(row: files.JsonObject, key: str) -> list[files.Json]:
    values = cell(row, key)
    if not isinstance(values, list):
        raise BadRowError(f"{key!r} is {type(values).__name__}, expected a list")
    return values


@dataclasses.dataclass
class _Split:
    """The questions of a split, as they are read.

    Attributes:
        path: the file or folder.
        name: "train", "dev" or "test"; in the first two, questions without a label are skipped.
        answers: the labels of `questions`.
        columns: the columns that flags name.
        questions: the questions, without labels.
        unlabeled: the questions without a label.
    """

    path: str
    name: str
    answers: LabeledOptions
    columns: QuestionColumns = USUAL_COLUMNS
    questions: list[Question] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        self.unlabeled = Unlabeled(self.path, self.name == "test")

    def add(self, parts: files.JsonObject, place: str, num_options: int | None = None) -> None:
        """Adds a question.

        Args:
            parts: its parts; see `with_known_names`.
            place: where it is, for messages.
            num_options: the number of options; None for any.

        Raises:
            BadRowError: these are not the parts of a question, or lack its label.
        """
        question, names = parse_question(parts, num_options)
        if "label" not in parts and self.name != "test":
            expected = " or ".join(map(repr, self.columns.label_names))
            raise BadRowError(f"no label: expected a column {expected}. Pass --label_column")
        label = parts.get("label")
        if is_none(label):
            self.unlabeled.add(place)
            if self.name != "test":
                return
            label = None
        self.answers.add(label, question.options, names, place)
        self.questions.append(question)

    def examples(self) -> Examples[Question]:
        """Returns the questions with their labels, when those of all splits have been read.

        Raises:
            ValueError: there is none, or it is unclear which options the labels mean.
        """
        labels = self.answers.indices()
        self.unlabeled.report(len(labels))
        found = [
            dataclasses.replace(question, label=label)
            for question, label in zip(self.questions, labels, strict=True)
        ]
        return Examples(self.path, found, None not in labels)


def _add_article(article: Row, place: str, level: str, split: _Split) -> None:
    """Adds the questions of an article of RACE to a split."""
    if not isinstance(article, dict):
        raise BadRowError("not a JSON object")
    passage = nonempty_text(article, "article")
    keys = ["questions", "options", "answers"]
    if split.name == "test" and "answers" not in article:
        keys.remove("answers")
    columns = [_list(article, key) for key in keys]
    if len(set(map(len, columns))) > 1:
        counts = [f"{len(column)} {key}" for column, key in zip(columns, keys, strict=True)]
        raise BadRowError(f"{', '.join(counts)}: expected equal numbers")
    example_id = article.get("id", f"{level}/{place}")
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
            split.add(row, f"{split.path}, {place}, question {number}", RACE_OPTIONS)
        except BadRowError as error:
            raise BadRowError(f"question {number}: {error}") from None


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
            yield os.path.basename(path), files.load_json(files.read_text(path))
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
    raise MissingSplitError(
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
    path = os.path.join(data_dir, split)
    found = _Split(path, split, LabeledOptions(path, takes_texts=False))
    for level, folder in _level_folders(data_dir, split, levels).items():
        add = functools.partial(_add_article, level=level, split=found)
        for _ in rows.parse_rows(folder, _read_articles(folder), add):
            pass
    return found.examples()


def _read_rows(
    tables: SplitTables,
    split: str,
    forms: AnswerForms,
    columns: QuestionColumns = USUAL_COLUMNS,
    configurations: Sequence[str] = (),
    level: str = "",
) -> _Split:
    """Reads a split from rows, such as those of `<split>.jsonl`.

    The columns of a row are the following, or their names in well-known data sets; see
    `question_columns`:

    * `passage`: the text; optional if there is a question;
    * `question`: optional; may have a "_" to be replaced by the option;
    * `options`: two or more; the number may vary between questions;
    * `label`: index, letter or text of the correct option; optional in test files;
    * `id`: optional;
    * `level`: optional; accuracy is also reported for each level.

    Args:
        tables: where the rows are.
        split: "train", "dev" or "test".
        forms: what the labels of all splits tell, to which those of the rows are added.
        columns: the columns that flags name.
        configurations: see `Layout`.
        level: the level of all questions, unless their rows have one.

    Raises:
        MissingSplitError: there are none.
        ValueError: there are two files, or a bad question; the message names the file and the line.
    """
    layout = Layout([split + ending for ending in EXTENSIONS], configurations=configurations)
    table, _ = tables.open(split, layout)
    forms.are_ids |= any(normalized(name) in columns.label_names for name in table.labels)
    found = _Split(table.path, split, LabeledOptions(table.path, forms=forms), columns)

    def add(row: Row, number: int) -> None:
        values = object_of(row)
        parts = with_known_names(values, columns)
        if not (found.questions or found.unlabeled):
            forms.first_column = columns.first_number(values)
            _log_parts(table.path, row, parts)
        known = {"level": level} if level else {}
        example_id = f"{split}-{next(count)}"
        found.add({"id": example_id} | known | parts, table.place(number))

    count = itertools.count()  # of rows; the numbers of lines differ between formats
    for _ in rows.parse_rows(table.place, table.objects(), add):
        pass
    return found


def read_questions(
    tables: SplitTables, split: str, configurations: Sequence[str] = (), level: str = ""
) -> Examples[Question]:
    """Reads a split of RACE from rows, whose labels are letters; see `_read_rows`.

    Raises:
        MissingSplitError: there are none.
        ValueError: as in `_read_rows`, or labels may mean different options; see `LabeledOptions`.
    """
    found = _read_rows(tables, split, AnswerForms(), configurations=configurations, level=level)
    return found.examples()


class _OwnQuestions:
    """The splits of questions of one's own, whose labels tell of each other what they mean.

    Args:
        settings: which splits are used, and their columns.
        tables: where the rows are.
    """

    def __init__(self, settings: Settings, tables: SplitTables) -> None:
        asked = {
            "passage": settings.passage_column,
            "question": settings.question_column,
            "label": settings.label_column,
        }
        named = {part: column for part, column in asked.items() if column}
        columns = QuestionColumns(named, settings.option_columns)
        forms = AnswerForms()
        self._found: dict[str, _Split | MissingSplitError] = {}
        divided = ["train", "dev"] if settings.dev_fraction else []
        for split in dict.fromkeys([*settings.splits, *divided]):
            try:
                self._found[split] = _read_rows(tables, split, forms, columns)
            except MissingSplitError as error:
                self._found[split] = error

    def read(self, split: str) -> Examples[Question]:
        """Returns the questions of a split.

        Raises:
            MissingSplitError: there are none.
            ValueError: labels may mean different options; see `LabeledOptions`.
        """
        found = self._found[split]
        if isinstance(found, MissingSplitError):
            raise found
        return found.examples()


def _log_parts(path: str, row: Row, parts: files.JsonObject) -> None:
    """Logs what is read of a file, by its first row."""
    logging.info(
        "%s: the first row has %s; reading %s",
        path,
        files.quote_all(row),
        ", ".join(parts) or "none",
    )


def _read_levels(tables: SplitTables, split: str, levels: Sequence[str]) -> Examples[Question]:
    """Reads a split of RACE, from its archive, or from the folders of the Hugging Face Hub."""
    if tables.data_dir is None or tables.given is not None:
        return _of_levels(read_questions(tables, split), levels)
    has_archive = any(
        _text_files(os.path.join(tables.data_dir, root, part, level))
        for root in ("RACE", "")
        for part in ("train", "dev", "test")
        for level in LEVELS
    )
    roots = [os.path.join(tables.data_dir, name) for name in ("RACE", "race", "")]
    found = next((root for root in roots if has_splits(root, (*LEVELS, "all"))), None)
    if has_archive or found is None:
        return read_race(tables.data_dir, split, levels)
    tables = SplitTables(found)
    folders = [os.path.join(found, level) for level in levels]
    if not all(map(files.is_directory, folders)):
        return _of_levels(read_questions(tables, split, ["all"]), levels)
    parts = [
        read_questions(SplitTables(folder), split, level=level)
        for folder, level in zip(folders, levels, strict=True)
    ]
    examples = [question for part in parts for question in part.examples]
    return Examples(found, examples, all(part.has_labels for part in parts))


def _of_levels(data: Examples[Question], levels: Sequence[str]) -> Examples[Question]:
    """Returns the questions of some levels, which the ids of the Hub tell, such as "high3.txt".

    Raises:
        ValueError: only one level is asked for, and a question does not tell its level.
    """
    found = []
    for question in data.examples:
        level = question.level or next(filter(question.example_id.startswith, LEVELS), "")
        if not level and set(levels) != set(LEVELS):
            raise ValueError(
                f"{data.path}: the question of id {files.quote(question.example_id)} has no "
                "level. Omit --middle_only and --high_only"
            )
        if level in levels or not level:
            found.append(dataclasses.replace(question, level=level))
    return dataclasses.replace(data, examples=found)


def _tables_of(settings: Settings, given: Mapping[str, Table] | None) -> SplitTables:
    """Returns where the rows are; Google's commands have files for RACE, which mean nothing."""
    tables = SplitTables.of(settings, settings.data_dir, given)
    if settings.task_name == "race" and settings.data_dir is not None:
        for split, path in tables.named.items():
            if path:
                logging.warning(
                    "--%s_file=%s is ignored: RACE is read from --data_dir", split, path
                )
        tables = SplitTables(settings.data_dir, given=given)
    return tables


def _refuse_columns(settings: Settings) -> None:
    """Raises ValueError if flags name columns, which RACE has its own of."""
    for name in ("passage_column", "question_column", "option_columns", "label_column"):
        if value := getattr(settings, name):
            shown = value if isinstance(value, str) else ",".join(value)
            raise ValueError(f"--{name}={shown}: RACE has known columns. Pass --task_name=choice")


def _text_of(question: Question) -> str:
    """Returns the text that questions share: the passage, or the question itself if it has none."""
    return question.passage or question.question


def read_data(
    settings: Settings, given: Mapping[str, Table] | None = None
) -> dict[str, Examples[Question]]:
    """Returns the questions of each split; see `read_race`, `read_questions` and `_OwnQuestions`.

    Args:
        settings: the task and its data.
        given: split → rows that are read instead of files; None to read the files.
    """
    if settings.middle_only and settings.high_only:
        raise ValueError("--middle_only and --high_only exclude each other: set one of them")
    levels = LEVELS
    if settings.middle_only or settings.high_only:
        levels = ("middle",) if settings.middle_only else ("high",)
    tables = _tables_of(settings, given)
    if settings.task_name == "choice":
        read = _OwnQuestions(settings, tables).read
    else:
        _refuse_columns(settings)
        read = functools.partial(_read_levels, tables, levels=levels)
    return read_splits(settings.splits, settings.dev_fraction, read, group_of=_text_of)

"""Reads multiple-choice questions: RACE in both of its formats, and rows of any data set.

The main function, `read_data`, reads the splits that a run uses.
"""

from __future__ import annotations

import dataclasses
import functools
import glob
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence

from absl import logging

from albert_tf import files
from albert_tf.finetuning import rows
from albert_tf.finetuning.examples import (
    Examples,
    Unlabeled,
    is_none,
)
from albert_tf.finetuning.race.answers import (
    AnswerForms,
    LabelParser,
)
from albert_tf.finetuning.race.collecting import (
    LabeledQuestion,
    QuestionCollector,
    QuestionReader,
    read_again,
)
from albert_tf.finetuning.race.questions import (
    USUAL_COLUMNS,
    Question,
    QuestionColumns,
    nonempty_text,
    object_of,
    parse_question,
    with_known_names,
)
from albert_tf.finetuning.race.sequences import OptionEncoder
from albert_tf.finetuning.race.settings import Settings
from albert_tf.finetuning.rows import BadRowError, Row, cell
from albert_tf.finetuning.splits import (
    DEV,
    TRAIN,
    Layout,
    MissingSplitError,
    SplitTables,
    read_splits,
)
from albert_tf.model.tokenization import Tokenizer
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


class _QuestionParser:
    """Converts the parts of questions of a file.

    Args:
        path: the file or folder.
        split: "train", "dev" or "test"; in the first two, questions without a label are skipped.
        labels: finds what their labels mean.
        columns: the columns that flags name.

    Attributes:
        split: the argument.
        count: the number of questions so far.
        unlabeled: the questions without a label.
    """

    def __init__(
        self,
        path: str,
        split: str,
        labels: LabelParser,
        columns: QuestionColumns = USUAL_COLUMNS,
    ) -> None:
        self.split = split
        self.count = 0
        self.unlabeled = Unlabeled(path, split == "test")
        self._labels = labels
        self._columns = columns

    def parse(
        self, parts: files.JsonObject, place: str, num_options: int | None = None
    ) -> list[LabeledQuestion]:
        """Returns a question, or none if it is skipped.

        Args:
            parts: its parts; see `with_known_names`.
            place: where it is, for messages.
            num_options: the number of options; None for any.

        Raises:
            BadRowError: these are not the parts of a question, or lack its label.
        """
        question, names = parse_question(parts, num_options)
        if "label" not in parts and self.split != "test":
            expected = " or ".join(map(repr, self._columns.label_names))
            raise BadRowError(f"no label: expected a column {expected}. Pass --label_column")
        label = parts.get("label")
        if is_none(label):
            self.unlabeled.add(place)
            if self.split != "test":
                return []
            label = None
        possible = self._labels.parse(label, question.options, names, place)
        self.count += 1
        return [(question, possible)]


def _parse_article(
    article: Row, place: str, folder: str, level: str, parser: _QuestionParser
) -> list[LabeledQuestion]:
    """Returns the questions of an article of RACE."""
    if not isinstance(article, dict):
        raise BadRowError("not a JSON object")
    passage = nonempty_text(article, "article")
    keys = ["questions", "options", "answers"]
    if parser.split == "test" and "answers" not in article:
        keys.remove("answers")
    columns = [_list(article, key) for key in keys]
    if len(set(map(len, columns))) > 1:
        counts = [f"{len(column)} {key}" for column, key in zip(columns, keys, strict=True)]
        raise BadRowError(f"{', '.join(counts)}: expected equal numbers")
    shared = {
        "passage": passage,
        "id": article.get("id", f"{level}/{place}"),
        "level": level,
    }
    found: list[LabeledQuestion] = []
    for number, (question, options, *answers) in enumerate(zip(*columns, strict=True), 1):
        parts = {"question": question, "options": options, "label": [*answers, None][0]}
        try:
            where = f"{folder}, {place}, question {number}"
            found += parser.parse(shared | parts, where, RACE_OPTIONS)
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


def open_race(data_dir: str, split: str, levels: Sequence[str] = LEVELS) -> QuestionReader:
    """Opens a split of RACE, which is read middle before high, as in Google's program.

    Both formats are supported: `<split>/<level>/all.txt` with one article per line, or the folders
    of the original distribution with one file per article, sorted by name.

    Args:
        data_dir: parent folder of `RACE/`, or that folder.
        split: "train", "dev" or "test".
        levels: the levels to read, from LEVELS.

    Returns:
        The reader, which raises ValueError if there is a bad article or question (invalid JSON, an
        empty article, missing options, an invalid answer); the message names the file, the article
        and the question.

    Raises:
        FileNotFoundError: there are no questions.
    """
    path = os.path.join(data_dir, split)
    labels = LabelParser(path, takes_texts=False)
    parser = _QuestionParser(path, split, labels)
    folders = _level_folders(data_dir, split, levels)

    def read() -> Iterator[LabeledQuestion]:
        for level, folder in folders.items():
            parse = functools.partial(_parse_article, folder=path, level=level, parser=parser)
            for _, questions in rows.parse_rows(folder, _read_articles(folder), parse):
                yield from questions
        parser.unlabeled.report(parser.count)

    return QuestionReader(path, read(), labels)


def open_questions(
    tables: SplitTables,
    split: str,
    forms: AnswerForms | None = None,
    columns: QuestionColumns = USUAL_COLUMNS,
    configurations: Sequence[str] = (),
    level: str = "",
) -> QuestionReader:
    """Opens a split of rows, such as those of `<split>.jsonl`.

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
        forms: what the labels of all splits tell, to which those of the rows are added; None if
            this split tells alone.
        columns: the columns that flags name.
        configurations: see `Layout`.
        level: the level of all questions, unless their rows have one.

    Returns:
        The reader, which raises ValueError if there is a bad question.

    Raises:
        MissingSplitError: there are none.
        ValueError: there are two files.
    """
    layout = Layout([split + ending for ending in EXTENSIONS], configurations=configurations)
    table, _ = tables.open(split, layout)
    forms = forms or AnswerForms()
    forms.are_ids |= any(normalized(name) in columns.label_names for name in table.labels)
    labels = LabelParser(table.path, forms=forms)
    parser = _QuestionParser(table.path, split, labels, columns)

    def parse(row: Row, number: int) -> list[LabeledQuestion]:
        values = object_of(row)
        parts = with_known_names(values, columns)
        if not (parser.count or parser.unlabeled):
            forms.first_column = columns.first_number(values)
            _log_parts(table.path, row, parts)
        known = {"level": level} if level else {}
        example_id = f"{split}-{next(count)}"
        return parser.parse({"id": example_id} | known | parts, table.place(number))

    count = itertools.count()  # of rows; the numbers of lines differ between formats

    def read() -> Iterator[LabeledQuestion]:
        for _, questions in rows.parse_rows(table.place, table.objects(), parse):
            yield from questions
        parser.unlabeled.report(parser.count)

    return QuestionReader(table.path, read(), labels)


def _log_parts(path: str, row: Row, parts: files.JsonObject) -> None:
    """Logs what is read of a file, by its first row."""
    logging.info(
        "%s: the first row has %s; reading %s",
        path,
        files.quote_all(row),
        ", ".join(parts) or "none",
    )


def _open_levels(tables: SplitTables, split: str, levels: Sequence[str]) -> QuestionReader:
    """Opens a split of RACE, from its archive, or from the folders of the Hugging Face Hub."""
    if tables.data_dir is None or tables.given is not None:
        return _of_levels(open_questions(tables, split), levels)
    has_archive = any(
        _text_files(os.path.join(tables.data_dir, root, part, level))
        for root in ("RACE", "")
        for part in ("train", "dev", "test")
        for level in LEVELS
    )
    roots = [os.path.join(tables.data_dir, name) for name in ("RACE", "race", "")]
    found = next((root for root in roots if has_splits(root, (*LEVELS, "all"))), None)
    if has_archive or found is None:
        return open_race(tables.data_dir, split, levels)
    tables = SplitTables(found)
    folders = [os.path.join(found, level) for level in levels]
    if not all(map(files.is_directory, folders)):
        return _of_levels(open_questions(tables, split, configurations=["all"]), levels)
    forms = AnswerForms()
    parts = [
        open_questions(SplitTables(folder), split, forms, level=level)
        for folder, level in zip(folders, levels, strict=True)
    ]
    questions = itertools.chain.from_iterable(part.questions for part in parts)
    return QuestionReader(found, questions, parts[-1].labels)


def _of_levels(reader: QuestionReader, levels: Sequence[str]) -> QuestionReader:
    """Returns the questions of some levels, which the ids of the Hub tell, such as "high3.txt".

    The reader raises ValueError if only one level is asked for, and a question does not tell its.
    """

    def chosen() -> Iterator[LabeledQuestion]:
        for question, possible in reader.questions:
            level = question.level or next(filter(question.example_id.startswith, LEVELS), "")
            if not level and set(levels) != set(LEVELS):
                raise ValueError(
                    f"{reader.path}: the question of id {files.quote(question.example_id)} has no "
                    "level. Omit --middle_only and --high_only"
                )
            if level in levels or not level:
                yield dataclasses.replace(question, level=level), possible

    return dataclasses.replace(reader, questions=chosen())


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


def _columns_in(settings: Settings) -> QuestionColumns:
    """Returns the columns that flags name."""
    asked = {
        "passage": settings.passage_column,
        "question": settings.question_column,
        "label": settings.label_column,
    }
    named = {part: column for part, column in asked.items() if column}
    return QuestionColumns(named, settings.option_columns)


def _refuse_columns(settings: Settings) -> None:
    """Raises ValueError if flags name columns, which RACE has its own of."""
    for name in ("passage_column", "question_column", "option_columns", "label_column"):
        if value := getattr(settings, name):
            shown = value if isinstance(value, str) else ",".join(value)
            raise ValueError(f"--{name}={shown}: RACE has known columns. Pass --task_name=choice")


def _text_of(question: Question) -> str:
    """Returns the text that questions share: the passage, or the question itself if it has none."""
    return question.passage or question.question


def _opener(settings: Settings, tables: SplitTables) -> Callable[[str], QuestionReader]:
    """Returns what opens the questions of a split.

    Raises:
        ValueError: settings exclude each other.
    """
    if settings.middle_only and settings.high_only:
        raise ValueError("--middle_only and --high_only exclude each other: set one of them")
    if settings.task_name == "choice":
        columns = _columns_in(settings)
        return functools.partial(open_questions, tables, forms=AnswerForms(), columns=columns)
    _refuse_columns(settings)
    levels = LEVELS
    if settings.middle_only or settings.high_only:
        levels = ("middle",) if settings.middle_only else ("high",)
    return functools.partial(_open_levels, tables, levels=levels)


def read_data(
    settings: Settings,
    given: Mapping[str, Table] | None = None,
    tokenizer: Tokenizer | None = None,
) -> dict[str, Examples[Question]]:
    """Returns the questions of each split; see `open_race` and `open_questions`.

    Args:
        settings: the task and its data.
        given: split → rows that are read instead of files; None to read the files.
        tokenizer: what tokenizes training data, whose texts are then forgotten; None to keep them.

    Raises:
        MissingSplitError: there are no questions of a split.
        ValueError: settings exclude each other, a question is bad, or labels may mean different
            options; see `LabelParser`.
    """
    open_split = _opener(settings, _tables_of(settings, given))

    def encoder_of(split: str) -> OptionEncoder | None:
        if split != TRAIN or tokenizer is None or not settings.do_train:
            return None
        return OptionEncoder(tokenizer, settings.max_seq_length, settings.max_qa_length)

    found: dict[str, QuestionCollector | MissingSplitError] = {}
    divided = [TRAIN, DEV] if settings.dev_fraction else []
    for split in dict.fromkeys([*settings.splits, *divided]):
        try:
            encoder = None if divided else encoder_of(split)
            found[split] = QuestionCollector(open_split(split), encoder)
        except MissingSplitError as error:
            found[split] = error

    def read(split: str) -> Examples[Question]:
        part = found.pop(split)
        if isinstance(part, MissingSplitError):
            raise part
        return part.examples()

    data = read_splits(settings.splits, settings.dev_fraction, read, group_of=_text_of)
    if divided and TRAIN in data:
        data[TRAIN] = QuestionCollector(read_again(data[TRAIN]), encoder_of(TRAIN)).examples()
    return data

"""Reads the questions of each split, from files in SQuAD's format or from rows.

The format of SQuAD 1.1 and 2.0, CMRC 2018 and DRCD is

    {"data": [{"paragraphs": [{"context": …, "qas": [{"id": …, "question": …,
               "answers": [{"text": …, "answer_start": …}], "is_impossible": …}]}]}]}

Other keys are ignored. Offsets are in characters (code points), starting at 0. A paragraph is in
memory at a time, besides the questions. Rows are as the Hub has SQuAD and data sets like it:

    {"id": "7", "context": "Anna lives in Rome.", "question": "Where does Anna live?",
     "answers": {"text": ["Rome"], "answer_start": [14]}}

Their answers may also be a list of `{"text": …, "answer_start": …}`. A question without any is
unanswerable, unless no question of the file has one, as in test data.
"""

from __future__ import annotations

import dataclasses
import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence

from absl import logging

from albert_tf import files
from albert_tf.finetuning import rows
from albert_tf.finetuning.columns import CONTEXT, GUID, QUESTION, Field, places_of
from albert_tf.finetuning.rows import BadRowError, NoGoodRowError, Row, check_text, text_cell
from albert_tf.finetuning.splits import (
    DEV,
    TRAIN,
    Layout,
    MissingSplitError,
    SplitFiles,
    SplitTables,
    read_splits,
)
from albert_tf.finetuning.squad.data import (
    Encode,
    TrainingEncoder,
    encoded,
    make_data,
    refuse_duplicate_ids,
)
from albert_tf.finetuning.squad.questions import SquadData, SquadExample
from albert_tf.finetuning.squad.settings import Settings
from albert_tf.model.tokenization import Tokenizer
from albert_tf.tables import JSON_LINES, Table, open_table
from albert_tf.tables.compression import ending_of, open_content
from albert_tf.tables.json_stream import JsonStream
from albert_tf.tables.splits import find_files
from albert_tf.tables.text_rows import is_whole_table

# What objects in the file must have; see `files.parse_json`.
_FILE = {"data": list}
_ARTICLE = {"paragraphs": list}
_PARAGRAPH = {"context": str, "qas": list}
_QUESTION = {
    "id": str | int,
    "question": str,
    "answers": list | None,
    "is_impossible": bool | None,
}


def read_squad(path: str, is_training: bool, encode: Encode | None = None) -> SquadData:
    """Reads a file of questions.

    Args:
        path: JSON file in SQuAD's format, maybe compressed.
        is_training: see `make_data`.
        encode: see `make_data`.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is not JSON or not in SQuAD's format (the message says what was
            expected where), or its questions cannot be used; see `make_data`.
    """
    root: files.JsonObject = {}
    with open_content(path) as (opened, _):
        questions = _questions(JsonStream(path, opened), root, is_training)

        def declares_version_2() -> bool:
            return str(root.get("version")).lower().startswith("v2")

        return make_data(path, questions, declares_version_2, is_training, encode)


def _questions(
    stream: JsonStream, root: files.JsonObject, is_training: bool
) -> Iterator[tuple[SquadExample, bool]]:
    """Yields each question, and whether its answers are known.

    Args:
        stream: the content of the file.
        root: gets what the file says besides the questions.
        is_training: see `read_squad`.
    """
    path = stream.path
    if not stream.begins("{"):
        raise NoGoodRowError(f"{path}: expected the JSON of SQuAD, which begins with {{")
    for number in _list_in_object(stream, "data", root):
        place = f"{path}: data[{number}]"
        if not stream.begins("{"):
            raise _not_an_object(place, stream.value())
        article: files.JsonObject = {}
        for inner_number in _list_in_object(stream, "paragraphs", article):
            inner = f"{place}: paragraphs[{inner_number}]"
            paragraph = _checked(stream.value(), inner, _PARAGRAPH)
            for innermost, qa in _objects(paragraph, "qas", inner, _QUESTION):
                yield _question(qa, paragraph["context"], innermost, is_training)
        files.check_fields(article, place, _ARTICLE)
    stream.require_end()
    files.check_fields(root, path, _FILE)


def _list_in_object(stream: JsonStream, key: str, others: files.JsonObject) -> Iterator[int]:
    """Steps through the items of a list in the object at the position.

    Args:
        stream: the content of the file.
        key: the name of the list.
        others: gets the other values of the object, and [] for the list.

    Yields:
        The number of the item, starting at 0, with the position of the stream at it.
    """
    for name in stream.object_keys():
        if name == key and stream.begins("["):
            others[name] = []
            for number, _ in enumerate(stream.array_items()):
                yield number
        else:
            others[name] = stream.value()


def _question(
    qa: files.JsonObject, context: str, place: str, is_training: bool
) -> tuple[SquadExample, bool]:
    is_impossible = bool(qa.get("is_impossible"))
    has_answers = qa.get("answers") is not None
    answers = list(_objects(qa, "answers", place, {"text": str})) if has_answers else []
    needs_answer = is_training and not is_impossible
    if needs_answer and not answers:
        raise ValueError(f'{place}: expected an answer or "is_impossible": true for training')
    start = None
    if answers:
        first_place, first = answers[0]
        files.check_fields(
            first, first_place, {"answer_start": int if needs_answer else int | None}
        )
        start = first.get("answer_start")
    example = SquadExample(
        qas_id=str(qa["id"]),
        question=qa["question"],
        context=context,
        answers=tuple(answer["text"] for _, answer in answers),
        answer_start=-1 if start is None else start,
        is_impossible=is_impossible,
    )
    return example, is_impossible or has_answers


def _objects(
    value: files.JsonObject, key: str, place: str, fields: files.JsonFields
) -> Iterator[tuple[str, files.JsonObject]]:
    """Yields (path in the file, entry) of the list `key`.

    Args:
        value: the JSON object with the list.
        key: its name.
        place: the path of `value`.
        fields: what each entry must have; see `files.parse_json`.

    Raises:
        ValueError: an entry has not; the message starts with its path.
    """
    for number, item in enumerate(value[key]):
        path = f"{place}: {key}[{number}]"
        yield path, _checked(item, path, fields)


def _checked(item: files.Json, place: str, fields: files.JsonFields) -> files.JsonObject:
    """Returns a value that is an object with certain fields, whose texts are valid Unicode."""
    if not isinstance(item, dict):
        raise _not_an_object(place, item)
    files.check_fields(item, place, fields)
    for name in fields:
        if isinstance(item.get(name), str):
            check_text(item[name], f"{place}: {name!r}")
    return item


def _not_an_object(place: str, item: files.Json) -> ValueError:
    return ValueError(f"{place}: expected a JSON object, got {files.quote(item)}")


ANSWERS = Field("answers", ("answers",))
IMPOSSIBLE = Field("mark", ("is_impossible",))
_TEXT_ROWS = (".jsonl", ".csv", ".tsv")
_MAX_LINE = 1 << 22  # bytes of a question with its context; a line of SQuAD's format is longer


def read_rows(table: Table, is_training: bool, encode: Encode | None = None) -> SquadData:
    """Reads questions.

    Args:
        table: the rows.
        is_training: see `make_data`.
        encode: see `make_data`.

    Raises:
        ValueError: there is no question, or a bad row; the message names the file and the rows.
    """
    count = itertools.count(1)  # of rows; the numbers of lines differ between formats

    def parse(row: Row, _: int) -> SquadExample:
        return _parse_row(row, next(count))

    parsed = rows.parse_rows(table.place, table.objects(), parse)
    found: Iterable[SquadExample] = (example for _, example in parsed)
    has_answers = is_training
    if not is_training:
        found = list(found)
        has_answers = any(example.answers or example.is_impossible for example in found)
    questions = _with_answers(table.path, found) if has_answers else found
    return make_data(
        table.path,
        ((example, has_answers) for example in questions),
        lambda: False,
        is_training,
        encode,
    )


def _with_answers(path: str, examples: Iterable[SquadExample]) -> Iterator[SquadExample]:
    """Yields questions with known answers, of which those without an answer are unanswerable.

    Raises:
        ValueError: none has an answer or is marked as unanswerable.
    """
    without = []
    has_answers = False
    for example in examples:
        if example.answers or example.is_impossible:
            has_answers = True
        else:
            without.append(example.qas_id)
        yield dataclasses.replace(example, is_impossible=not example.answers)
    if without and not has_answers:
        raise ValueError(f"{path}: expected answers for training in a column 'answers', found none")
    if without:
        logging.info(
            "%s: %d questions without an answer are unanswerable, as in SQuAD 2.0: %s",
            *(path, len(without), rows.abbreviate(without)),
        )


def _parse_row(row: Row, number: int) -> SquadExample:
    """Returns the question of a row; `is_impossible` is what the row says, or False."""
    if not isinstance(row, dict):
        raise BadRowError("expected columns with names: id, question, context and answers")
    places = places_of(row)
    question, context = (text_cell(row, field.of(row)) for field in (QUESTION, CONTEXT))
    guid = GUID.find(places)
    qas_id = str(number) if guid is None else check_text(str(row[str(guid)]), "the id")
    column = ANSWERS.find(places)
    answers = [] if column is None else _answers(row[str(column)])
    impossible = IMPOSSIBLE.find(places)
    is_impossible = impossible is not None and bool(row[str(impossible)])
    if is_impossible:
        answers = []
    return SquadExample(
        qas_id=qas_id,
        question=question,
        context=sys.intern(context),  # held once for all its questions
        answers=tuple(text for text, _ in answers),
        answer_start=answers[0][1] if answers else -1,
        is_impossible=is_impossible,
    )


def _answers(value: object) -> list[tuple[str, int]]:
    """Returns the text and the offset of each answer, -1 if it is not known.

    Raises:
        BadRowError: the value is neither of the two forms.
    """
    pairs: list[tuple[object, object]]
    if value is None:
        pairs = []
    elif isinstance(value, dict) and "text" in value:
        texts = _listed(value["text"])
        starts = _listed(value.get("answer_start")) or [None] * len(texts)
        if len(texts) != len(starts):
            raise BadRowError(f"{len(texts)} answers and {len(starts)} places: expected as many")
        pairs = list(zip(texts, starts, strict=True))
    elif isinstance(value, list) and all(isinstance(answer, dict) for answer in value):
        pairs = [(answer.get("text"), answer.get("answer_start")) for answer in value]
    else:
        raise BadRowError(
            f"answers {files.quote(value)}: expected text and answer_start, in Parquet, Arrow or "
            "JSON"
        )
    found = []
    for text, start in pairs:
        if isinstance(start, bool) or not isinstance(start, int | None):
            raise BadRowError(f"answer_start {files.quote(start)}: expected a whole number")
        found.append((check_text(text, "the text of an answer"), -1 if start is None else start))
    return found


def _listed(value: object) -> list[object]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def open_rows(paths: Sequence[str], form: str = "") -> Table | None:
    """Returns the rows of files of questions; None if it is a file in SQuAD's own format.

    Args:
        paths: the files.
        form: the format of their text that a card says; "" for that of their names.

    Raises:
        FileNotFoundError, ValueError: a file does not exist, or is damaged.
    """
    if form:
        return open_table(paths, form)
    table = open_table(paths, JSON_LINES if _has_json(paths[0]) else "")
    is_text = table.unit == "line" and ending_of(paths[0]) not in _TEXT_ROWS
    return table if len(paths) > 1 or not is_text or _has_json_lines(paths[0]) else None


def _has_json(path: str) -> bool:
    return ending_of(path) not in (".csv", ".tsv")


def _has_json_lines(path: str) -> bool:
    """Returns whether the first line of a file is the JSON object of a question, or a table."""
    with open_content(path) as (stream, _):
        first, line_feed, _ = stream.read(_MAX_LINE).partition(b"\n")
    try:
        row = files.load_json(first)
    except ValueError:
        return False
    is_question = isinstance(row, dict) and "data" not in row and bool(line_feed)
    return is_question or is_whole_table(row)


_LAYOUT = Layout(configurations=("plain_text", "squad_v2"))  # of SQuAD 1.1 and 2.0 on the Hub


def read_data(
    settings: Settings,
    given: Mapping[str, Table] | None = None,
    tokenizer: Tokenizer | None = None,
) -> dict[str, SquadData]:
    """Returns the questions of each split; "dev" and "test" are both `predict_file`.

    With `dev_fraction`, "dev" is a part of the training questions: all those of some contexts. Then
    "test" is the `predict_file` if there is one, which must have no answers.

    Args:
        settings: the files, or their folder.
        given: split → rows that are read instead of files; None to read the files.
        tokenizer: what tokenizes training data, whose texts are then forgotten; None to keep them.

    Raises:
        ValueError, OSError: a file is not specified or invalid, or has no answers to evaluate on.
    """
    answered = settings.do_eval or settings.do_predict
    encode = (
        TrainingEncoder(tokenizer, settings)
        if tokenizer is not None and settings.do_train
        else None
    )
    unlabeled: list[SquadData] = []

    def read(split: str) -> SquadData:
        encodes = split == TRAIN and not settings.dev_fraction
        data = _read(settings, split, given, encode if encodes else None)
        if split == DEV and settings.dev_fraction and not data.has_labels:
            unlabeled.append(data)
            raise MissingSplitError(f"{data.path} has no answers")
        return data

    splits = [*([TRAIN] if settings.do_train else []), *([DEV] if answered else [])]
    data = read_splits(splits, settings.dev_fraction, read, group_of=_context_of)
    if encode is not None and settings.dev_fraction:
        data[TRAIN] = encoded(data[TRAIN], encode)
    if answered:
        data[DEV] = _checked_dev(settings, data[DEV])
        data["test"] = unlabeled[0] if unlabeled else data[DEV]
    return data


def _context_of(example: SquadExample) -> str:
    return example.context


def _checked_dev(settings: Settings, questions: SquadData) -> SquadData:
    """Returns the questions to evaluate on, if that is possible."""
    if settings.do_eval and not questions.has_labels:
        raise ValueError(f"--do_eval: {questions.path} has no answers to evaluate on")
    if settings.dev_fraction:  # in training data, ids may occur twice
        refuse_duplicate_ids(questions.path, questions.examples)
    if settings.mixed_segmentation is not None:
        return dataclasses.replace(questions, is_chinese=settings.mixed_segmentation)
    return questions


def _read(
    settings: Settings, split: str, given: Mapping[str, Table] | None, encode: Encode | None
) -> SquadData:
    """Returns the questions of a split.

    Args:
        settings: the files, or their folder.
        split: "train" or "dev".
        given: see `read_data`.
        encode: see `make_data`.
    """
    is_training = split == TRAIN
    if given is not None:
        table, _ = SplitTables(given=given).open(split, _LAYOUT)
        return read_rows(table, is_training, encode)
    flag = "train_file" if is_training else "predict_file"
    named = settings.train_file if is_training else settings.predict_file
    if named:
        source = SplitFiles(find_files(named, f"--{flag}"))
    elif settings.data_dir:
        source = SplitTables(settings.data_dir).find(split, _LAYOUT)
    else:
        phase = "do_train" if is_training else "do_predict" if settings.do_predict else "do_eval"
        raise MissingSplitError(f"--{phase} requires --{flag}, a file of questions, or --data_dir")
    rows_of_files = open_rows(source.paths, source.form)
    if rows_of_files is None:
        return read_squad(source.paths[0], is_training, encode)
    return read_rows(rows_of_files, is_training, encode)

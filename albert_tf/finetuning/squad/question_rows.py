"""Reads questions from rows, as the Hub has SQuAD and data sets like it.

    {"id": "7", "context": "Anna lives in Rome.", "question": "Where does Anna live?",
     "answers": {"text": ["Rome"], "answer_start": [14]}}

The answers may also be a list of `{"text": …, "answer_start": …}`. A question without any is
unanswerable, unless no question of the file has one, as in test data.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence

from absl import logging

from albert_tf import files
from albert_tf.finetuning import rows
from albert_tf.finetuning.cells import check_text
from albert_tf.finetuning.columns import CONTEXT, GUID, QUESTION, find_column, places_of
from albert_tf.finetuning.rows import BadRowError, Row
from albert_tf.finetuning.squad.questions import SquadData, SquadExample, make_data
from albert_tf.finetuning.texts import named_text
from albert_tf.tables import JSON_LINES, Table, open_table
from albert_tf.tables.compression import open_content
from albert_tf.tables.table_files import ending_of

ANSWERS = ("answers",)
IMPOSSIBLE = ("is_impossible",)
_TEXT_ROWS = (".jsonl", ".csv", ".tsv")
_MAX_LINE = 1 << 22  # bytes of a question with its context; a line of SQuAD's format is longer


def read_rows(table: Table, is_training: bool) -> SquadData:
    """Reads questions.

    Args:
        table: the rows.
        is_training: see `make_data`.

    Raises:
        ValueError: there is no question, or a bad row; the message names the file and the rows.
    """
    found = [example for _, example in rows.parse_rows(table.place, table.objects(), _parse_row)]
    if not found:
        raise ValueError(f"{table.path}: contains no question")
    has_answers = any(example.answers or example.is_impossible for example in found)
    if is_training and not has_answers:
        raise ValueError(
            f"{table.path}: expected answers for training in a column 'answers', found none"
        )
    without = [x.qas_id for x in found if not (x.answers or x.is_impossible)]
    if has_answers and without:
        logging.info(
            "%s: %d questions without an answer are unanswerable, as in SQuAD 2.0: %s",
            table.path,
            len(without),
            rows.abbreviate(without),
        )
        found = [
            dataclasses.replace(example, is_impossible=not example.answers) for example in found
        ]
    return make_data(
        table.path,
        [(example, has_answers) for example in found],
        declares_version_2=False,
        is_training=is_training,
    )


def _parse_row(row: Row, number: int) -> SquadExample:
    """Returns the question of a row; `is_impossible` is what the row says, or False."""
    if not isinstance(row, dict):
        raise BadRowError("expected columns with names: id, question, context and answers")
    places = places_of(row)
    question, context = named_text(row, QUESTION), named_text(row, CONTEXT)
    guid = find_column(GUID, places)
    qas_id = str(number) if guid is None else check_text(str(row[str(guid)]), "the id")
    column = find_column(ANSWERS, places)
    answers = [] if column is None else _answers(row[str(column)])
    impossible = find_column(IMPOSSIBLE, places)
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


def open_rows(paths: Sequence[str]) -> Table | None:
    """Returns the rows of files of questions; None if it is a file in SQuAD's own format.

    Args:
        paths: the files.

    Raises:
        FileNotFoundError, ValueError: a file does not exist, or is damaged.
    """
    table = open_table(paths, JSON_LINES if _has_json(paths[0]) else "")
    is_text = table.unit == "line" and ending_of(paths[0]) not in _TEXT_ROWS
    return table if len(paths) > 1 or not is_text or _has_json_lines(paths[0]) else None


def _has_json(path: str) -> bool:
    return ending_of(path) not in (".csv", ".tsv")


def _has_json_lines(path: str) -> bool:
    """Returns whether the first line of a file is the JSON object of a question."""
    with open_content(path) as (stream, _):
        first, line_feed, _ = stream.read(_MAX_LINE).partition(b"\n")
    if not line_feed:
        return False
    try:
        row = files.load_json(first)
    except ValueError:
        return False
    return isinstance(row, dict) and "data" not in row

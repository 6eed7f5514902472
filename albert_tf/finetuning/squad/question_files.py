"""Reads files in SQuAD's format: SQuAD 1.1 and 2.0, CMRC 2018, DRCD.

    {"data": [{"paragraphs": [{"context": …, "qas": [{"id": …, "question": …,
               "answers": [{"text": …, "answer_start": …}], "is_impossible": …}]}]}]}

Other keys are ignored. Offsets are in characters (code points), starting at 0.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import random
import re
from collections.abc import Iterator, Sequence

from absl import logging

from albert_tf import files
from albert_tf.finetuning.cells import check_text, text_cell
from albert_tf.finetuning.columns import CONTEXT, QUESTION
from albert_tf.finetuning.rows import BadRowError, Row, abbreviate
from albert_tf.finetuning.texts import named_text, unnamed_texts

SHUFFLE_SEED = 12345  # as in Google's programs
MAX_NAMED = 5  # question ids in a warning
_HAN = re.compile("[\u4e00-\u9fff]")
# What objects in the file must have; see `files.parse_json`.
_PARAGRAPH = {"context": str, "qas": list}
_QUESTION = {
    "id": str | int,
    "question": str,
    "answers": list | None,
    "is_impossible": bool | None,
}


@dataclasses.dataclass(frozen=True)
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

    qas_id: str
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
class SquadData:
    """The questions of a file.

    Attributes:
        path: the file.
        checksum: SHA-256 of the file, or of the questions in its rows, in hexadecimal.
        examples: the questions, in file order.
        version_2: whether there are unanswerable questions, or the file declares version v2.
        has_answers: whether every question has answers or is marked as unanswerable, so that
            predictions can be evaluated.
        is_chinese: whether most answers contain Chinese characters, or most questions if there are
            no answers.
    """

    path: str
    checksum: str
    examples: tuple[SquadExample, ...]
    version_2: bool
    has_answers: bool
    is_chinese: bool


def read_squad(path: str, is_training: bool) -> SquadData:
    """Reads a file of questions.

    Args:
        path: JSON file in SQuAD's format.
        is_training: whether every question must have an answer or be marked as `is_impossible`. The
            first answer is used, and questions whose answer is not at its offset are skipped with a
            warning. If False, answers may be missing, and all questions are kept.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is not JSON or not in SQuAD's format (the message says what was
            expected where), or has no question. For training, it has no usable question; otherwise,
            it has duplicate ids.
    """
    text = files.read_text(path)
    root = files.parse_json(text, path, {"data": list})
    questions = list(_questions(root, path, is_training))
    if not questions:
        raise ValueError(f"{path}: contains no question")
    return make_data(
        path,
        hashlib.sha256(text.encode("utf-8")).hexdigest(),
        questions,
        str(root.get("version")).lower().startswith("v2"),
        is_training,
    )


def make_data(
    path: str,
    checksum: str,
    questions: Sequence[tuple[SquadExample, bool]],
    declares_version_2: bool,
    is_training: bool,
) -> SquadData:
    """Returns the questions of a file, after checks of them all.

    Args:
        path: the file.
        checksum: identifies its content.
        questions: one or more questions, and whether the answers of each are known.
        declares_version_2: whether the file says that questions may be unanswerable.
        is_training: see `read_squad`.

    Raises:
        ValueError: see `read_squad`.
    """
    examples = [example for example, _ in questions]
    _check_ids(path, examples, is_training)
    version_2 = any(e.is_impossible for e in examples) or declares_version_2
    texts = [answer for e in examples for answer in e.answers] or [e.question for e in examples]
    return SquadData(
        path=path,
        checksum=checksum,
        examples=tuple(_keep_usable(path, examples) if is_training else examples),
        version_2=version_2,
        # In SQuAD 1.1, either all questions have answers or the answers are unknown.
        has_answers=all(is_known and bool(e.answers or version_2) for e, is_known in questions),
        is_chinese=2 * sum(bool(_HAN.search(text)) for text in texts) > len(texts),
    )


def shuffled(examples: Sequence[SquadExample]) -> list[SquadExample]:
    """Returns the questions in the order in which Google's programs train on them."""
    result = list(examples)
    random.Random(SHUFFLE_SEED).shuffle(result)
    return result


def _questions(
    root: files.JsonObject, path: str, is_training: bool
) -> Iterator[tuple[SquadExample, bool]]:
    """Yields each question, and whether its answers are known."""
    for place, article in _objects(root, "data", path, {"paragraphs": list}):
        for inner, paragraph in _objects(article, "paragraphs", place, _PARAGRAPH):
            for innermost, qa in _objects(paragraph, "qas", inner, _QUESTION):
                yield _question(qa, paragraph["context"], innermost, is_training)


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
        if not isinstance(item, dict):
            raise ValueError(f"{path}: expected a JSON object, got {files.quote(item)}")
        files.check_fields(item, path, fields)
        for name in fields:
            if isinstance(item.get(name), str):
                check_text(item[name], f"{path}: {name!r}")
        yield path, item


def _check_ids(path: str, examples: list[SquadExample], is_training: bool) -> None:
    counts = collections.Counter(example.qas_id for example in examples)
    twice = [qas_id for qas_id, count in counts.items() if count > 1]
    if twice and not is_training:
        raise ValueError(
            f"{path}: predictions are stored by id, but {_name(twice)} have duplicate ids. Give "
            "each question a unique id."
        )
    if twice:
        logging.warning("%s: duplicate ids: %s", path, _name(twice))


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
        found = named_text(row, QUESTION), named_text(row, CONTEXT)
    else:
        cells = unnamed_texts(row, 2)
        found = text_cell(cells, 0), text_cell(cells, 1)
    for name, text in zip(("question", "context"), found, strict=True):
        if not text.strip():
            raise BadRowError(f"the {name} is empty")
    return found

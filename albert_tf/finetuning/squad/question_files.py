"""Reads files in SQuAD's format: SQuAD 1.1 and 2.0, CMRC 2018, DRCD.

    {"data": [{"paragraphs": [{"context": …, "qas": [{"id": …, "question": …,
               "answers": [{"text": …, "answer_start": …}], "is_impossible": …}]}]}]}

Other keys are ignored. Offsets are in characters (code points), starting at 0. A paragraph is in
memory at a time, besides the questions.
"""

from __future__ import annotations

from collections.abc import Iterator

from albert_tf import files
from albert_tf.finetuning.cells import check_text
from albert_tf.finetuning.squad.questions import SquadData, SquadExample, make_data
from albert_tf.tables.compression import open_content
from albert_tf.tables.json_stream import JsonStream

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


def read_squad(path: str, is_training: bool) -> SquadData:
    """Reads a file of questions.

    Args:
        path: JSON file in SQuAD's format, maybe compressed.
        is_training: see `make_data`.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is not JSON or not in SQuAD's format (the message says what was
            expected where), or its questions cannot be used; see `make_data`.
    """
    root: files.JsonObject = {}
    with open_content(path) as (opened, _):
        questions = list(_questions(JsonStream(path, opened), root, is_training))
    return make_data(
        path, questions, str(root.get("version")).lower().startswith("v2"), is_training
    )


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

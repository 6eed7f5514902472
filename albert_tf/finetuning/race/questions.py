"""Multiple-choice questions, and how they are parsed from JSON objects with the names of data sets.

* the passage: `passage`, `article` (RACE), `context` (Cosmos QA, C3), `ctx` (HellaSwag),
  `startphrase` (SWAG), `premise` (COPA), `dialogue` (DREAM);
* the question: `question`, `question_stem` (OpenBookQA), `goal` (PIQA), `sentence` (WinoGrande);
* the options: `options`, `choices`, `choice`, `endings`, or a column for each, such as `ending0` or
  `answerA`;
* the label: `label`, `answer`, `answerKey`;
* the id: `id`, `example_id`, `idx`, `ind`, `guid`.

Flags name the columns of data sets with other names; see `QuestionColumns`.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Mapping, Sequence

from albert_tf import files
from albert_tf.finetuning.columns import Field, places_of
from albert_tf.finetuning.rows import (
    BadRowError,
    Column,
    Row,
    cell,
    check_name,
    check_text,
    text_cell,
)
from albert_tf.tables.table import normalized


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """A question with its options, mostly about a passage.

    Attributes:
        example_id: id of the passage, shared by all its questions.
        passage: the text; "" if the question is about none.
        question: the question, which may have a "_" to be replaced by the option, or be "" if there
            is a passage.
        options: two or more options.
        label: index of the correct option, starting at 0; None if unknown.
        level: part of the data set, such as "middle"; or "".
    """

    example_id: str = dataclasses.field(repr=False)
    passage: str
    question: str
    options: tuple[str, ...]
    label: int | None
    level: str = ""


def nonempty_text(row: files.JsonObject, key: str) -> str:
    """Returns the text of a key.

    Raises:
        BadRowError: there is no such key, or it has no text, or only spaces.
    """
    text = text_cell(row, key)
    if not text.strip():
        raise BadRowError(f"{key!r} is empty")
    return text


def parse_question(
    parts: files.JsonObject, num_options: int | None = None
) -> tuple[Question, tuple[str, ...]]:
    """Returns a question, without its label, and the names of its options.

    Args:
        parts: its parts; see `with_known_names`.
        num_options: the number of options; None for any.

    Raises:
        BadRowError: these are not the parts of a question.
    """
    options, names = parse_options(cell(parts, "options"), num_options)
    question = text_cell(parts, "question") if "question" in parts else ""
    passage = ""
    if "passage" in parts or not question:
        passage = sys.intern(nonempty_text(parts, "passage"))  # held once for all its questions
    example_id = check_text(str(parts.get("id", "")), "'id'")
    level = str(parts.get("level", ""))
    if level:
        level = check_name(level, "'level'")
    return Question(example_id, passage, question, options, None, level), names


def parse_choice(row: Row) -> Question:
    """Returns the question of a row with usual names, without its label."""
    return parse_question(with_known_names(object_of(row)))[0]


def object_of(row: Row) -> files.JsonObject:
    """Returns the JSON object that a row is.

    Raises:
        BadRowError: the row has cells.
    """
    if not isinstance(row, dict):
        raise BadRowError("expected a JSON object with passage, question and options")
    return row


# The part of a question → its names in data sets, in lower case.
LABEL = Field("label", ("label", "answer", "answerkey"), flag="label_column")
OPTIONS = Field("options", ("options", "choices", "choice", "endings"), flag="option_columns")
FIELDS = (
    Field(
        "passage",
        ("passage", "article", "context", "ctx", "startphrase", "premise", "dialogue"),
        flag="passage_column",
    ),
    Field("question", ("question", "question_stem", "goal", "sentence"), flag="question_column"),
    OPTIONS,
    LABEL,
    Field("id", ("id", "example_id", "idx", "ind", "guid"), takes_first=True),
    Field("level", ("level",)),
)
# Columns of single options, which are numbered or have letters.
_NUMBERED = re.compile("(option|choice|ending|answer|sol)_?([0-9]+|[a-z])")
_LAST_NUMBER = re.compile("(?:.*[^0-9])?([0-9]+)")


@dataclasses.dataclass(frozen=True)
class QuestionColumns:
    """The columns that flags name, instead of the usual ones.

    Attributes:
        asked: name of a part of a question → name of its column, for those that are named.
        options: the column with all options, or the columns with one each; () if not named.
    """

    asked: Mapping[str, str] = dataclasses.field(default_factory=dict)
    options: tuple[str, ...] = ()

    @property
    def label_names(self) -> tuple[str, ...]:
        """The names that the column of the label may have, in lower case."""
        asked = self.asked.get(LABEL.name)
        return LABEL.names if asked is None else (normalized(asked),)

    def options_of(self, places: Mapping[str, Column]) -> list[Column]:
        """Returns the column with all options, or those with one each, in their order.

        Raises:
            BadRowError: there are none, or two columns or groups of them may be meant.
        """
        if self.options:
            missing = [name for name in self.options if normalized(name) not in places]
            if missing:
                raise BadRowError(
                    f"no column {files.quote_all(missing)} among {files.quote_all(places)}, which "
                    "--option_columns names"
                )
            return [places[normalized(name)] for name in self.options]
        found = OPTIONS.find(places)
        columns = _numbered_columns(places) if found is None else [found]
        if not columns:
            raise BadRowError(
                f"no options among {files.quote_all(places)}: expected a column "
                f"{' or '.join(map(repr, OPTIONS.names))}, or one for each option, such as "
                "'option0'; --option_columns takes other names"
            )
        return columns

    def first_number(self, row: files.JsonObject) -> int | None:
        """Returns the number of the first column with an option, 0 or 1; None if it has none.

        Raises:
            BadRowError: see `options_of`.
        """
        columns = self.options_of(places_of(_unnested(row)))
        found = [_LAST_NUMBER.fullmatch(str(column).strip()) for column in columns]
        numbers = [int(match[1]) for match in found if match]
        for first in (0, 1):
            if len(columns) > 1 and numbers == list(range(first, first + len(columns))):
                return first
        return None


USUAL_COLUMNS = QuestionColumns()


def with_known_names(
    row: files.JsonObject, columns: QuestionColumns = USUAL_COLUMNS
) -> files.JsonObject:
    """Returns the parts of a question: the keys are the names of the FIELDS that the row has.

    Options that have a column each are a list.

    Args:
        row: the row.
        columns: the columns that flags name.

    Raises:
        BadRowError: two columns might be the same part, there are no options, or no column that a
            flag names.
    """
    values = _unnested(row)
    places = places_of(values)
    found: files.JsonObject = {}
    for field in FIELDS:
        if field is OPTIONS:
            found[field.name] = _options(values, columns.options_of(places))
            continue
        asked = columns.asked.get(field.name)
        column = field.find(places, asked)
        if column is not None:
            found[field.name] = values[str(column)]
        elif asked is not None and field is not LABEL:  # test data have no labels
            raise field.missing(values, asked)
    return found


def _options(row: files.JsonObject, columns: Sequence[Column]) -> files.Json:
    """Returns the value of the column with all options, or a list of those that have one each."""
    options = [row[str(column)] for column in columns]
    while len(options) > 2 and (options[-1] is None or options[-1] == ""):  # it has fewer
        options.pop()
    return options if len(columns) > 1 else options[0]


def _unnested(row: files.JsonObject) -> files.JsonObject:
    """Returns the row with the text and the options of the question as parts of their own.

    In the authors' files of ARC and CommonsenseQA, they are `stem` and `choices` in `question`.
    """
    question = row.get("question")
    if not isinstance(question, dict) or "stem" not in question:
        return row
    return {**row, "question": question["stem"], "choices": question.get("choices")}


def _numbered_columns(places: Mapping[str, Column]) -> list[Column]:
    """Returns the columns of single options, in the order of their names; [] if there are none."""
    groups: dict[str, dict[str, Column]] = {}
    for name, column in places.items():
        matched = _NUMBERED.fullmatch(name)
        if matched:
            groups.setdefault(matched[1], {})[matched[2].zfill(2)] = column
    groups = {name: columns for name, columns in groups.items() if len(columns) > 1}
    if len(groups) > 1:
        raise BadRowError(f"the columns of {' and of '.join(groups)} may be the options: keep one")
    return [columns[number] for columns in groups.values() for number in sorted(columns)]


def parse_options(
    values: object, num_options: int | None = None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the texts of the options, and their letters or numbers if the data has them.

    Args:
        values: a list of texts; or, as in ARC and CommonsenseQA, `{"label": ["A", …], "text":
            […]}` or a list of `{"label": "A", "text": …}`; or an object of letters with texts.
        num_options: the number of options; None for any.

    Raises:
        BadRowError: there are no such options, fewer than two, or one is empty.
    """
    texts: object = values
    names: object = ()
    if isinstance(values, list) and values and all(isinstance(x, dict) for x in values):
        texts = [option.get("text") for option in values]
        names = [option.get("label") for option in values]
    elif isinstance(values, dict) and "text" in values:
        texts = values["text"]
        names = values.get("label", ())
    elif isinstance(values, dict):
        texts = list(values.values())
        names = list(values)
    if not isinstance(texts, list) or len(texts) < 2:
        raise BadRowError(f"options {files.quote(values)}: expected a list of two or more")
    for number, text in enumerate(texts, 1):
        if not check_text(text, f"option {number}").strip():
            raise BadRowError(f"option {number} of {len(texts)} is empty")
    if num_options not in (None, len(texts)):
        raise BadRowError(f"{len(texts)} options, expected {num_options}")
    if not isinstance(names, (list, tuple)) or len(names) not in (0, len(texts)):
        raise BadRowError(f"options {files.quote(values)}: expected a label for each")
    return tuple(texts), tuple(map(str, names))

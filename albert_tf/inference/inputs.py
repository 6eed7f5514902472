"""Reads the rows to predict, of which only a block is in memory, and finds their columns.

All rows are parsed once before TensorFlow is imported, so that mistakes are reported early, and
again when they are predicted. Columns are those of the training, or have usual names.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import math
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from albert_tf import files
from albert_tf.finetuning import rows
from albert_tf.finetuning.columns import (
    MAX_ROWS,
    NAMES_OF_INPUTS,
    PAIRS,
    TEXT_A,
    TEXT_B,
    UnusedTexts,
    is_header,
    named_rows,
    parse_pair,
    places_of,
)
from albert_tf.finetuning.examples import blocks_of
from albert_tf.finetuning.race import questions as race
from albert_tf.finetuning.registry import TaskSpec
from albert_tf.finetuning.rows import BadRowError, Row
from albert_tf.inference.settings import STANDARD_INPUT, TEXT, Settings
from albert_tf.tables import COMMAS, TABS, NumberedRow, Table, open_table
from albert_tf.tables.table import normalized

# Settings of a training that name a column → the name that every task knows it by.
_OF_TRAINING = {"text_a_column": "text_a", "text_b_column": "text_b"}
_OF_TRAINING |= {"passage_column": "passage", "question_column": "question"}
_OF_TRAINING |= {"option_columns": "options"}
_ROWS_TO_COMPARE = 20  # the first ones of a file
_NAME = re.compile(r"[A-Za-z_][\w.-]{0,40}", re.ASCII)  # what most columns are called


@dataclasses.dataclass(frozen=True)
class InputColumns:
    """What is known of the columns of a file to predict.

    Attributes:
        trained: name of a column of the training data, in lower case → the usual name.
        expected: usual names to advise where no name is known; () accepts any first row as a text.
    """

    trained: Mapping[str, str] = dataclasses.field(default_factory=dict)
    expected: Sequence[str] = ()

    @classmethod
    def of_training(
        cls, settings: Mapping[str, files.Json], expected: Sequence[str]
    ) -> InputColumns:
        """Returns the columns, given the recorded settings of the training; numbers are no names.

        Args:
            settings: name → value.
            expected: see the class.
        """
        trained = {
            normalized(name): usual
            for setting, usual in _OF_TRAINING.items()
            for name in _listed(settings.get(setting))
            if isinstance(name, str) and not name.lstrip("-").isdecimal()
        }
        return cls(trained, expected)

    @property
    def names(self) -> frozenset[str]:
        """The names that make the first row of a file a header."""
        return NAMES_OF_INPUTS.union(self.trained)

    def with_usual_names(self, row: Row, kept: Sequence[str]) -> Row:
        """Returns a row with named columns that has those of the training under the usual names.

        Columns that have an option each become a list of options.

        Args:
            row: the row, which is returned unchanged if it lacks one of these columns.
            kept: names of other columns to keep, besides the other parts of a question.
        """
        if not isinstance(row, dict) or not self.trained:
            return row
        places = places_of(row)
        if not places.keys() >= self.trained.keys():
            return row
        named: files.JsonObject = {}
        for usual in dict.fromkeys(self.trained.values()):
            names = [name for name, of in self.trained.items() if of == usual]
            values = [row[str(places[name])] for name in names]
            named[usual] = values if len(values) > 1 else values[0]
        parts = [field for field in race.FIELDS if field.name not in named]
        if not named.keys() <= {field.name for field in race.FIELDS}:
            parts = []
        others = [name for name in row if any(normalized(name) in part.names for part in parts)]
        return {name: row[name] for name in (*kept, *others) if name in row} | named

    def refuse_unknown_header(self, table: Table) -> None:
        """Raises ValueError if the first row looks like a header, of which no name is known.

        It looks like one if its cells are single words, and no other row has such a word in one of
        its columns.
        """
        cells = [row for _, row in itertools.islice(table, _ROWS_TO_COMPARE)]
        rows = [row for row in cells if isinstance(row, Sequence)]
        if not self.expected or len(rows) < 2 or is_header(rows[0], self.names):
            return
        header, *others = ([_NAME.fullmatch(cell) is not None for cell in row] for row in rows)
        columns = itertools.zip_longest(*others, fillvalue=False)
        if all(header) and any(not any(column) for column in columns):
            raise ValueError(
                f"{table.path}, line 1: {files.quote_all(rows[0])} look like names of columns, "
                f"none of which is known. Rename them, for example {files.quote_all(self.expected)}"
                ". If this line is an input too, put one with such names above it"
            )


def _listed(value: files.Json) -> files.Json:
    return value if isinstance(value, list) else [value]


ExampleType = TypeVar("ExampleType")
# Where an input is from, which is a part of its result: its "line" or "row", from 1, and its ids.
Origin: TypeAlias = dict[str, files.Json]
Block: TypeAlias = list[tuple[Origin, ExampleType]]
ROWS_AT_ONCE = 1024  # rows in a block; sorted by length and batched together
IDS = ("id", "idx", "guid")  # columns that are copied to the results
_NAMES_OF_TEXTS = {*TEXT_A, *TEXT_B, *itertools.chain.from_iterable(PAIRS)}
_FLAGS = ("text", "text_b", "question", "context", "options")  # that give the parts of an input
_LINES_TO_COMPARE = 3  # the first ones of a file
_ADVICE = "Name the text to predict text, or two of them text_a and text_b, or remove the others"


class Inputs(Protocol[ExampleType]):
    """The inputs in blocks, as often as they are iterated.

    Attributes:
        total: the number of inputs.
        columns: the names in their origins.
    """

    total: int
    columns: tuple[str, ...]

    def __iter__(self) -> Iterator[Block[ExampleType]]:
        """Yields the blocks."""


class _GivenInputs(Generic[ExampleType]):
    """Inputs given by flags: a single block."""

    def __init__(self, block: Block[ExampleType]) -> None:
        self._block = block
        self.total = len(block)
        self.columns = tuple(dict.fromkeys(name for origin, _ in block for name in origin))

    def __iter__(self) -> Iterator[Block[ExampleType]]:
        yield self._block


class _ReadRow(dict[str, files.Json]):
    """A row that notes which of its columns are read.

    Attributes:
        read: their names.
    """

    def __init__(self, row: files.JsonObject) -> None:
        super().__init__(row)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> files.Json:
        self.read.add(name)
        return super().__getitem__(name)


class _FileInputs(Generic[ExampleType]):
    """Inputs of a file, of which a block at a time is in memory.

    Args:
        path: the file, or `STANDARD_INPUT`.
        form: the format of text, one of `settings.FORMATS`; Parquet and Arrow files are recognized.
        parse: converts a row to an input; raises `BadRowError`.
        columns: what is known of the columns.
        keeps_columns: whether the origin of an input are all columns of its row.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: there are bad rows, or no rows, or the header is not known; the message names
            the file and the lines.
    """

    def __init__(
        self,
        path: str,
        form: str,
        parse: Callable[[Row], ExampleType],
        columns: InputColumns | None = None,
        keeps_columns: bool = False,
    ) -> None:
        self._columns = columns or InputColumns()
        self._keeps_columns = keeps_columns
        name = path
        if path == STANDARD_INPUT:
            name = "standard input"
            self._copy = _copy_of_standard_input()  # is removed with this object
            path = self._copy.name
        is_text = form in (TEXT, TABS)
        self._table = open_table(path, form, takes_strings=True, keeps_blank_end=is_text, name=name)
        self._has_header = self._table.has_cells and form in (TABS, COMMAS)
        self._parse = parse
        if form == COMMAS:
            self._refuse_semicolons()
        if self._has_header:
            self._columns.refuse_unknown_header(self._table)
        self._warn_of_unused_texts()
        names: dict[str, None] = {}
        self.total = 0
        for origin, _ in self._parsed():
            self.total += 1
            names |= dict.fromkeys(origin)
        self.columns = tuple(names)
        if not self.total:
            raise ValueError(f"{name}: contains no input")

    def __iter__(self) -> Iterator[Block[ExampleType]]:
        return blocks_of(self._parsed(), ROWS_AT_ONCE)

    def _refuse_semicolons(self) -> None:
        """Raises a ValueError if the first lines have semicolons where commas are expected."""
        lines = [row for _, row in itertools.islice(self._table, _LINES_TO_COMPARE)]
        cells = [row[0] for row in lines if isinstance(row, list) and len(row) == 1]
        counts = {cell.count(";") for cell in cells}
        if len(cells) == len(lines) > 1 and len(counts) == 1 and counts != {0}:
            raise ValueError(
                f"{self._table.path}, line 1: expected columns that are separated by commas, got "
                f"semicolons: {files.quote(cells[0])}. Save the file with commas, or as .tsv with "
                "tabs"
            )

    def _warn_of_unused_texts(self) -> None:
        """Warns if a task that takes a text or a pair leaves out a column with texts."""
        looked_at = []
        for _, row in itertools.islice(self._rows(self._table), MAX_ROWS):
            with contextlib.suppress(BadRowError):  # as below
                usual = self._usual(row)
                looked_at += [_ReadRow(usual)] if isinstance(usual, dict) else []
        for row in looked_at:
            with contextlib.suppress(BadRowError):  # which is reported where the row is predicted
                self._parse(row)
        used = set().union(*(row.read for row in looked_at))
        if looked_at and used and _NAMES_OF_TEXTS.issuperset(map(normalized, used)):
            unused = UnusedTexts(places_of(looked_at[0]), used)
            for row in looked_at:
                unused.add(row)
            unused.report(self._table.path, _ADVICE)

    def _parsed(self) -> Iterator[tuple[Origin, ExampleType]]:
        unit = "line" if self._table.unit == "line" else "row"

        def parse(row: Row, number: int) -> tuple[Origin, ExampleType]:
            example = self._parse(self._usual(row))
            if self._keeps_columns:
                return columns_of(row), example
            return {unit: number, **_ids_of(row)}, example

        for _, parsed in rows.parse_rows(self._table.place, self._rows(self._table), parse):
            yield parsed

    def _rows(self, table: Table) -> Iterator[NumberedRow]:
        numbered = iter(table)
        if self._has_header:
            numbered = named_rows(numbered, self._columns.names)
        return numbered

    def _usual(self, row: Row | BadRowError) -> Row:
        """Returns a row with the usual names; raises BadRowError for a row that is bad."""
        if isinstance(row, BadRowError):
            raise row
        return self._columns.with_usual_names(row, IDS)


def columns_of(row: Row) -> files.JsonObject:
    """Returns all columns of a row; texts without names are `text` and `text_b`, or numbered."""
    if isinstance(row, dict):
        return row
    cells = [row] if isinstance(row, str) else list(row)
    names = ["text", "text_b"] if len(cells) <= 2 else map(str, range(1, len(cells) + 1))
    return dict(zip(names, cells, strict=False))


def _ids_of(row: Row) -> Origin:
    """Returns the ids in a row of named columns, as JSON has them: dates and the like as texts.

    Raises:
        BadRowError: one cannot be written.
    """
    if not isinstance(row, dict):
        return {}
    ids: Origin = {}
    for name in IDS:
        if name in row:
            value = row[name]
            if isinstance(value, float) and math.isnan(value):  # a number that pandas lacks
                value = None
            text = json.dumps(value, ensure_ascii=False, default=str)
            ids[name] = json.loads(rows.check_text(text, f"column {name!r}"))
    return ids


def _copy_of_standard_input() -> Any:
    """Returns a temporary file with the content of standard input, which can be read once only."""
    copy = tempfile.NamedTemporaryFile(suffix=".txt")  # noqa: SIM115 # read as long as it exists
    shutil.copyfileobj(sys.stdin.buffer, copy)
    copy.flush()
    return copy


def parse_two(row: Row) -> tuple[str, str]:
    """Returns the two texts to compare."""
    pair = parse_pair(row)
    if not pair[1]:
        raise BadRowError("expected two texts to compare, got one")
    return pair


def read_inputs(
    settings: Settings,
    parse: Callable[[Row], ExampleType],
    task: TaskSpec | None = None,
    trained_with: Mapping[str, files.Json] | None = None,
) -> Inputs[ExampleType]:
    """Returns the inputs of a file, or those given by flags.

    Args:
        settings: the settings.
        parse: converts a row to an input; raises `BadRowError`.
        task: the task to predict, if only its flags may be given.
        trained_with: the settings of the training, which name columns of the data.

    Raises:
        ValueError, OSError: a file cannot be read or has bad rows; or the task does not take a flag
            that is given.
    """
    given = [name for name in _FLAGS if getattr(settings, name)]
    taken = task.task.flags if task else ()
    takes = f"a model for {task.name} takes {_as_flags(taken)}" if task and taken else ""
    if taken and not set(given) <= set(taken):
        raise ValueError(f"{_as_flags(given)}: {takes}")
    if settings.input_file is not None:
        columns = InputColumns.of_training(trained_with or {}, taken)
        keeps_columns = settings.output_file is not None
        return _FileInputs(settings.input_file, settings.format, parse, columns, keeps_columns)
    try:
        given_rows = [(row, parse(row)) for row in _rows_of(settings)]
        keeps = settings.output_file is not None
        return _GivenInputs([(columns_of(row) if keeps else {}, x) for row, x in given_rows])
    except BadRowError as error:
        is_complete = set(given) == set(taken)
        advice = "" if is_complete or not takes else f" ({takes})"
        raise ValueError(f"{_as_flags(given)}: {error}{advice}") from None


def _as_flags(names: Sequence[str]) -> str:
    return ", ".join(f"--{name}" for name in names)


def _rows_of(settings: Settings) -> list[Row]:
    """Returns the inputs given by flags."""
    others = {
        "question": settings.question or None,
        "context": settings.context or None,
        "options": list(settings.options) or None,
    }
    found: list[Row] = []
    pairs: Sequence[tuple[str | None, str | None]] = settings.pairs or [(None, None)]
    for text, text_b in pairs:
        given = {"text": text, "text_b": text_b, **others}
        found.append({name: value for name, value in given.items() if value is not None})
    return found


def read_blocks(
    path: str, form: str, parse: Callable[[Row], ExampleType]
) -> list[list[tuple[int, ExampleType]]]:
    """Returns all rows of a file in blocks of (number, input), for tasks that read their own data.

    Args:
        path: the file, or `STANDARD_INPUT`.
        form: the format, one of `settings.FORMATS`.
        parse: converts a row to an input; raises `BadRowError`.

    Returns:
        The blocks; numbers are those of lines, or of rows in files without lines, from 1.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: there are bad rows, or no rows; the message names the file and the lines.
    """
    blocks = _FileInputs(path, form, parse)
    return [[(next(iter(origin.values())), example) for origin, example in b] for b in blocks]

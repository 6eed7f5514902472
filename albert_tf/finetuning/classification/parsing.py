"""Takes the texts, labels and ids from rows, a block of rows at a time, as columns."""

from __future__ import annotations

import dataclasses
import itertools
import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

from albert_tf import files
from albert_tf.finetuning.classification.tasks import ClassificationTask, Columns, SplitSource
from albert_tf.finetuning.examples import EXAMPLES_AT_ONCE
from albert_tf.finetuning.rows import (
    MAX_BAD,
    BadRowError,
    NumberedRow,
    Row,
    ShortRowError,
    cell,
    check_text,
    is_text,
    text_cell,
)
from albert_tf.tables import Table
from albert_tf.tables.table import width_error

MAX_ROWS = 10_000  # of examples, whose unused columns are looked at


@dataclasses.dataclass
class Block:
    """Examples by column, whose labels may mean anything yet.

    Attributes:
        rows: the row of the file, of each of the first MAX_ROWS examples.
        lines: the number of its line.
        numbers: the number of the example in the file, starting at 0.
        firsts, seconds: the first or only text, and the second or "".
        values: what is in place of the label.
        guids: the ids; None for an example without one, or for all if there is no column of them.
        num_parts: the number of examples that each row of the file stands for.
    """

    rows: list[Row] = dataclasses.field(default_factory=list)
    lines: list[int] = dataclasses.field(default_factory=list)
    numbers: list[int] = dataclasses.field(default_factory=list)
    firsts: list[str] = dataclasses.field(default_factory=list)
    seconds: list[str] = dataclasses.field(default_factory=list)
    values: list[object] = dataclasses.field(default_factory=list)
    guids: list[str | None] | None = None
    num_parts: int = 1

    def add(
        self, row: Row, line: int, number: int, parsed: tuple[str, str, object, str | None]
    ) -> None:
        """Adds an example: its text, second text, value and id."""
        first, second, value, guid = parsed
        if number < MAX_ROWS:
            self.rows.append(row)
        self.lines.append(line)
        self.numbers.append(number)
        self.firsts.append(first)
        self.seconds.append(second)
        self.values.append(value)
        if self.guids is not None:
            self.guids.append(guid)


@dataclasses.dataclass
class RowParser:
    """Takes examples from the rows of a split.

    Attributes:
        table: the rows.
        task: the task, perhaps without labels yet.
        split: "train", "dev" or "test".
        source: the file and its columns in the settings.
        columns: the columns as indices, or as keys of JSON objects.
        header: the first row if it names the columns, else None.
        bad: number of a row that cannot be used → why; as many as an error names.
        num_rows: the number of rows so far, without the header.
        num_skipped: the number of short rows that Google's program skips.
    """

    table: Table
    task: ClassificationTask
    split: str
    source: SplitSource
    columns: Columns
    header: Row | None
    bad: dict[int, str] = dataclasses.field(default_factory=dict, init=False)
    num_rows: int = dataclasses.field(default=0, init=False)
    num_skipped: int = dataclasses.field(default=0, init=False)

    def __post_init__(self) -> None:
        self._cells, self._least_width = _usual_cells(self.source, self.columns)
        self._most_width = sys.maxsize
        # Only in custom tasks, because Google's program ignores further cells in its tasks.
        if self.source.is_custom and self.header is not None:
            self._most_width = len(self.header)

    def read_again(self) -> Iterator[Block]:
        """Yields the examples of all rows, which are read anew."""
        rows = itertools.islice(self.table, int(self.header is not None), None)
        return dataclasses.replace(self).blocks(rows)

    def blocks(self, numbered: Iterable[NumberedRow]) -> Iterator[Block]:
        """Yields the examples of rows, up to that which makes more bad ones than an error names."""
        block = self._new_block()
        for line, row in numbered:
            if not self._add_usual(row, line, block):
                try:
                    self._add(row, line, block)
                except BadRowError as error:
                    self.bad[line] = str(error)
                    if len(self.bad) == MAX_BAD:
                        break
            if len(block.firsts) >= EXAMPLES_AT_ONCE:
                yield block
                block = self._new_block()
        if block.firsts:
            yield block

    def _new_block(self) -> Block:
        return Block(guids=None if self.columns.guid is None else [])

    def _add_usual(self, row: Row | BadRowError, line: int, block: Block) -> bool:
        """Adds a row that has all cells, as most have, in little time; returns whether it is one.

        Others are looked at closely, for what they lack or have too much.
        """
        if self._cells is None or isinstance(row, BadRowError):
            return False
        if not self._least_width <= len(row) <= self._most_width:
            return False
        try:
            first, second, value, guid = self._cells(row)
        except (LookupError, TypeError):  # the latter for a key of cells
            return False
        if self.columns.text_b is None:
            second = ""
        elif not is_text(second):
            return False
        own = None if self.columns.guid is None else " ".join(str(guid).split())
        if not (is_text(first) and (own is None or is_text(own))):
            return False
        block.add(row, line, self.num_rows, (first, second, value, own))
        self.num_rows += 1
        return True

    def _add(self, row: Row | BadRowError, line: int, block: Block) -> None:
        """Adds any row; raises BadRowError if it cannot be used."""
        if isinstance(row, BadRowError):
            raise row
        number = self.num_rows
        self.num_rows += 1
        if len(row) > self._most_width:
            raise width_error(row, self._most_width)
        try:
            if self.source.only and cell(row, self.source.only[0]) != self.source.only[1]:
                return
            parts = self._expand(row)
            block.num_parts = len(parts)
            for place, part in enumerate(parts):
                block.add(row, line, number * len(parts) + place, self._parse(part))
        except ShortRowError:
            if not self.task.skips_short_rows or self.split == "test":
                raise
            self.num_skipped += 1

    def _expand(self, row: Row) -> Sequence[Row]:
        """Returns the rows that a row of the file stands for."""
        if self.source.expand is None or not isinstance(row, dict):
            return [row]
        try:
            return self.source.expand(row)
        except KeyError as error:
            raise BadRowError(f"no key {error}") from None
        except (TypeError, ValueError) as error:
            raise BadRowError(str(error)) from None

    def _parse(self, row: Row) -> tuple[str, str, object, str | None]:
        """Returns the text, the second text or "", the value and the id of an example."""
        # Texts first, so that a row without its last column, the label, is reported as short.
        columns = [c for c in (self.columns.text_a, self.columns.text_b) if c is not None]
        texts = [text_cell(row, column) for column in columns]
        for text, column in zip(texts, columns, strict=True):
            if not (text.strip() or self.split == "test" or self.task.skips_short_rows):
                raise BadRowError(f"the text in column {column!r} is empty")
        return texts[0], "".join(texts[1:]), self._label(row), self._guid(row)

    def _label(self, row: Row) -> object:
        """Returns the value of the label; None if there is none in a test split."""
        column = self.columns.label
        try:
            if isinstance(column, tuple):
                return tuple(cell(row, place) for place in column)
            return None if column is None else cell(row, column)
        except BadRowError:
            if self.split != "test":
                raise
            return None

    def _guid(self, row: Row) -> str | None:
        """Returns the id in a row; None if it has none."""
        column = self.columns.guid
        if column is None or (isinstance(row, dict) and column not in row):
            return None
        return " ".join(check_text(str(cell(row, column)), repr(column)).split())


def _usual_cells(
    source: SplitSource, columns: Columns
) -> tuple[Callable[[Row], Sequence[files.Json]] | None, int]:
    """Returns what gets the texts, the label and the id of a row that has all of them.

    It gets the first text in place of a second text or an id without a column. None if rows need
    more than that; and the number of cells that a row must have.
    """
    first, label = columns.text_a, columns.label
    if first is None or label is None or isinstance(label, tuple) or source.only or source.expand:
        return None, 0
    others = [first if c is None else c for c in (columns.text_b, label, columns.guid)]
    widths = [c + 1 if c >= 0 else 1 - c for c in (first, *others) if isinstance(c, int)]
    return operator.itemgetter(first, *others), max(widths, default=0)

"""Collects the rows of a file as columns, from which the examples of a split are made."""

from __future__ import annotations

import array
import dataclasses
import operator
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from absl import logging

from albert_tf import files
from albert_tf.finetuning.classification.encoding import Example as Example
from albert_tf.finetuning.classification.encoding import (
    ExampleColumns,
    FirstPass,
    Guids,
    Sink,
)
from albert_tf.finetuning.classification.labels import Label
from albert_tf.finetuning.classification.meaning import LabelColumn, Meaning
from albert_tf.finetuning.classification.tasks import (
    CUSTOM_TASK,
    ClassificationTask,
    Columns,
    SplitSource,
)
from albert_tf.finetuning.examples import EXAMPLES_AT_ONCE, LOOKED_AT, Examples, Unlabeled
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
from albert_tf.tables.table import width_error


@dataclasses.dataclass
class SplitRows:
    """The rows of a split by column, before it is decided what their labels mean.

    Attributes:
        task: the task, perhaps without labels yet.
        source: the file and its columns in the settings.
        columns: the columns as indices, or as keys of JSON objects.
        labels: the distinct values of the labels.
        width: the number of columns in the header, if rows may not have more.
        has_header: whether the first row is a header.
        read_again: gives all texts to another sink.
        sink: takes the texts, a block at a time; None to keep them.
        num_rows: the number of rows so far, without the header.
        bad: number of a row that cannot be used → why; as many as an error names.
        num_skipped: the number of short rows that Google's program skips.
        guids, numbers, indices: of each example, its id, the number of its line, and the index of
            its label among the distinct values.
        firsts, seconds: the texts of each example, or of those that `sink` has not yet taken.
        texts: the first ones that it has taken.
    """

    task: ClassificationTask
    split: str
    source: SplitSource
    columns: Columns
    labels: LabelColumn
    width: int | None
    has_header: bool
    read_again: Callable[[Sink], None]
    sink: Sink | None = None
    bad: dict[int, str] = dataclasses.field(default_factory=dict)
    num_rows: int = 0
    num_skipped: int = 0
    guids: Guids = dataclasses.field(init=False)
    firsts: list[str] = dataclasses.field(default_factory=list)
    seconds: list[str] = dataclasses.field(default_factory=list)
    texts: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    numbers: array.array[int] = dataclasses.field(default_factory=lambda: array.array("I"))
    indices: array.array[int] = dataclasses.field(default_factory=lambda: array.array("i"))
    _cells: Callable[[Row], Sequence[files.Json]] | None = dataclasses.field(init=False)
    _least_width: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.guids = Guids(self.split, int(self.has_header))
        self._cells, self._least_width = _usual_cells(self.source, self.columns)

    def extend(
        self, rows: Iterable[NumberedRow], look: Callable[[Row], bool] | None = None
    ) -> None:
        """Adds rows, up to that which makes more bad ones than an error names.

        Args:
            rows: the rows with their numbers.
            look: called with each row that has become the last example, if given, until it returns
                False.
        """
        for number, row in rows:
            count = len(self.numbers)
            try:
                if isinstance(row, BadRowError):
                    raise row
                self._add(row, number)
                if look is not None and len(self.numbers) > count and not look(row):
                    look = None
            except BadRowError as error:
                self.bad[number] = str(error)
                if len(self.bad) == MAX_BAD:
                    break
        self._flush()

    def _flush(self) -> None:
        """Gives a block to the sink."""
        if self.sink is not None and self.firsts:
            self.sink(self.firsts, self.seconds, self.indices[-len(self.firsts) :])
            rest = max(LOOKED_AT - len(self.texts), 0)
            self.texts.extend(zip(self.firsts[:rest], self.seconds[:rest], strict=True))
            self.firsts, self.seconds = [], []

    def _add(self, row: Row, number: int) -> None:
        index = self.num_rows
        self.num_rows += 1
        if self.width is not None and len(row) > self.width:
            raise width_error(row, self.width)
        if self._cells is not None and self._add_usual(row, index, number):
            return
        try:
            if self.source.only and cell(row, self.source.only[0]) != self.source.only[1]:
                return
            parts = self._expand(row)
            self.guids.num_parts = len(parts)
            for place, part in enumerate(parts):
                self._add_example(part, index * len(parts) + place, number)
        except ShortRowError:
            if not self.task.skips_short_rows or self.split == "test":
                raise
            self.num_skipped += 1

    def _add_usual(self, row: Row, place: int, number: int) -> bool:
        """Adds a row that has all cells, as most have, in little time; returns whether it is one.

        Others are looked at closely, for what they lack.
        """
        if self._cells is None or (len(row) < self._least_width and not isinstance(row, dict)):
            return False
        try:
            first, second, value, guid = self._cells(row)
        except LookupError:
            return False
        if not (is_text(first) and is_text(second) and is_text(str(guid))):
            return False
        second = "" if self.columns.text_b is None else second
        guid = None if self.columns.guid is None else " ".join(str(guid).split())
        self._append(first, second, value, guid, place, number)
        return True

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

    def _add_example(self, row: Row, place: int, number: int) -> None:
        # Texts first, so that a row without its last column, the label, is reported as short.
        columns = [c for c in (self.columns.text_a, self.columns.text_b) if c is not None]
        texts = [text_cell(row, column) for column in columns]
        for text, column in zip(texts, columns, strict=True):
            if not (text.strip() or self.split == "test" or self.task.skips_short_rows):
                raise BadRowError(f"the text in column {column!r} is empty")
        value, guid = self._label(row), self._guid(row)
        self._append(texts[0], "".join(texts[1:]), value, guid, place, number)

    def _append(
        self, first: str, second: str, value: object, guid: str | None, place: int, number: int
    ) -> None:
        if len(self.firsts) == EXAMPLES_AT_ONCE:
            self._flush()
        self.guids.add(place, guid)
        self.firsts.append(first)
        self.seconds.append(second)
        self.numbers.append(number)
        self.indices.append(self.labels.index(value, number))

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

    def examples(self, meanings: Sequence[Meaning]) -> Examples[Example]:
        """Returns the examples, given what each distinct value of the labels means.

        Rows without a label are left out, except in a test split.

        Raises:
            ValueError: there are bad rows, or no example.
        """
        labels: list[Label] = [None if isinstance(x, BadRowError) else x for x in meanings]
        is_test = self.split == "test"
        self._refuse_bad(() if is_test else meanings)
        if is_test and self.task.is_regression and self.task.name == CUSTOM_TASK:
            labels = _without_placeholders(labels)
        indices = np.frombuffer(self.indices, np.int32) if self.indices else np.zeros(0, np.int32)
        is_known = np.array([label is not None for label in labels], bool)[indices]
        rows = np.arange(len(indices))
        if not (is_test or self.columns.label is None):
            rows = np.flatnonzero(is_known)
        unlabeled = Unlabeled(self.labels.path, is_test)
        if not is_known.all():
            first = self.numbers[int(np.argmin(is_known))]
            unlabeled.add(self.labels.place(first), int(np.count_nonzero(~is_known)))
        self._report(unlabeled, len(rows), meanings)
        texts = self.texts or list(zip(self.firsts, self.seconds, strict=True))
        columns = ExampleColumns(self.guids, self.numbers, indices, labels, texts, rows)
        has_labels = bool(is_known[rows].all())
        if isinstance(self.sink, FirstPass):
            return self.sink.examples(self.labels.path, columns, has_labels, self.read_again)
        return Examples(self.labels.path, list(columns), has_labels)

    def _refuse_bad(self, meanings: Sequence[Meaning]) -> None:
        """Raises ValueError if rows are bad, or their labels are."""
        bad = dict(self.bad)
        errors = {i: str(x) for i, x in enumerate(meanings) if isinstance(x, BadRowError)}
        if errors:
            for index, number in zip(self.indices, self.numbers, strict=True):
                if index in errors:
                    bad.setdefault(number, errors[index])
        if bad:
            raise ValueError(
                "\n".join(f"{self.labels.place(n)}: {bad[n]}" for n in sorted(bad)[:MAX_BAD])
            )

    def _report(self, unlabeled: Unlabeled, count: int, meanings: Sequence[Meaning]) -> None:
        """Logs what is skipped, and why a test split is not evaluated."""
        if self.num_skipped:
            logging.warning(
                "%s: %d rows are skipped, as in Google's program: too few columns",
                self.labels.path,
                self.num_skipped,
            )
        unlabeled.report(count)
        strange = next((x for x in meanings if isinstance(x, BadRowError)), None)
        if strange is not None and len(unlabeled) == count:
            logging.warning("%s: predicted, but not evaluated: %s", self.labels.path, strange)


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


def _without_placeholders(labels: list[Label]) -> list[Label]:
    """Returns the scores of a test split, which are not known if all are -1."""
    known = [label for label in labels if label is not None]
    return [None] * len(labels) if all(float(str(label)) == -1 for label in known) else labels

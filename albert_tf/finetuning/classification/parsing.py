"""Collects the rows of a file as columns, from which the examples of a split are made."""

from __future__ import annotations

import array
import dataclasses
from collections.abc import Callable, Iterable, Sequence

from absl import logging

from albert_tf.finetuning.classification.label_columns import LabelColumn
from albert_tf.finetuning.classification.labels import Label
from albert_tf.finetuning.classification.meaning import Meaning
from albert_tf.finetuning.classification.tasks import (
    CUSTOM_TASK,
    ClassificationTask,
    Columns,
    SplitSource,
)
from albert_tf.finetuning.examples import Examples, Unlabeled
from albert_tf.finetuning.rows import (
    MAX_BAD,
    BadRowError,
    NumberedRow,
    Row,
    ShortRowError,
    cell,
    check_text,
    text_cell,
)
from albert_tf.tables.table import width_error


@dataclasses.dataclass(frozen=True, slots=True)
class Example:
    """A text or a pair of texts, with its label.

    Attributes:
        guid: id of the example in submissions: its own, or as in Google's program, which counts the
            header.
        text_a: the first or only text.
        text_b: the second text, or "".
        label: a label of the task, a number in regression, or the labels in a multi-label task;
            None if unknown.
        line: number of the line in the file, or of the row in files without lines, starting at 1.
        row: number of the row in the file, starting at 1. Neither a header nor blank lines count,
            so that it is the same in all formats.
        number: number of the example in the file, starting at 0; None if `guid` is its own id.
    """

    guid: str = dataclasses.field(repr=False)
    text_a: str
    text_b: str = ""
    label: Label = None
    line: int = dataclasses.field(default=0, repr=False)
    row: int = dataclasses.field(default=0, repr=False, compare=False)
    number: int | None = dataclasses.field(default=None, repr=False, compare=False)

    @property
    def id(self) -> str:
        """Its own id, or its split and number: the same in all formats."""
        split = self.guid.rpartition("-")[0]
        return self.guid if self.number is None else f"{split}-{self.number}"

    @property
    def labels(self) -> tuple[str, ...]:
        """The known labels."""
        return self.label if isinstance(self.label, tuple) else tuple(filter(None, [self.label]))


@dataclasses.dataclass
class SplitRows:
    """The rows of a split by column, before it is decided what their labels mean.

    Attributes:
        task: the task, perhaps without labels yet.
        source: the file and its columns in the settings.
        columns: the columns as indices, or as keys of JSON objects.
        labels: the distinct values of the labels.
        width: the number of columns in the header, if rows may not have more.
        num_headers: the number of rows of the header, 0 or 1.
        num_rows: the number of rows so far, without the header.
        bad: number of a row that cannot be used → why; as many as an error names.
        num_skipped: the number of short rows that Google's program skips.
        guids, firsts, seconds, numbers, indices: of each example, its id, its texts, the number of
            its line, and the index of its label among the distinct values.
        rows, counts: of each example, its `row`, and its `number` or -1.
    """

    task: ClassificationTask
    split: str
    source: SplitSource
    columns: Columns
    labels: LabelColumn
    width: int | None
    num_headers: int
    num_rows: int = 0
    bad: dict[int, str] = dataclasses.field(default_factory=dict)
    num_skipped: int = 0
    guids: list[str] = dataclasses.field(default_factory=list)
    firsts: list[str] = dataclasses.field(default_factory=list)
    seconds: list[str] = dataclasses.field(default_factory=list)
    numbers: array.array[int] = dataclasses.field(default_factory=lambda: array.array("q"))
    indices: array.array[int] = dataclasses.field(default_factory=lambda: array.array("i"))
    rows: array.array[int] = dataclasses.field(default_factory=lambda: array.array("q"))
    counts: array.array[int] = dataclasses.field(default_factory=lambda: array.array("q"))

    def extend(self, rows: Iterable[NumberedRow], look: Callable[[Row], None]) -> None:
        """Adds rows, up to that which makes more bad ones than an error names.

        Args:
            rows: the rows with their numbers.
            look: called with each row that has become the last example.
        """
        for number, row in rows:
            count = len(self.guids)
            try:
                if isinstance(row, BadRowError):
                    raise row
                self._add(row, number)
                if len(self.guids) > count:
                    look(row)
            except BadRowError as error:
                self.bad[number] = str(error)
                if len(self.bad) == MAX_BAD:
                    break

    def _add(self, row: Row, number: int) -> None:
        index = self.num_rows
        self.num_rows += 1
        if self.width is not None and len(row) > self.width:
            raise width_error(row, self.width)
        try:
            if self.source.only and cell(row, self.source.only[0]) != self.source.only[1]:
                return
            parts = self._expand(row)
            for place, part in enumerate(parts):
                self._add_example(part, index * len(parts) + place, len(parts), number)
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

    def _add_example(self, row: Row, count: int, num_parts: int, number: int) -> None:
        """Adds an example.

        Args:
            row: the row.
            count: the number of examples before it.
            num_parts: the number of examples that each row of the file stands for.
            number: the number of the row, for messages.
        """
        # Texts first, so that a row without its last column, the label, is reported as short.
        columns = [c for c in (self.columns.text_a, self.columns.text_b) if c is not None]
        texts = [text_cell(row, column) for column in columns]
        for text, column in zip(texts, columns, strict=True):
            if not (text.strip() or self.split == "test" or self.task.skips_short_rows):
                raise BadRowError(f"the text in column {column!r} is empty")
        value = self._label(row)
        guid = self._guid(row)
        default = f"{self.split}-{count + self.num_headers * num_parts}"
        self.guids.append(default if guid is None else guid)
        self.counts.append(count if guid is None else -1)
        self.rows.append(count // num_parts + 1)
        self.firsts.append(texts[0])
        self.seconds.append("".join(texts[1:]))
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
        if not is_test:
            self._refuse_bad(meanings)
        elif self.task.is_regression and self.task.name == CUSTOM_TASK:
            labels = _without_placeholders(labels)
        self._refuse_bad(())
        unlabeled = Unlabeled(self.labels.path, is_test)
        keeps_all = is_test or self.columns.label is None
        examples = []
        texts = zip(self.guids, self.firsts, self.seconds, strict=True)
        places = zip(self.numbers, self.rows, self.counts, strict=True)
        for parts, index, (line, row, count) in zip(texts, self.indices, places, strict=True):
            label = labels[index]
            if label is None:
                unlabeled.add(self.labels.place(line))
            if keeps_all or label is not None:
                examples.append(Example(*parts, label, line, row, None if count < 0 else count))
        self._report(unlabeled, len(examples), meanings)
        return Examples(
            self.labels.path, examples, all(example.label is not None for example in examples)
        )

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


def _without_placeholders(labels: list[Label]) -> list[Label]:
    """Returns the scores of a test split, which are not known if all are -1."""
    known = [label for label in labels if label is not None]
    return [None] * len(labels) if all(float(str(label)) == -1 for label in known) else labels

"""Converts the rows of a file to the examples of a classification or regression task."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from absl import logging

from albert_tf.finetuning.classification.labels import Label, LabelReader
from albert_tf.finetuning.classification.tasks import ClassificationTask, Columns, SplitSource
from albert_tf.finetuning.rows import BadRowError, Row, ShortRowError, cell, check_text, text_cell
from albert_tf.tables.row import width_error


@dataclasses.dataclass(frozen=True, slots=True)
class Example:
    """A text or a pair of texts, with its label.

    Attributes:
        guid: id of the example in submissions.
        text_a: the first or only text.
        text_b: the second text, or "".
        label: a label of the task, a number in regression, or the labels in a multi-label task;
            None if unknown.
        line: line number in the file, starting at 1.
    """

    guid: str = dataclasses.field(repr=False)
    text_a: str
    text_b: str = ""
    label: Label = None
    line: int = dataclasses.field(default=0, repr=False)

    @property
    def labels(self) -> tuple[str, ...]:
        """The known labels."""
        return self.label if isinstance(self.label, tuple) else tuple(filter(None, [self.label]))


@dataclasses.dataclass
class RowParser:
    """Converts the rows of a file to examples.

    Attributes:
        task: the task.
        split: the split.
        source: the file and its columns in the settings.
        columns: the columns as indices, or as keys of JSON objects.
        width: the number of columns in the header, if rows may not have more.
        num_rows: the number of rows before this one, including the header.
        labels: reads the labels.
        num_skipped: the number of short rows that Google's program skips.
    """

    task: ClassificationTask
    split: str
    source: SplitSource
    columns: Columns
    width: int | None
    num_rows: int
    labels: LabelReader
    num_skipped: int = 0

    def parse(self, row: Row, line: int) -> list[Example]:
        """Returns the examples in the next row."""
        index = self.num_rows
        self.num_rows += 1
        if self.width is not None and len(row) > self.width:
            raise width_error(row, self.width)
        try:
            if self.source.only and cell(row, self.source.only[0]) != self.source.only[1]:
                return []
            parts = self._expand(row)
            examples = [
                self._example(part, f"{self.split}-{index * len(parts) + number}", line)
                for number, part in enumerate(parts)
            ]
        except ShortRowError:
            if not self.task.skips_short_rows or self.split == "test":
                raise
            self.num_skipped += 1
            return []
        if self.split != "test" and self.columns.label is not None:
            return [example for example in examples if example.label is not None]
        return examples

    def report(self, path: str) -> None:
        """Logs how many rows were skipped because they are short.

        Args:
            path: the file.
        """
        if self.num_skipped:
            logging.warning(
                "%s: %d rows are skipped, as in Google's program: too few columns",
                path,
                self.num_skipped,
            )

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

    def _example(self, row: Row, default_guid: str, line: int) -> Example:
        # Texts first, so that a row without its last column, the label, is reported as short.
        columns = [c for c in (self.columns.text_a, self.columns.text_b) if c is not None]
        texts = [text_cell(row, column) for column in columns]
        for text, column in zip(texts, columns, strict=True):
            if not (text.strip() or self.split == "test" or self.task.skips_short_rows):
                raise BadRowError(f"the text in column {column!r} is empty")
        label = self.labels.read(row, line)
        return Example(self._guid(row, default_guid), texts[0], "".join(texts[1:]), label, line)

    def _guid(self, row: Row, default: str) -> str:
        column = self.columns.guid
        if column is None or (isinstance(row, dict) and column not in row):
            return default
        return " ".join(check_text(str(cell(row, column)), repr(column)).split())

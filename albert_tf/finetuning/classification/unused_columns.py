"""Finds columns that are not used, although they have texts or decide which label a text has.

A word with several senses, the aspect of a review, or the span that is asked about may be too short
to look like a text. The sign is that the same texts have other labels where the column has another
value.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping, Sequence

from absl import logging

from albert_tf import files
from albert_tf.finetuning.classification.parsing import Block, RowParser
from albert_tf.finetuning.columns import GUID, UnusedTexts, places_of, value_in
from albert_tf.finetuning.examples import is_none
from albert_tf.finetuning.rows import Column, Row
from albert_tf.finetuning.splits import TRAIN

_MIN_DECIDED = 0.9  # the part of the texts with several labels that the column tells apart
# The part of these rows whose texts have several labels: less may be mistakes. More are needed to
# name a column that is different in each row, as an id is.
_MIN_PART, _MIN_PART_OF_UNIQUE = 0.01, 0.2

_Values = Mapping[str, int]  # column → hash of its value


class UnusedColumns:
    """The columns that a custom task does not use.

    Those with texts are looked for unless the settings choose the text, and those that decide
    labels in training data with classes.

    Args:
        parser: what takes examples from the rows.
        names: the header, or the first JSON object; None if columns have no names.
    """

    def __init__(self, parser: RowParser, names: Row | None) -> None:
        places: Mapping[str, Column] = {}
        if parser.source.is_custom and names is not None:
            places = places_of(names)
        used = parser.columns.used
        is_chosen = parser.source.columns.text_a is not None
        self._texts = UnusedTexts({} if is_chosen else places, used)
        has_classes = parser.split == TRAIN and not parser.task.is_regression
        self._places = {
            name: column
            for name, column in places.items()
            if has_classes and column not in used and name not in GUID.names
        }
        self._is_pair = parser.columns.text_b is not None
        self._rows: list[tuple[int, int, _Values]] = []
        self._numeric = set(self._places)

    def add(self, block: Block, labels: Sequence[int]) -> None:
        """Looks at the rows of a block, which the first ones have.

        Args:
            block: the block.
            labels: the index of each label among all values.
        """
        for row in block.rows:
            self._texts.add(row)
        if not self._places:
            return
        columns = (block.rows, block.firsts, block.seconds, labels)
        for row, *texts, label in zip(*columns, strict=False):
            values = {name: value_in(row, column) for name, column in self._places.items()}
            self._numeric -= {name for name, value in values.items() if not _is_numeric(value)}
            hashes = {name: hash(repr(value)) for name, value in values.items()}
            self._rows.append((hash(tuple(texts)), label, hashes))

    def report(self, path: str) -> None:
        """Warns of the columns that have texts, or decide labels, of a file."""
        self._texts.report(path)
        names = self._deciding()
        if names:
            asked = "" if self._is_pair else f"pass --text_b_column={names[0]}, or "
            logging.warning(
                "%s: the same texts have different labels, and %s, which is not used, tells them "
                "apart. To use it, %swrite it into the text",
                *(path, files.quote_all(names), asked),
            )

    def _deciding(self) -> list[str]:
        """Returns the names of columns with which texts have one label, and without several."""
        by_text = collections.defaultdict(list)
        for text, label, values in self._rows:
            by_text[text].append((label, values))
        doubtful = [rows for rows in by_text.values() if len({label for label, _ in rows}) > 1]
        part = sum(map(len, doubtful)) / max(len(self._rows), 1)
        if part < _MIN_PART:
            return []
        return [
            name
            for name in self._places
            if sum(_decides(rows, name) for rows in doubtful) >= _MIN_DECIDED * len(doubtful)
            and (self._repeats(name) or (name not in self._numeric and part > _MIN_PART_OF_UNIQUE))
        ]

    def _repeats(self, name: str) -> bool:
        return len({values[name] for _, _, values in self._rows}) < len(self._rows)


def _decides(rows: Iterable[tuple[int, _Values]], name: str) -> bool:
    """Returns whether rows with the same text and value of a column have the same label."""
    labels: dict[int, int] = {}
    return all(labels.setdefault(values[name], label) == label for label, values in rows)


def _is_numeric(value: object) -> bool:
    try:
        float(str(value))
    except ValueError:
        return is_none(value)
    return True

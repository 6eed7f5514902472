"""Finds columns that are not used, although they decide which label a text has.

A word with several senses, the aspect of a review, or the span that is asked about may be too short
to look like a text. The sign is that the same texts have other labels where the column has another
value.
"""

from __future__ import annotations

import collections
from collections.abc import Collection, Iterable, Mapping, Sequence

from absl import logging

from albert_tf import files
from albert_tf.finetuning.columns import GUID, value_in
from albert_tf.finetuning.examples import is_none
from albert_tf.finetuning.rows import Column, Row

MAX_ROWS = 10_000  # which are looked at
_MIN_DECIDED = 0.9  # the part of the texts with several labels that the column tells apart
# The part of these rows whose texts have several labels: less may be mistakes. More are needed to
# name a column that is different in each row, as an id is.
_MIN_PART, _MIN_PART_OF_UNIQUE = 0.01, 0.2

_Values = Mapping[str, int]  # column → hash of its value


class DecidingColumns:
    """The unused columns of the training data, and whether they decide labels.

    Args:
        places: name of each column in lower case → the column.
        used: the columns that are used.
    """

    def __init__(self, places: Mapping[str, Column], used: Collection[Column]) -> None:
        self._places = {
            name: column
            for name, column in places.items()
            if column not in used and name not in GUID.names
        }
        self._rows: list[tuple[int, int, _Values]] = []
        self._numeric = set(self._places)
        self._num_rows = 0

    def add(self, row: Row, texts: Sequence[str], label: int) -> bool:
        """Looks at a row, and returns whether to look at more.

        Args:
            row: the row.
            texts: its text, or its two.
            label: the index of its label among all values.
        """
        self._num_rows += 1
        if self._places:
            values = {name: value_in(row, column) for name, column in self._places.items()}
            self._numeric -= {name for name, value in values.items() if not _is_numeric(value)}
            hashes = {name: hash(repr(value)) for name, value in values.items()}
            self._rows.append((hash(tuple(texts)), label, hashes))
        return self._num_rows < MAX_ROWS

    def names(self) -> list[str]:
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

    def report(self, path: str, is_pair: bool) -> None:
        """Warns of the columns that decide labels.

        Args:
            path: the file.
            is_pair: whether there are two texts already.
        """
        names = self.names()
        if names:
            asked = "" if is_pair else f"pass --text_b_column={names[0]}, or "
            logging.warning(
                "%s: the same texts have different labels, and %s, which is not used, tells them "
                "apart. To use it, %swrite it into the text",
                *(path, files.quote_all(names), asked),
            )


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

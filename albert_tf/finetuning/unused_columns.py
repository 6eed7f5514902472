"""Finds columns that have texts, and are not used."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from absl import logging

from albert_tf import files
from albert_tf.finetuning.columns import NAMES_OF_INPUTS
from albert_tf.finetuning.rows import Column, Row

# Names of columns that are texts, besides those that are used by default.
_NAMES = NAMES_OF_INPUTS | {"title", "content", "body", "headline", "summary", "description"}
_WORD = re.compile(r"[^\W\d_]+")
_CHINESE = re.compile("[\u3400-\u9fff]")
_MIN_WORDS, _MIN_CHINESE = 3, 4  # in the mean over rows; fewer may be a category or a name
MAX_ROWS = 100  # which are looked at
FLAGS = "Pass --text_a_column, and --text_b_column for a second text, to say what is the text"


class UnusedTexts:
    """The unused columns of a file, and whether they have texts.

    Args:
        places: name of each column in lower case → the column.
        used: the columns that are used.
    """

    def __init__(self, places: Mapping[str, Column], used: Collection[Column]) -> None:
        self._places = {name: column for name, column in places.items() if column not in used}
        self._values: dict[str, list[str]] = {name: [] for name in self._places}
        self._num_rows = 0

    def add(self, row: Row) -> None:
        """Looks at a row, if it is one of the first."""
        if self._num_rows == MAX_ROWS:
            return
        self._num_rows += 1
        for name, column in self._places.items():
            value = _value(row, column)
            if isinstance(value, str) and value.strip():
                self._values[name].append(value)

    def report(self, path: str, advice: str = FLAGS) -> None:
        """Warns of the columns that have texts.

        Args:
            path: the file.
            advice: what to do if they are to be used.
        """
        names = self.names()
        if names:
            logging.warning(
                "%s: not used, but seems to have texts: %s. %s",
                path,
                files.quote_all(names),
                advice,
            )

    def names(self) -> list[str]:
        """Returns the names of the columns that have texts."""
        return [name for name, values in self._values.items() if _are_texts(name, values)]


def _value(row: Row, column: Column) -> files.Json:
    if isinstance(row, dict):
        return row.get(str(column))
    return row[int(column)] if int(column) < len(row) else None


def _are_texts(name: str, values: Sequence[str]) -> bool:
    """Returns whether a column has texts, by its name, or by its values in several rows."""
    if not values or len(set(values)) * 2 <= len(values):
        return False
    if name in _NAMES:
        return True
    words = sum(len(_WORD.findall(value)) for value in values)
    characters = sum(len(_CHINESE.findall(value)) for value in values)
    return words >= _MIN_WORDS * len(values) or characters >= _MIN_CHINESE * len(values)

"""Rows of text tables with their line numbers, and what becomes of bad ones.

Three forms: JSON lines, comma-separated with quotes, and tab-separated without quoting, as the
official programs read them. Nothing is left out in silence: a row that cannot be used stops the
program with its file and line, or, where some are allowed, is counted and reported.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from absl import logging

from albert_tf import files

MAX_REPORTED = 5

_HALF_PAIR = re.compile("[\ud800-\udfff]")  # JSON can spell one out

Column = int | str
Row = Sequence[str] | dict[str, Any]


class BadRowError(ValueError):
    """A row that cannot be used, and why."""


class ShortRowError(BadRowError):
    """A row with too few columns."""


class RowReports:
    """Counts the bad rows of a file and stops at one too many; the others go to the log.

    Args:
        path: the file.
        max_bad_rows: how many may be skipped.
    """

    def __init__(self, path: str, max_bad_rows: int) -> None:
        self.path, self.max_bad_rows = path, max_bad_rows
        self.num_bad = 0
        self._notes: dict[str, list[str]] = {}

    def bad(self, place: int | str, reason: str) -> None:
        """Counts a bad row.

        Args:
            place: its line, or other words for where it is.
            reason: what is wrong with it.

        Raises:
            ValueError: it is one too many; names file and place.
        """
        self.num_bad += 1
        if self.num_bad > self.max_bad_rows:
            raise ValueError(
                f"{self.path}, {_words(place)}: {reason}. Mend it, or let more than "
                f"--max_bad_rows={self.max_bad_rows} be skipped and counted."
            )
        self.note(place, f"skipped: {reason}"[:300])

    def note(self, place: int | str, what: str) -> None:
        """Remembers something about a row for `log`."""
        self._notes.setdefault(what, []).append(_words(place))

    def log(self) -> None:
        """Puts what was remembered into the log, each thing once with its first lines."""
        for what, places in self._notes.items():
            shown = "; ".join(places[:MAX_REPORTED]) + "; …" * (len(places) > MAX_REPORTED)
            logging.warning("%s: %s (%d: %s)", self.path, what, len(places), shown)
        if self.num_bad:
            logging.warning("%s: %d bad rows skipped in all", self.path, self.num_bad)


def _words(place: int | str) -> str:
    return f"line {place}" if isinstance(place, int) else place


def _lines(path: str) -> list[str]:
    """The lines of a file without blank ones at its end; only a line feed ends one, as official."""
    lines = files.read_text(path).split("\n")
    while lines and not lines[-1].strip():
        del lines[-1]
    return [line.removesuffix("\r") for line in lines]


def _tab_separated(path: str) -> Iterator[tuple[int, list[str] | BadRowError]]:
    for number, line in enumerate(_lines(path), 1):
        if "\r" in line:
            yield number, BadRowError("a carriage return inside a line; lines must end with \\n")
        else:
            yield number, line.split("\t")


def _comma_separated(path: str) -> Iterator[tuple[int, list[str]]]:
    text = files.read_text(path)
    csv.field_size_limit(max(len(text) + 1, csv.field_size_limit()))
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    line = 1
    try:
        for cells in reader:
            if cells:
                yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(f"{path}, line {line}: not comma-separated values ({error})") from None


def read_json_lines(path: str) -> Iterator[tuple[int, dict[str, Any] | BadRowError]]:
    """As `read_rows`, for a file of JSON lines of any name."""
    for number, line in enumerate(_lines(path), 1):
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError(f"{type(row).__name__} came")
        except (ValueError, RecursionError) as error:
            yield number, BadRowError(f"a JSON object was expected in this line: {error}")
        else:
            yield number, row


def read_rows(path: str) -> Iterator[tuple[int, Row | BadRowError]]:
    """Every row of a file with the line it begins at, counted from 1; a header is a row too.

    `.json` and `.jsonl` hold a JSON object a line, `.csv` commas and quotes, all others tabs.

    Returns:
        line, and the row's cells or JSON object, or what is wrong with it.

    Raises:
        FileNotFoundError: no such file.
        ValueError: not UTF-8, or CSV with quotes that do not match.
    """
    if path.endswith((".json", ".jsonl")):
        return read_json_lines(path)
    return _comma_separated(path) if path.endswith(".csv") else _tab_separated(path)


def is_file(path: str) -> bool:
    """Whether there is a file of this name."""
    try:
        with files.open_binary(path):
            return True
    except FileNotFoundError:
        return False


def cell(row: Row, column: Column) -> Any:
    """What a row has in a column: a number from 0 (or from the end: -1), or a JSON key.

    Raises:
        BadRowError: there is no such column; ShortRowError where the row is too short.
    """
    if isinstance(row, dict):
        if column not in row:
            raise BadRowError(f"no key {column!r} among {', '.join(map(repr, row)) or 'none'}")
        return row[str(column)]
    index = int(column)
    needed = index + 1 if index >= 0 else -index + 1  # a lone cell is no last one
    if len(row) < needed:
        raise ShortRowError(f"{needed} or more columns were expected, {len(row)} came")
    return row[index]


def text_cell(row: Row, column: Column) -> str:
    """As `cell`, for text; a JSON list of texts is joined by spaces.

    Raises:
        BadRowError: it is no text.
    """
    value = cell(row, column)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        value = " ".join(value)
    return check_text(value, repr(column))


def check_text(value: Any, what: str) -> str:
    """The value, if it is text that can be encoded.

    Raises:
        BadRowError: it is not; names `what` it is.
    """
    if not isinstance(value, str):
        raise BadRowError(f"{what} is {json.dumps(value)[:50]}, text was expected")
    if _HALF_PAIR.search(value):
        raise BadRowError(f"{what} holds half a surrogate pair, which is no character")
    return value

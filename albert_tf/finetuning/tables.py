"""Reads rows of tab-separated, comma-separated and JSON-lines files, and reports bad rows.

A bad row is skipped and reported, up to a limit; beyond it, it is an error that names the file and
the line.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from absl import logging

from albert_tf import files

MAX_REPORTED = 5

_JSON_ENDINGS = (".json", ".jsonl")
MAX_LINES_SEARCHED = 1000  # for quoted cells
MIN_QUOTED = 3
_QUOTED = re.compile(r'"(?:[^"]|"")*"')
_BLANK_END = re.compile(r"(\A|\n)\s*\Z")
_SURROGATE = re.compile("[\ud800-\udfff]")  # JSON can encode a lone surrogate

Column = int | str
Row = Sequence[str] | dict[str, Any]


class BadRowError(ValueError):
    """A row cannot be used; the message says why."""


class ShortRowError(BadRowError):
    """A row has too few columns."""


class RowReports:
    """Counts and logs the bad rows of a file, and raises an error if there are too many.

    Args:
        path: the file.
        max_bad_rows: number of bad rows that may be skipped.
    """

    def __init__(self, path: str, max_bad_rows: int) -> None:
        self.path, self.max_bad_rows = path, max_bad_rows
        self.num_bad = 0
        self._notes: dict[str, list[str]] = {}

    def bad(self, place: int | str, reason: str) -> None:
        """Counts a bad row.

        Args:
            place: line number of the row, or a description of where it is.
            reason: what is wrong with it.

        Raises:
            ValueError: there are more than `max_bad_rows`; the message names the file and the
                place.
        """
        self.num_bad += 1
        if self.num_bad > self.max_bad_rows:
            raise ValueError(
                f"{self.path}, {_words(place)}: {reason}. Correct the row, or "
                f"allow more bad rows than --max_bad_rows={self.max_bad_rows}: they are skipped "
                "and counted."
            )
        self.note(place, f"skipped: {reason}"[:300])

    def note(self, place: int | str, what: str) -> None:
        """Records a remark about a row for `log`."""
        self._notes.setdefault(what, []).append(_words(place))

    def log(self) -> None:
        """Logs each remark once, with the number of rows and the places of the first ones."""
        for what, places in self._notes.items():
            shown = "; ".join(places[:MAX_REPORTED]) + "; …" * (len(places) > MAX_REPORTED)
            logging.warning("%s: %s (%d: %s)", self.path, what, len(places), shown)
        if self.num_bad:
            logging.warning("%s: %d bad rows skipped in all", self.path, self.num_bad)


def _words(place: int | str) -> str:
    return f"line {place}" if isinstance(place, int) else place


def _read_text(path: str) -> str:
    """Returns the text of a file without blank lines at its end."""
    return _BLANK_END.sub("", files.read_text(path))


def looks_quoted(path: str) -> bool:
    """Returns whether a tab-separated file appears to quote its cells, as pandas and Excel do.

    It does if a quoted cell contains doubled quotation marks, or if there are several cells with a
    comma or a quotation mark and all of them are quoted. Neither occurs in unquoted text.
    """
    if path.endswith((".csv", *_JSON_ENDINGS)):
        return False
    lines = itertools.islice(io.StringIO(_read_text(path)), MAX_LINES_SEARCHED)
    cells = [cell for line in lines for cell in line.rstrip("\r\n").split("\t")]
    quoted = [cell for cell in cells if _QUOTED.fullmatch(cell)]
    if any('""' in cell[1:-1] for cell in quoted):
        return True
    special = sum('"' in cell or "," in cell for cell in cells)
    return len(quoted) == special >= MIN_QUOTED


def _read_cells(path: str, quoting: bool) -> Iterator[tuple[int, list[str] | BadRowError]]:
    is_csv = path.endswith(".csv")
    is_quoted = is_csv or quoting
    text = _read_text(path)
    csv.field_size_limit(max(len(text) + 1, csv.field_size_limit()))
    reader = csv.reader(
        io.StringIO(text, newline="\n"),
        delimiter="," if is_csv else "\t",
        quoting=csv.QUOTE_MINIMAL if is_quoted else csv.QUOTE_NONE,
        strict=True,
    )
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader, None)
        except csv.Error as error:
            if is_quoted:
                what = "comma-separated values" if is_csv else "what --quoting expects"
                raise ValueError(f"{path}, line {line}: not {what} ({error})") from None
            yield line, BadRowError("a carriage return or NUL character inside a line")
            continue
        if cells is None:
            return
        if cells or not is_csv:
            yield line, cells or [""]


def read_json_lines(path: str) -> Iterator[tuple[int, dict[str, Any] | BadRowError]]:
    """Yields rows like `read_rows`, from a JSON-lines file of any name."""
    for number, line in enumerate(io.StringIO(_read_text(path), newline="\n"), 1):
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError(f"got {type(row).__name__}")
        except (ValueError, RecursionError) as error:
            yield number, BadRowError(f"expected a JSON object in this line: {error}")
        else:
            yield number, row


def read_rows(path: str, quoting: bool = False) -> Iterator[tuple[int, Row | BadRowError]]:
    """Yields all rows of a file, including any header, with the lines at which they start.

    `.json` and `.jsonl` files have one JSON object per line. `.csv` files are comma-separated and
    may quote cells; their blank lines are skipped. All other files are tab-separated and without
    quoting, as in Google's programs.

    Args:
        path: the file.
        quoting: whether cells of tab-separated files may be quoted, too.

    Yields:
        The line number, starting at 1, and the row's cells or JSON object, or an error that says
        what is wrong with it.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is not UTF-8, or has unbalanced quotes.
    """
    return read_json_lines(path) if path.endswith(_JSON_ENDINGS) else _read_cells(path, quoting)


def cell(row: Row, column: Column) -> Any:
    """Returns the value in a column of a row.

    Args:
        row: cells or a JSON object.
        column: index of the cell (counted from the end if negative), or JSON key.

    Raises:
        ShortRowError: the row has too few columns.
        BadRowError: the JSON object does not have the key.
    """
    if isinstance(row, dict):
        if column not in row:
            raise BadRowError(f"no key {column!r} among {files.listed(row)}")
        return row[str(column)]
    index = int(column)
    needed = index + 1 if index >= 0 else -index + 1  # the only cell does not count as the last
    if len(row) < needed:
        hint = " (tabs separate them, and in .csv files commas)" if len(row) == 1 else ""
        if any(value.count('"') % 2 for value in row):
            hint = " (if a quoted cell contains a line break or tab, pass --quoting)"
        raise ShortRowError(f"expected {needed} or more columns, got {len(row)}{hint}")
    return row[index]


def text_cell(row: Row, column: Column) -> str:
    """Returns the text in a column of a row; a JSON list of strings is joined with spaces.

    Raises:
        BadRowError: see `cell`; or the value is not text.
    """
    value = cell(row, column)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        value = " ".join(value)
    return check_text(value, repr(column))


def check_name(value: Any, what: str) -> str:
    """Returns the value as stripped text that fits into a cell of a tab-separated file.

    Raises:
        BadRowError: the text is empty, contains a tab or a line break, or is not valid Unicode; the
            message starts with `what`.
    """
    name = check_text(str(value), what).strip()
    if not name or "\t" in name or len(name.splitlines()) > 1:
        raise BadRowError(
            f"{what} is {files.shown(name)}, expected text without tabs and line breaks"
        )
    return name


def check_text(value: Any, what: str) -> str:
    """Returns the value if it is text that can be encoded as UTF-8.

    Raises:
        BadRowError: the value is not such text; the message starts with `what`.
    """
    if not isinstance(value, str):
        raise BadRowError(f"{what} is {json.dumps(value)[:50]}, expected text")
    if _SURROGATE.search(value):
        raise BadRowError(f"{what} contains a lone surrogate, which is not a character")
    return value

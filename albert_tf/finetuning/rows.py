"""Reads rows of tab-separated, comma-separated and JSON-lines files, and reports bad rows.

A row is a list of cells or a JSON object. Readers yield (place, row), where the place is usually a
line number, and `parse_rows` turns rows that cannot be used into an error that names the file and
their places.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from albert_tf import files

MAX_BAD = 10  # bad rows in an error
MAX_CELL = 1 << 30  # characters
MAX_NAMED = 10  # labels in a message

# Formats.
TABS = "tsv"
QUOTED_TABS = "quoted tsv"
COMMAS = "csv"
JSON_LINES = "jsonl"
_ENDINGS = {".csv": COMMAS, ".json": JSON_LINES, ".jsonl": JSON_LINES}

_BLANK_END = re.compile(r"(\A|\n)\s*\Z")

Column = int | str
Row = Sequence[str] | files.JsonObject
PlaceType = TypeVar("PlaceType", int, str)  # a line number, or words that say where the row is
T = TypeVar("T")


class BadRowError(ValueError):
    """A row cannot be used; the message says why."""


class ShortRowError(BadRowError):
    """A row has too few columns."""


NumberedRow = tuple[int, Row | BadRowError]


def parse_rows(
    path: str,
    rows: Iterable[tuple[PlaceType, Row | BadRowError]],
    parse: Callable[[Row, PlaceType], T],
) -> Iterator[tuple[PlaceType, T]]:
    """Yields (place, `parse(row, place)`) of good rows, and then raises an error about bad ones.

    Args:
        path: the file.
        rows: pairs of a place and a row, or of a place and a BadRowError. The place is a line
            number, or says where the row is.
        parse: converts a row; raises BadRowError if it cannot be used.

    Raises:
        ValueError: there is a bad row; the message names the file, the place and the reason of the
            first ones.
    """
    bad = []
    for place, row in rows:
        try:
            if isinstance(row, BadRowError):
                raise row
            value = parse(row, place)
        except BadRowError as error:
            where = f"line {place}" if isinstance(place, int) else place
            bad.append(f"{path}, {where}: {error}")
            if len(bad) == MAX_BAD:
                break
        else:
            yield place, value
    if bad:
        raise ValueError("\n".join(bad))


def read(path: str, form: str = "", quoting: bool = False) -> Iterator[NumberedRow]:
    """Yields all rows of a file of examples; see `parse_lines`.

    Blank lines at the end are ignored. JSON lines must be objects.

    Args:
        path: the file.
        form: the format; by default, COMMAS for names that end in `.csv`, JSON_LINES for `.json`
            and `.jsonl`, and otherwise TABS.
        quoting: whether cells of tab-separated lines may be quoted.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is not UTF-8, or has unbalanced quotes.
    """
    form = form or _ENDINGS.get(os.path.splitext(path)[1], QUOTED_TABS if quoting else TABS)
    lines = io.StringIO(_BLANK_END.sub("", files.read_text(path)), newline="\n")
    for number, row in parse_lines(lines, form, path):
        if form == JSON_LINES and isinstance(row, list):
            row = BadRowError("expected a JSON object, got text")
        yield number, row


def parse_lines(lines: Iterable[str], form: str, path: str) -> Iterator[NumberedRow]:
    """Yields the rows of lines, including any header, with the lines at which they start.

    Args:
        lines: the lines.
        form: JSON_LINES for a JSON object or string per line; COMMAS for comma-separated cells,
            which may be quoted, where blank lines are skipped; QUOTED_TABS for tab-separated cells,
            which may be quoted; otherwise, tab-separated cells without quoting, as in Google's
            programs.
        path: the file, for messages.

    Yields:
        The line number, starting at 1, and the row's cells or JSON object, or an error that says
        what is wrong with it.

    Raises:
        ValueError: quotes are unbalanced.
    """
    if form in (COMMAS, QUOTED_TABS):
        yield from _quoted_rows(lines, form == COMMAS, path)
        return
    for number, line in enumerate(lines, 1):
        line = line.removesuffix("\n").removesuffix("\r")
        yield number, _json_row(line) if form == JSON_LINES else line.split("\t")


def _quoted_rows(lines: Iterable[str], is_csv: bool, path: str) -> Iterator[NumberedRow]:
    csv.field_size_limit(max(MAX_CELL, csv.field_size_limit()))
    reader = csv.reader(lines, delimiter="," if is_csv else "\t", strict=True)
    number = 1
    try:
        for cells in reader:
            if cells or not is_csv:
                yield number, cells or [""]
            number = reader.line_num + 1
    except csv.Error as error:
        what = "comma-separated values" if is_csv else "what --quoting expects"
        raise ValueError(f"{path}, line {number}: not {what} ({error})") from None


def _json_row(line: str) -> Row | BadRowError:
    """Returns the JSON object or string, as the only cell, of a line."""
    try:
        value = json.loads(line)
    except ValueError as error:
        value = error
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return value
    return BadRowError(
        f"expected one JSON object per line, got {files.quote(line)}. `jq -c '.[]'` converts an "
        "array"
    )


def abbreviate(names: Sequence[str], most: int = MAX_NAMED) -> str:
    """Returns the first of several labels or ids, for a message."""
    shown = list(names[:most])
    return ", ".join([*shown, "…"] if len(names) > most else shown)

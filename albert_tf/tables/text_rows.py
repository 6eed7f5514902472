"""Reads the rows of tab-separated, comma-separated and JSON lines, one line at a time."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator

from albert_tf import files
from albert_tf.tables.row import BadRowError, NumberedRow, Row

MAX_CELL = 1 << 30  # characters

# Formats.
TABS = "tsv"
QUOTED_TABS = "quoted tsv"
COMMAS = "csv"
JSON_LINES = "jsonl"


def decode_lines(
    stream: Iterable[bytes], path: str, keeps_blank_end: bool = False
) -> Iterator[str]:
    """Yields the lines of a UTF-8 file with their line feeds, without its byte order mark.

    Only a line feed ends a line, unless there is none: old Macs wrote carriage returns.

    Args:
        stream: the lines in bytes, as an open file yields them.
        path: the file, for messages.
        keeps_blank_end: whether blank lines at the end of the file are not left out.

    Raises:
        ValueError: a line is not UTF-8; the message names it.
    """
    blank = []
    for number, data in enumerate(_lines_of_old_macs(stream), 1):
        line = files.decode_utf8(data, path, number)
        if number == 1:
            line = line.removeprefix("\ufeff")
        if (not line or line.isspace()) and not keeps_blank_end:
            blank.append(line)
            continue
        if blank:
            yield from blank
            blank.clear()
        yield line


def _lines_of_old_macs(stream: Iterable[bytes]) -> Iterator[bytes]:
    """Yields lines, and instead of a single one that has no line feed those that it consists of."""
    for number, data in enumerate(stream):
        if number or data.endswith(b"\n") or b"\r" not in data:
            yield data
        else:
            yield from data.replace(b"\r", b"\n").splitlines(keepends=True)


def parse_lines(lines: Iterable[str], form: str, path: str) -> Iterator[NumberedRow]:
    """Yields the rows of lines, including any header, with the lines at which they start.

    Args:
        lines: the lines.
        form: JSON_LINES for a JSON object or string per line, and COMMAS for comma-separated cells,
            which may be quoted; both skip blank lines; QUOTED_TABS for tab-separated cells,
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
        if form != JSON_LINES:
            yield number, line.split("\t")
        elif line and not line.isspace():
            yield number, _json_row(line)


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
        value = files.load_json(line)
    except ValueError as error:
        value = error
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return value
    return BadRowError(
        f"expected one JSON object per line, got {files.quote(line)}. The objects of an array are "
        "read if the file begins with it"
    )

"""Reads the rows of tab-separated and comma-separated text, JSON lines and JSON arrays, in turn."""

from __future__ import annotations

import codecs
import csv
import io
import itertools
from collections.abc import Iterable, Iterator
from typing import IO

from albert_tf import files
from albert_tf.tables.json_stream import JsonStream
from albert_tf.tables.table import BadRowError, NumberedRow, Row

# Formats.
TABS = "tsv"
QUOTED_TABS = "quoted tsv"
COMMAS = "csv"
JSON_LINES = "jsonl"
JSON_ARRAY = "json array"  # which the content tells
FORMS_BY_SEPARATOR = {"": "", ",": COMMAS, "\t": QUOTED_TABS}
WRITE_RECORDS = 'pandas writes rows with to_json(path, orient="records", lines=True)'


def begins_array(start: bytes) -> bool:
    """Returns whether the first bytes of a file are those of a JSON array."""
    return start.removeprefix(codecs.BOM_UTF8).lstrip(b" \t\r\n").startswith(b"[")


def read_rows(
    stream: IO[bytes],
    form: str,
    path: str,
    takes_strings: bool = False,
    keeps_blank_end: bool = False,
) -> Iterator[NumberedRow]:
    """Yields the rows of a file with the numbers of their lines or items, starting at 1.

    Args:
        stream: the content of the file, at its start.
        form: its format.
        path: the file, for messages.
        takes_strings: whether a string in JSON is a row with one cell, instead of an error.
        keeps_blank_end: whether blank lines at the end of the file are rows.

    Raises:
        ValueError: the file is not of this format; the message names the line.
    """
    if form == JSON_ARRAY:
        numbered = _array_rows(stream, path)
    else:
        numbered = parse_lines(decode_lines(stream, path, keeps_blank_end), form, path)
    if takes_strings or form not in (JSON_LINES, JSON_ARRAY):
        yield from numbered
        return
    for number, row in numbered:
        is_string = isinstance(row, list)
        yield number, BadRowError("expected a JSON object, got text") if is_string else row


def _array_rows(stream: IO[bytes], path: str) -> Iterator[NumberedRow]:
    """Yields the objects of a JSON array, and its strings as the only cells of rows."""
    parsed = JsonStream(path, stream)
    for number, _ in enumerate(parsed.array_items(), 1):
        item = parsed.value()
        if isinstance(item, (dict, str)):
            yield number, [item] if isinstance(item, str) else item
        else:
            advice = f". {WRITE_RECORDS}" if isinstance(item, list) else ""
            yield number, BadRowError(f"expected a JSON object, got {files.quote(item)}{advice}")
    parsed.require_end()


def decode_lines(stream: IO[bytes], path: str, keeps_blank_end: bool = False) -> Iterator[str]:
    """Yields the lines of a UTF-8 file with their line feeds, without its byte order mark.

    Only a line feed ends a line, unless there is none: old Macs wrote carriage returns.

    Args:
        stream: the content of the file.
        path: the file, for messages.
        keeps_blank_end: whether blank lines at the end of the file are not left out.

    Raises:
        ValueError: a line is not UTF-8, or see `files.read_lines`; the message names it.
    """
    blank: list[str] = []
    counts: list[int] = []  # how often each of the blank lines is repeated
    for number, data in enumerate(_lines_of_old_macs(files.read_lines(stream, path)), 1):
        line = files.decode_utf8(data, path, number)
        if number == 1:
            line = line.removeprefix("\ufeff")
        if (not line or line.isspace()) and not keeps_blank_end:
            if blank and blank[-1] == line:
                counts[-1] += 1
            else:
                blank.append(line)
                counts.append(1)
            continue
        if blank:
            yield from itertools.chain.from_iterable(map(itertools.repeat, blank, counts))
            blank, counts = [], []
        yield line


def _lines_of_old_macs(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yields lines, and instead of a single one that has no line feed those that it consists of."""
    for number, data in enumerate(lines):
        if number or data.endswith(b"\n") or b"\r" not in data:
            yield data
        else:
            yield from io.BytesIO(data.replace(b"\r", b"\n"))


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
        ValueError: quotes are unbalanced, or a row is longer than `files.MAX_LINE`.
    """
    if form in (COMMAS, QUOTED_TABS):
        yield from _quoted_rows(lines, form == COMMAS, path)
        return
    is_first = True
    for number, line in enumerate(lines, 1):
        line = line.removesuffix("\n").removesuffix("\r")
        if form != JSON_LINES:
            yield number, line.split("\t")
        elif line and not line.isspace():
            row = _json_row(line)
            yield number, _whole_table_error(line) if is_first and is_whole_table(row) else row
            is_first = False


def _quoted_rows(lines: Iterable[str], is_csv: bool, path: str) -> Iterator[NumberedRow]:
    csv.field_size_limit(max(files.MAX_LINE, csv.field_size_limit()))
    length = 0  # of the row, which may have quoted line feeds

    def measured() -> Iterator[str]:
        nonlocal length
        for line in lines:
            length += len(line)
            if length > files.MAX_LINE:
                raise csv.Error(f"a row longer than {files.MAX_LINE >> 20} MiB")
            yield line

    reader = csv.reader(measured(), delimiter="," if is_csv else "\t", strict=True)
    number = 1
    try:
        for cells in reader:
            if cells or not is_csv:
                yield number, cells or [""]
            number = reader.line_num + 1
            length = 0
    except csv.Error as error:
        what = "comma-separated values" if is_csv else "what --quoting expects"
        raise ValueError(f"{path}, line {number}: not {what} ({error})") from None


def _json_row(line: str) -> Row | BadRowError:
    """Returns the JSON object or string, as the only cell, of a line."""
    try:
        value = files.load_json(line, is_row=True)
    except files.RepeatedNameError as error:
        return BadRowError(str(error))
    except ValueError as error:
        value = error
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return value
    advice = f". {WRITE_RECORDS}" if line.strip() == "{" else ""  # an object of many lines
    return BadRowError(
        f"expected one JSON object per line, got {files.quote(line)}. The objects of an array are "
        f"read if the file begins with it{advice}"
    )


def _whole_table_error(line: str) -> BadRowError:
    return BadRowError(
        f"expected one JSON object per row, got a whole table, {files.quote(line)}. {WRITE_RECORDS}"
    )


def is_whole_table(value: files.Json) -> bool:
    """Returns whether an object is a table as `DataFrame.to_json` of pandas writes it by default.

    That is column → index → value, or, as `orient` says, the reverse, {"columns": …, "data": …} or
    {"schema": …, "data": …}.
    """
    if not isinstance(value, dict):
        return False
    if isinstance(value.get("data"), list):
        return isinstance(value.get("columns"), list) or isinstance(value.get("schema"), dict)
    inner = list(value.values())
    if not inner or not all(isinstance(cells, dict) and cells for cells in inner):
        return False
    keys = list(inner[0])
    is_table = all(list(cells) == keys for cells in inner)
    return is_table and any(all(key.isdecimal() for key in names) for names in (value, keys))

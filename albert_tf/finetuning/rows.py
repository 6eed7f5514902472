"""Reads rows of tab-separated, comma-separated and JSON-lines files, and reports bad rows.

A row is a list of cells or a JSON object. Readers yield (place, row), where the place is usually a
line number, and `parse_rows` turns rows that cannot be used into an error that names the file and
their places.
"""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from albert_tf import files

MAX_BAD = 10  # bad rows in an error
MAX_CELL = 1 << 30  # characters
MAX_NAMED = 10  # labels in a message
MAX_LABELS = 1000  # more indicate a wrong column

# Formats.
TABS = "tsv"
QUOTED_TABS = "quoted tsv"
COMMAS = "csv"
JSON_LINES = "jsonl"
_ENDINGS = {".csv": COMMAS, ".json": JSON_LINES, ".jsonl": JSON_LINES}

_BLANK_END = re.compile(r"(\A|\n)\s*\Z")
_SURROGATE = re.compile("[\ud800-\udfff]")  # JSON can encode a lone surrogate

Column = int | str
Row = Sequence[str] | dict[str, Any]
Place = int | str
T = TypeVar("T")


class BadRowError(ValueError):
    """A row cannot be used; the message says why."""


class ShortRowError(BadRowError):
    """A row has too few columns."""


NumberedRow = tuple[int, Row | BadRowError]


def parse_rows(
    path: str, rows: Iterable[tuple[Place, Any]], parse: Callable[[Any, Any], T]
) -> Iterator[tuple[Any, T]]:
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


def find_file(data_dir: str, split: str, extensions: Sequence[str]) -> str:
    """Returns the path of the file of a split, which has one of some extensions.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: there are several.
    """
    names = [split + extension for extension in extensions]
    existing = [name for name in names if files.is_file(os.path.join(data_dir, name))]
    if not existing:
        raise FileNotFoundError(f"{data_dir}: contains no {' or '.join(names)}")
    if len(existing) > 1:
        raise ValueError(f"{data_dir} contains {' and '.join(existing)}: keep only one of them")
    return os.path.join(data_dir, existing[0])


def normalized(names: Iterable[str]) -> list[str]:
    """Returns names of columns as they are compared."""
    return [name.strip().lower() for name in names]


def find_header(row: Row | BadRowError, names: Collection[str]) -> list[str]:
    """Returns the names of the columns if the first row is a header: if it has one of `names`.

    Args:
        row: the first row of a file.
        names: the names, in lower case, by which a header is recognized.

    Returns:
        The cells in lower case; [] if the row is not a header.
    """
    cells = [] if isinstance(row, (dict, BadRowError)) else normalized(row)
    return [] if set(names).isdisjoint(cells) else cells


def abbreviate(names: Sequence[str], most: int = MAX_NAMED) -> str:
    """Returns the first of several labels or ids, for a message."""
    return ", ".join(names[:most]) + ", …" * (len(names) > most)


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
            raise BadRowError(f"no key {column!r} among {files.quote_all(row)}")
        return row[str(column)]
    index = int(column)
    needed = index + 1 if index >= 0 else -index + 1  # the only cell does not count as the last
    if len(row) < needed:
        raise ShortRowError(
            f"expected {needed} or more columns, got {len(row)}. Tabs separate them, in .csv files "
            "commas; if cells are quoted, pass --quoting"
        )
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


def check_number_of_labels(labels: Sequence[str], path: str) -> None:
    """Raises ValueError if a file has fewer than two labels, or more than MAX_LABELS."""
    if not 2 <= len(labels) <= MAX_LABELS:
        raise ValueError(
            f"{path}: {len(labels)} different labels ({abbreviate(labels)}), expected 2 to "
            f"{MAX_LABELS}. Is --label_column right?"
        )


def check_name(value: Any, what: str) -> str:
    """Returns the value as stripped text that fits into a cell of a tab-separated file.

    Raises:
        BadRowError: the text is empty, contains a tab or a line break, or is not valid Unicode; the
            message starts with `what`.
    """
    name = check_text(str(value), what).strip()
    if not name or "\t" in name or len(name.splitlines()) > 1:
        raise BadRowError(
            f"{what} is {files.quote(name)}, expected text without tabs and line breaks"
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


ExampleType = TypeVar("ExampleType")


@dataclasses.dataclass(frozen=True)
class Examples(Generic[ExampleType]):
    """The examples of a split.

    Attributes:
        path: the file or folder, or where else they are from.
        examples: all usable examples, in the order of the file. Their `repr` says everything that a
            model learns from them, and is the same in every process.
        has_labels: whether the labels of every example are known.

    Raises:
        ValueError: there is no example.
    """

    path: str
    examples: list[ExampleType]
    has_labels: bool = False

    def __post_init__(self) -> None:
        if not self.examples:
            raise ValueError(f"{self.path}: contains no example")

    def __len__(self) -> int:
        return len(self.examples)

    def checksum(self) -> str:
        """Returns the SHA-256 of all examples, in hexadecimal."""
        digest = hashlib.sha256()
        for example in self.examples:
            digest.update(repr(example).encode("utf-8"))
        return digest.hexdigest()


# Usual names of the columns with the texts, in lower case; the first one found is used.
TEXT_A = ("text_a", "sentence1", "sentence", "text")
TEXT_B = ("text_b", "sentence2")


def parse_pair(row: Row) -> tuple[str, str]:
    """Returns the two texts of a pair; the second is "" if the row has one text."""
    if not isinstance(row, dict):
        first, second = [*unnamed_texts(row, 2), ""][:2]
        return first, second
    return named_text(row, TEXT_A), named_text(row, TEXT_B, "")


def parse_text(row: Row) -> str:
    """Returns the text of a row."""
    return named_text(row, TEXT_A) if isinstance(row, dict) else unnamed_texts(row, 1)[0]


def unnamed_texts(row: Sequence[str], most: int) -> Sequence[str]:
    """Returns the cells of a row of a file without a header.

    Raises:
        BadRowError: there are more than `most`, the number of texts that the task takes; or one
            contains a lone surrogate.
    """
    if len(row) > most:
        raise BadRowError(
            f"expected {most} or fewer columns, got {len(row)}. Remove the tabs, or name the "
            "columns in the first line of a .tsv or .csv file"
        )
    return [check_text(cell, "the text") for cell in row]


def named_text(row: dict[str, Any], names: Sequence[str], default: str | None = None) -> str:
    """Returns the text in the column with the first of `names` that the row contains.

    Raises:
        BadRowError: there is no such column, and no default.
    """
    name = next((name for name in names if name in row), None)
    if name is not None:
        return text_cell(row, name)
    if default is None:
        expected = " or ".join(map(repr, names))
        raise BadRowError(f"expected {expected}, found {files.quote_all(row)}")
    return default

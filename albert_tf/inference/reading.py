"""Reads inputs for prediction from files and pipes, without TensorFlow.

Rows from a pipe are yielded as soon as they arrive, so that each line is answered immediately.
"""

from __future__ import annotations

import collections
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, TypeVar

from absl import logging

from albert_tf import files
from albert_tf.classification.reading import USUAL_NAMES, unread_texts
from albert_tf.finetuning import tables
from albert_tf.finetuning.tables import COMMAS, TABS, BadRowError, NumberedRow, Row, RowReports
from albert_tf.inference.settings import STANDARD_INPUT
from albert_tf.race import reading as race
from albert_tf.race.reading import Question

ROWS_AT_ONCE = 1024  # rows in a block; sorted by length and batched together
_BYTES_AT_ONCE = 1 << 20
_QUESTION = "question"
_CONTEXT = "context"
_PASSAGE = "passage"
_TOKENS = "tokens"
# A first line with one of these names is a header.
_NAMES = {*USUAL_NAMES["text_a"], _QUESTION, _CONTEXT, _PASSAGE, _TOKENS}

InputType = TypeVar("InputType")


class _Lines:
    """Iterates over the decoded lines of a stream; invalid bytes become unpaired surrogates.

    Attributes:
        is_waiting: whether the next line has not been read from the stream yet.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream: Any = stream
        self._ready: collections.deque[bytes] = collections.deque()

    @property
    def is_waiting(self) -> bool:
        return not self._ready

    def __iter__(self) -> Iterator[str]:
        encoding = "utf-8-sig"
        data = b"\n"
        rest = b""
        while data:
            data = self._stream.read1(_BYTES_AT_ONCE)  # as much as there is
            *lines, rest = (rest + data).split(b"\n")
            self._ready.extend(lines if data or not rest else [rest])
            while self._ready:
                line = self._ready.popleft().removesuffix(b"\r")
                yield line.decode(encoding, "surrogateescape")
                encoding = "utf-8"


def _rows(lines: _Lines, form: str, path: str) -> Iterator[NumberedRow]:
    """Yields (line, row), with the line number where the row begins; names columns by a header."""
    rows = tables.parse_rows((line + "\n" for line in lines), form, path)
    return _with_names(rows) if form in (TABS, COMMAS) else rows


def _with_names(rows: Iterator[NumberedRow]) -> Iterator[NumberedRow]:
    """Yields rows as name → value if the first row is a header; otherwise, as they are."""
    header: Sequence[str] = ()
    for number, (line, row) in enumerate(rows):
        if isinstance(row, BadRowError):
            yield line, row
            continue
        if not number and (header := tables.find_header(row, _NAMES)):
            continue
        if not header:
            yield line, row
        elif len(row) != len(header):
            expected = f"expected {len(header)} columns, as in the header, got {len(row)}"
            yield line, BadRowError(expected)
        else:
            yield line, dict(zip(header, row, strict=True))


def read_blocks(
    path: str, form: str, parse: Callable[[Row], InputType]
) -> Iterator[list[tuple[int, InputType]]]:
    """Yields blocks of (line, input); for a pipe, a block holds the lines available so far.

    A file is read completely before the first block, so that bad rows are reported at once.

    Args:
        path: the file, or `STANDARD_INPUT`.
        form: the format, one of `settings.FORMATS`.
        parse: converts a row to an input; raises `BadRowError`.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: there are bad rows, or no rows; the message names the file and the lines.
    """
    if path == STANDARD_INPUT:
        reports = RowReports("standard input")
        yield from _blocks(sys.stdin.buffer, form, parse, reports, waits=True)
        return
    with files.open_binary(path) as stream:
        reports = RowReports(path)
        blocks = list(_blocks(stream, form, parse, reports, waits=False))
    yield from blocks


def _blocks(
    stream: IO[bytes],
    form: str,
    parse: Callable[[Row], InputType],
    reports: RowReports,
    waits: bool,
) -> Iterator[list[tuple[int, InputType]]]:
    lines = _Lines(stream)
    block: list[tuple[int, InputType]] = []
    is_empty = True
    for line, row in _rows(lines, form, reports.path):
        is_first, is_empty = is_empty, False
        try:
            if isinstance(row, BadRowError):
                raise row
            block.append((line, parse(row)))
            if is_first:
                _warn_of_unread_text(row, block[0][1], reports.path)
        except BadRowError as error:
            reports.bad(line, str(error))
            if waits:
                if block:
                    yield block  # answer the rows before the bad one first
                reports.check()
        if block and (len(block) == ROWS_AT_ONCE or (waits and lines.is_waiting)):
            yield block
            block = []
    reports.check()
    if is_empty:
        raise ValueError(f"{reports.path}: contains no input")
    if block:
        yield block


def _warn_of_unread_text(row: Row, given: Any, path: str) -> None:
    """Logs a warning if one of two texts was found in a row, and there is text in other columns."""
    is_single = isinstance(given, tuple) and given[1:] == ("",)
    if not isinstance(row, dict) or not is_single:
        return
    known = {name for names in USUAL_NAMES.values() for name in names if name in row}
    if unread := unread_texts(row, known):
        logging.warning(
            "%s: only one column is read as text, and there is text in %s, too. For pairs of "
            "texts, call the second one text_b",
            path,
            files.quote_all(unread),
        )


# Parsers for the inputs of the tasks.


def parse_pair(row: Row) -> tuple[str, str]:
    """Returns the two texts of a pair; the second is "" if the row has one text."""
    if not isinstance(row, dict):
        first, second = [*_unnamed(row, 2), ""][:2]
        return first, second
    return _named(row, USUAL_NAMES["text_a"]), _named(row, USUAL_NAMES["text_b"], "")


def parse_text(row: Row) -> str:
    """Returns the text of a row."""
    return _named(row, USUAL_NAMES["text_a"]) if isinstance(row, dict) else _unnamed(row, 1)[0]


def parse_words(row: Row) -> str | list[str]:
    """Returns the text or the list of tokens of a row."""
    if not isinstance(row, dict) or _TOKENS not in row:
        return parse_text(row)
    tokens = row[_TOKENS]
    if not isinstance(tokens, list):
        raise BadRowError(f"{_TOKENS!r}: expected a list, got {json.dumps(tokens)[:50]}")
    return [tables.check_text(token, "a token") for token in tokens]


def parse_question(row: Row) -> tuple[str, str]:
    """Returns the question and the context of a row."""
    if isinstance(row, dict):
        texts = _named(row, (_QUESTION,)), _named(row, (_CONTEXT, _PASSAGE))
    else:
        cells = _unnamed(row, 2)
        texts = tables.text_cell(cells, 0), tables.text_cell(cells, 1)
    for name, text in zip((_QUESTION, _CONTEXT), texts, strict=True):
        if not text.strip():
            raise BadRowError(f"the {name} is empty")
    return texts


def parse_choice(row: Row) -> Question:
    """Returns the multiple-choice question of a row."""
    if not isinstance(row, dict):
        raise BadRowError("expected a JSON object with passage, question and options")
    return race.parse_question({key: row[key] for key in row if key != "label"}, "test", 1)


def _unnamed(row: Sequence[str], most: int) -> Sequence[str]:
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
    return [tables.check_text(cell, "the text") for cell in row]


def _named(row: dict[str, Any], names: Sequence[str], default: str | None = None) -> str:
    """Returns the text in the column with the first of `names` that the row contains."""
    name = next((name for name in names if name in row), None)
    if name is not None:
        return tables.text_cell(row, name)
    if default is None:
        expected = " or ".join(map(repr, names))
        raise BadRowError(f"expected {expected}, found {files.quote_all(row)}")
    return default

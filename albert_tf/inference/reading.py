"""Reads inputs for prediction from files and pipes, without TensorFlow.

Rows from a pipe are yielded as soon as they arrive, so that each line is answered immediately.
"""

from __future__ import annotations

import collections
import itertools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, TypeVar

from albert_tf import files
from albert_tf.classification.reading import ALL_NAMES, USUAL_NAMES, warn_of_unread_text
from albert_tf.finetuning import rows
from albert_tf.finetuning.rows import COMMAS, TABS, BadRowError, NumberedRow, Row, RowReports
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


def _with_names(numbered: Iterator[NumberedRow]) -> Iterator[NumberedRow]:
    """Yields rows as name → value if the first row is a header; otherwise, as they are."""
    first = next(numbered, None)
    if first is None:
        return
    header = rows.find_header(first[1], _NAMES)
    if not header:
        yield first
    for line, row in numbered:
        if not header or isinstance(row, BadRowError):
            yield line, row
        elif len(row) == len(header):
            yield line, dict(zip(header, row, strict=True))
        else:
            expected = f"expected {len(header)} columns, as in the header, got {len(row)}"
            yield line, BadRowError(expected)


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
        yield from _blocks(sys.stdin.buffer, form, parse, "standard input", waits=True)
        return
    with files.open_binary(path) as stream:
        blocks = list(_blocks(stream, form, parse, path, waits=False))
    yield from blocks


def _blocks(
    stream: IO[bytes], form: str, parse: Callable[[Row], InputType], path: str, waits: bool
) -> Iterator[list[tuple[int, InputType]]]:
    lines = _Lines(stream)
    numbered = rows.parse_lines((line + "\n" for line in lines), form, path)
    if form in (TABS, COMMAS):
        numbered = _with_names(numbered)
    first = next(numbered, None)
    if first is None:
        raise ValueError(f"{path}: contains no input")

    def parse_row(row: Row, line: int) -> InputType:
        given = parse(row)
        if line == first[0]:
            _warn_of_unread_text(row, given, path)
        return given

    reports = RowReports(path, stops_at_once=waits)
    block: list[tuple[int, InputType]] = []
    try:
        for place, given in reports.parsed(itertools.chain([first], numbered), parse_row):
            block.append((place, given))
            if len(block) == ROWS_AT_ONCE or (waits and lines.is_waiting):
                yield block
                block = []
        reports.check()
    except ValueError:
        if block:
            yield block  # answer the rows before the bad one first
        raise
    if block:
        yield block


def _warn_of_unread_text(row: Row, given: Any, path: str) -> None:
    """Logs a warning if one of two texts was found in a row, and there is text in other columns."""
    is_single = isinstance(given, tuple) and given[1:] == ("",)
    if isinstance(row, dict) and is_single:
        warn_of_unread_text(path, ((name, row[name]) for name in row if name not in ALL_NAMES))


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
    return [rows.check_text(token, "a token") for token in tokens]


def parse_question(row: Row) -> tuple[str, str]:
    """Returns the question and the context of a row."""
    if isinstance(row, dict):
        texts = _named(row, (_QUESTION,)), _named(row, (_CONTEXT, _PASSAGE))
    else:
        cells = _unnamed(row, 2)
        texts = rows.text_cell(cells, 0), rows.text_cell(cells, 1)
    for name, text in zip((_QUESTION, _CONTEXT), texts, strict=True):
        if not text.strip():
            raise BadRowError(f"the {name} is empty")
    return texts


def parse_choice(row: Row) -> Question:
    """Returns the multiple-choice question of a row."""
    if not isinstance(row, dict):
        raise BadRowError("expected a JSON object with passage, question and options")
    return race.parse_question({key: row[key] for key in row if key != "label"}, "test")


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
    return [rows.check_text(cell, "the text") for cell in row]


def _named(row: dict[str, Any], names: Sequence[str], default: str | None = None) -> str:
    """Returns the text in the column with the first of `names` that the row contains."""
    name = next((name for name in names if name in row), None)
    if name is not None:
        return rows.text_cell(row, name)
    if default is None:
        expected = " or ".join(map(repr, names))
        raise BadRowError(f"expected {expected}, found {files.quote_all(row)}")
    return default

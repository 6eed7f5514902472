"""Reads inputs for prediction from files and pipes, without TensorFlow.

Rows from a pipe are yielded as soon as they arrive, so that each line is answered immediately.
"""

from __future__ import annotations

import collections
import itertools
import sys
from collections.abc import Callable, Iterator
from typing import IO, Any, TypeVar

from albert_tf import files
from albert_tf.finetuning import rows
from albert_tf.finetuning.classification.reading import ALL_NAMES, warn_of_unread_text
from albert_tf.finetuning.rows import (
    COMMAS,
    TABS,
    TEXT_A,
    BadRowError,
    NumberedRow,
    Row,
    RowReports,
)
from albert_tf.inference.settings import STANDARD_INPUT

ROWS_AT_ONCE = 1024  # rows in a block; sorted by length and batched together
_BYTES_AT_ONCE = 1 << 20
# A first line with one of these names is a header.
_NAMES = {*TEXT_A, "question", "context", "passage", "tokens"}

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

"""Finds the lines of a column file that are tokens, and the sentences that they belong to.

Blank lines and the document marks of CoNLL-2003 end sentences. What else is no token is left out
and counted:

* comments, such as `# text = …` of CoNLL-U, the sources of GermEval and `#begin document` of
  OntoNotes. Hashtags are tokens: they have as many columns as other tokens;
* in files whose first column counts the tokens, the ranges of CoNLL-U (`3-4`, a contraction whose
  parts follow) and its empty nodes (`5.1`).
"""

from __future__ import annotations

import collections
import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from absl import logging

from albert_tf import files

DOCUMENT_START = "-DOCSTART-"
COMMENT = "#"

_DOCUMENT = re.compile("#(begin|end) document")  # of OntoNotes
# What the first column of lines that are no tokens has in CoNLL-U.
_RANGE = re.compile(r"(\d+)-(\d+)")
_EMPTY_NODE = re.compile(r"(\d+)\.\d+")
_SPACES = re.compile(" +")
_SAMPLE = 1000  # lines that tell the number of columns

Line = tuple[int, list[str]]  # its number, starting at 1, and its columns
Lines = Callable[[], Iterable[str]]


def find_sentences(
    path: str, read_lines: Lines, token_column: int, label_column: int
) -> Iterator[list[Line]]:
    """Yields the lines of the tokens of each sentence.

    Args:
        path: the file, for messages.
        read_lines: reads its lines, from the first one on.
        token_column: index of the column of the tokens.
        label_column: index of the column of the labels.

    Raises:
        ValueError: the tokens are their numbers.
    """
    layout = _Layout(read_lines, label_column)
    is_first = token_column in (0, -layout.width)
    left_out: dict[str, tuple[int, int, str]] = {}  # their number, and the first one
    numbering = _Numbering()
    for block in _blocks(read_lines()):
        numbers = set() if is_first else {text.split(maxsplit=1)[0] for _, text in block}
        sentence = []
        for number, text in block:
            kind = "comment" if text[0] == COMMENT and layout.is_comment(text) else ""
            if numbers and not kind:
                kind = _kind_of_number(text.split(maxsplit=1)[0], numbers)
            if kind:
                count, first, line = left_out.get(kind, (0, number, text))
                left_out[kind] = count + 1, first, line
            else:
                sentence.append((number, layout.cells(text)))
        if sentence:
            if is_first:
                numbering.add(sentence)
            yield sentence
    for kind, (count, first, line) in left_out.items():
        logging.info(
            "%s: left out as no token: %d × %s; the first is line %d, %s",
            *(path, count, kind, first, files.quote(line)),
        )
    numbering.check(path)


class _Layout:
    """The columns of a file.

    Args:
        read_lines: reads the lines of the file.
        label_column: index of the column of the labels.

    Attributes:
        width: the number of columns of most tokens.
    """

    def __init__(self, read_lines: Lines, label_column: int) -> None:
        self._read_lines = read_lines
        self._label_column = label_column
        sample = [line for line in itertools.islice(read_lines(), _SAMPLE) if line.strip()]
        tokens = [line for line in sample if not line.startswith(COMMENT)] or sample
        widths = collections.Counter(len(_columns(line)) for line in tokens)
        self.width = max(widths, key=lambda size: widths[size], default=1)

    def cells(self, text: str) -> list[str]:
        """Returns the columns of a token, which may be a space, before those that separate them."""
        cells = _columns(text)
        is_space = text[0] == " " and "\t" not in text and len(cells) == self.width - 1
        return [" ", *cells] if is_space else cells

    def is_comment(self, text: str) -> bool:
        """Returns whether a line that starts with "#" is a comment, and not a hashtag."""
        cells = _columns(text)
        if len(cells) != self.width or cells[0].startswith("# ") or _DOCUMENT.match(text):
            return True
        is_alone = cells[0] == COMMENT and bool(self._labels)
        return is_alone and self._label(cells) not in self._labels

    @functools.cached_property
    def _labels(self) -> set[str]:
        """The labels of the lines that do not start with "#"."""
        if self.width == 1:
            return set()
        lines = self._read_lines()
        tokens = (line for line in lines if line.strip() and not line.startswith(COMMENT))
        return {self._label(_columns(line)) for line in tokens} - {""}

    def _label(self, cells: Sequence[str]) -> str:
        """Returns the label of a line; "" if there is no such column."""
        column = self._label_column
        return cells[column] if -len(cells) <= column < len(cells) else ""


class _Numbering:
    """Whether the tokens of all sentences are 1, 2, 3 and so on."""

    def __init__(self) -> None:
        self._line = 0
        self._longest = 0
        self._is_counted = True

    def add(self, sentence: Sequence[Line]) -> None:
        """Looks at a sentence."""
        self._line = self._line or sentence[0][0]
        if self._is_counted:
            numbers = [cells[0] for _, cells in sentence if cells[0].isdecimal()]
            self._longest = max(self._longest, len(numbers))
            self._is_counted = bool(numbers) and numbers == [
                str(number) for number in range(1, len(numbers) + 1)
            ]

    def check(self, path: str) -> None:
        """Raises ValueError if they are, and there are more than two in one."""
        if self._is_counted and self._longest > 2:
            raise ValueError(
                f"{path}, line {self._line}: the first column counts the tokens of each sentence. "
                "Pass the columns that have the tokens and the labels: in CoNLL-U, "
                "--token_column=1 --label_column=3 are words and their parts of speech"
            )


def _blocks(lines: Iterable[str]) -> Iterator[list[tuple[int, str]]]:
    """Yields the lines between blank lines and document marks."""
    block: list[tuple[int, str]] = []
    for number, text in enumerate(lines, 1):
        line = text.rstrip("\r")
        if line.strip(" \t") and not line.startswith(DOCUMENT_START):
            block.append((number, line))
        elif block:
            yield block
            block = []
    if block:
        yield block


def _columns(line: str) -> list[str]:
    """Returns the columns of a line, which tabs or else spaces separate."""
    # Not `split()`, because an ideographic space can be a token of Chinese text.
    line = line.rstrip("\r")
    return line.split("\t") if "\t" in line else _SPACES.split(line.strip(" "))


def _kind_of_number(number: str, numbers: set[str]) -> str:
    """Returns what a line is by its number, if it is no token; or "".

    Args:
        number: the first column.
        numbers: the first columns of the sentence.
    """
    if not number[:1].isdecimal() or number.isdecimal():
        return ""
    found = _RANGE.fullmatch(number)
    if found and numbers.issuperset(found.groups()):
        return "range of tokens"
    found = _EMPTY_NODE.fullmatch(number)
    if found and (found[1] in numbers or (found[1] == "0" and "1" in numbers)):
        return "empty node"
    return ""

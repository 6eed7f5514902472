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
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from absl import logging

from albert_tf import files

DOCUMENT_START = "-DOCSTART-"
COMMENT = "#"

_DOCUMENT = re.compile("#(begin|end) document")  # of OntoNotes
# What the first column of lines that are no tokens has in CoNLL-U.
_RANGE = re.compile(r"(\d+)-(\d+)")
_EMPTY_NODE = re.compile(r"(\d+)\.\d+")


class TokenLine(NamedTuple):
    """A line of a file: its number, starting at 1, its text, and its columns."""

    number: int
    text: str
    cells: list[str]


def find_sentences(
    path: str, lines: Iterable[str], token_column: int, label_column: int
) -> list[list[TokenLine]]:
    """Returns the lines of the tokens of each sentence.

    Args:
        path: the file, for messages.
        lines: its lines.
        token_column: index of the column of the tokens.
        label_column: index of the column of the labels.

    Raises:
        ValueError: the tokens are their numbers.
    """
    blocks = list(_blocks(lines))
    everything = [line for block in blocks for line in block]
    tokens = [line.cells for line in everything if not line.text.startswith(COMMENT)]
    widths = collections.Counter(map(len, tokens or [line.cells for line in everything]))
    width = max(widths, key=lambda size: widths[size], default=1)
    labels = {_label(cells, label_column) for cells in tokens if width > 1} - {""}
    is_first = token_column in (0, -width)
    left_out: dict[str, list[TokenLine]] = {}
    sentences = []
    for block in blocks:
        sentence = []
        numbers = set() if is_first else {line.cells[0] for line in block}
        for line in block:
            is_comment = _is_comment(line, width, labels, label_column)
            kind = "comment" if is_comment else _kind_of_number(line.cells[0], numbers)
            if kind:
                left_out.setdefault(kind, []).append(line)
            else:
                sentence.append(line._replace(cells=_with_space(line, width)))
        if sentence:
            sentences.append(sentence)
    _report(path, left_out)
    if is_first:
        _refuse_numbers(path, sentences)
    return sentences


def _blocks(lines: Iterable[str]) -> Iterator[list[TokenLine]]:
    """Yields the lines between blank lines and document marks."""
    block: list[TokenLine] = []
    for number, text in enumerate(lines, 1):
        line = text.rstrip("\r")
        if line.strip(" \t") and not line.startswith(DOCUMENT_START):
            block.append(TokenLine(number, line, _columns(line)))
        elif block:
            yield block
            block = []
    if block:
        yield block


def _columns(line: str) -> list[str]:
    """Returns the columns of a line, which tabs or else spaces separate."""
    # Not `split()`, because an ideographic space can be a token of Chinese text.
    return line.split("\t") if "\t" in line else re.split(" +", line.strip(" "))


def _with_space(line: TokenLine, width: int) -> list[str]:
    """Returns the columns of a token, the first of which may be a space, before other spaces."""
    is_space = line.text.startswith(" ") and "\t" not in line.text and len(line.cells) == width - 1
    return [" ", *line.cells] if is_space else line.cells


def _is_comment(line: TokenLine, width: int, labels: set[str], label_column: int) -> bool:
    """Returns whether a line is a comment, and not a hashtag.

    Args:
        line: the line.
        width: the number of columns of tokens.
        labels: the labels of the lines that do not start with "#".
        label_column: index of the column of the labels.
    """
    first = line.cells[0]
    if not first.startswith(COMMENT):
        return False
    if len(line.cells) != width or first.startswith("# ") or _DOCUMENT.match(line.text):
        return True
    return first == COMMENT and bool(labels) and _label(line.cells, label_column) not in labels


def _label(cells: Sequence[str], column: int) -> str:
    """Returns the label in a column; "" if there is no such column."""
    return cells[column] if -len(cells) <= column < len(cells) else ""


def _kind_of_number(number: str, numbers: set[str]) -> str:
    """Returns what a line is by its number, if it is no token; or "".

    Args:
        number: the first column.
        numbers: the first columns of the sentence; empty if they are its tokens.
    """
    found = _RANGE.fullmatch(number)
    if found and numbers.issuperset(found.groups()):
        return "range of tokens"
    found = _EMPTY_NODE.fullmatch(number)
    if found and (found[1] in numbers or (found[1] == "0" and "1" in numbers)):
        return "empty node"
    return ""


def _report(path: str, left_out: dict[str, list[TokenLine]]) -> None:
    """Logs how many lines are no tokens."""
    for kind, lines in left_out.items():
        logging.info(
            "%s: left out as no token: %d × %s; the first is line %d, %s",
            path,
            len(lines),
            kind,
            lines[0].number,
            files.quote(lines[0].text),
        )


def _refuse_numbers(path: str, sentences: Sequence[Sequence[TokenLine]]) -> None:
    """Raises ValueError if the first column, of the tokens, counts the tokens of each sentence."""
    found = [[x.cells[0] for x in part if x.cells[0].isdecimal()] for part in sentences]
    is_counted = all(
        numbers and numbers == list(map(str, range(1, len(numbers) + 1))) for numbers in found
    )
    if is_counted and max(map(len, found), default=0) > 2:
        raise ValueError(
            f"{path}, line {sentences[0][0].number}: the first column counts the tokens of each "
            "sentence. Pass the columns that have the tokens and the labels: in CoNLL-U, "
            "--token_column=1 --label_column=3 are words and their parts of speech"
        )

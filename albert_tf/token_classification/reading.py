"""Reads sentences with a label for each token.

Files have one token per line, with the token in the first column and its label in the last one, and
blank lines between sentences. In Chinese, a token is often a character:

    U.N.      B-ORG
    official  O
    Ekeus     B-PER
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Iterator, Sequence

from albert_tf import files
from albert_tf.finetuning import rows
from albert_tf.finetuning.examples import Examples
from albert_tf.finetuning.rows import BadRowError, Row, RowReports
from albert_tf.finetuning.texts import parse_text
from albert_tf.token_classification.settings import Settings

EXTENSIONS = (".txt", ".conll", ".tsv")
DOCUMENT_START = "-DOCSTART-"
_TOKENS = "tokens"


@dataclasses.dataclass(frozen=True, slots=True)
class Sentence:
    """The tokens of a sentence and their labels.

    Attributes:
        line: line number of the first token in the file, starting at 1; each token has its own
            line.
        tokens: one or more tokens.
        labels: the label of each token; None if a test file does not have it.
    """

    line: int
    tokens: tuple[str, ...]
    labels: tuple[str | None, ...]

    @property
    def is_labeled(self) -> bool:
        """Whether every token has a label."""
        return None not in self.labels

    @property
    def content(self) -> tuple[tuple[str | None, ...], ...]:
        """The tokens and labels."""
        return self.tokens, self.labels


def read_sentences(
    settings: Settings, split: str, labels: Sequence[str] = (), is_logged: bool = True
) -> Examples[Sentence]:
    """Reads the sentences of a split.

    Args:
        settings: the folder and the columns.
        split: "train", "dev" or "test"; in a test file, labels may be missing.
        labels: all valid labels; () to accept any.
        is_logged: whether remarks about lines are logged.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: there are several files or no sentence, or a line has no token, no label or an
            unknown label; the message names the file and the lines.
    """
    existing = rows.existing_files(settings.data_dir, split, EXTENSIONS)
    if not existing:
        names = " or ".join(split + extension for extension in EXTENSIONS)
        raise FileNotFoundError(f"{settings.data_dir}: contains no {names}")
    path = os.path.join(settings.data_dir, existing[0])
    reports = RowReports(path)
    sentences = []
    for first_line, lines in _split_sentences(files.read_text(path)):
        parsed = reports.parsed(
            enumerate(lines, first_line),
            lambda line, _: _parse_line(line, settings, labels, split == "test"),
        )
        words = [word for _, word in parsed]
        tokens = tuple(token for token, _ in words)
        gold = tuple(label for _, label in words)
        sentences.append(Sentence(first_line, tokens, gold))
        if None in gold:
            reports.note(first_line, "no known label, so the test split is not evaluated")
    return reports.examples(split, sentences, "sentence", is_logged=is_logged)


def _split_sentences(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yields the line number of the first line, starting at 1, and the lines of each sentence."""
    lines: list[str] = []
    for number, line in enumerate([*text.split("\n"), ""], 1):
        if line.strip(" \t\r") and not line.startswith(DOCUMENT_START):
            lines.append(line.rstrip("\r"))
        elif lines:
            yield number - len(lines), lines
            lines = []


def _parse_line(
    line: str, settings: Settings, labels: Sequence[str], is_test: bool
) -> tuple[str, str | None]:
    """Returns the token and its label, which is None if a test file does not have it."""
    # Not `split()`, because an ideographic space can be a token of Chinese text.
    cells = line.split("\t") if "\t" in line else re.split(" +", line.strip(" "))
    count = len(cells)
    place, label_place = (
        column if column >= 0 else count + column
        for column in (settings.token_column, settings.label_column)
    )
    if not 0 <= place < count or not cells[place]:
        raise BadRowError(f"no token in column {settings.token_column} of {count}")
    label = ""
    if 0 <= label_place < count and label_place != place:
        label = cells[label_place].strip()
    if label and (label in labels or not labels):
        return cells[place], label
    if is_test:
        return cells[place], None
    if not label:
        raise BadRowError(f"no label in column {settings.label_column} of {count}")
    raise BadRowError(f"unknown label {files.quote(label)}; expected {rows.abbreviate(labels)}")


def parse_words(row: Row) -> str | list[str]:
    """Returns the text or the list of tokens of a row."""
    if not isinstance(row, dict) or _TOKENS not in row:
        return parse_text(row)
    tokens = row[_TOKENS]
    if not isinstance(tokens, list):
        raise BadRowError(f"{_TOKENS!r}: expected a list, got {json.dumps(tokens)[:50]}")
    return [rows.check_text(token, "a token") for token in tokens]

"""Sentences with a label for each token, read from and written to files of columns.

Files have one token per line, with the token in the first column and its label in the last one,
and blank lines between sentences. In Chinese, a token is often a character:

    U.N.      B-ORG
    official  O
    Ekeus     B-PER

Lines that are no tokens, such as the comments of CoNLL-U, are left out; see `token_lines`.
"""

from __future__ import annotations

import dataclasses
import json
import unicodedata
from collections.abc import Iterator, Sequence

from albert_tf import files
from albert_tf.finetuning import rows
from albert_tf.finetuning.columns import TOKENS, parse_text, places_of
from albert_tf.finetuning.examples import Examples, Unlabeled
from albert_tf.finetuning.rows import BadRowError, Row, cell, check_text
from albert_tf.finetuning.token_classification.settings import Settings
from albert_tf.finetuning.token_classification.token_lines import find_sentences
from albert_tf.tables import LabelNames
from albert_tf.tables.compression import open_content
from albert_tf.tables.text_rows import decode_lines


@dataclasses.dataclass(frozen=True, slots=True)
class Sentence:
    """The tokens of a sentence and their labels.

    Attributes:
        line: number of the line of the first token in the file, or of the row, starting at 1.
        tokens: one or more tokens.
        labels: the label of each token; None if a test file does not have it.
    """

    line: int = dataclasses.field(repr=False)
    tokens: tuple[str, ...]
    labels: tuple[str | None, ...]


@dataclasses.dataclass(frozen=True)
class SentenceReader:
    """The sentences of a split, as they are read.

    Attributes:
        path: the file.
        sentences: yields them, once; then it raises ValueError if there is a bad row, whose message
            names the file and the line.
        unlabeled: the tokens without a known label in the sentences so far.
    """

    path: str
    sentences: Iterator[Sentence]
    unlabeled: Unlabeled

    def read_all(self) -> Examples[Sentence]:
        """Returns all sentences.

        Raises:
            ValueError: there is none, or a bad row.
        """
        sentences = list(self.sentences)
        return Examples(self.path, sentences, not self.unlabeled)


def read_columns(
    path: str, settings: Settings, is_test: bool, labels: Sequence[str] = ()
) -> SentenceReader:
    """Reads the sentences of a file of columns.

    Args:
        path: the file, maybe compressed.
        settings: the columns.
        is_test: whether labels may be missing.
        labels: all valid labels; () to accept any.

    Returns:
        The reader, which raises a ValueError if a line has no token, no label or an unknown label.

    Raises:
        FileNotFoundError: the file does not exist.
    """
    unlabeled = Unlabeled(path, is_test=True)  # elsewhere, such tokens are refused
    reader = _ColumnReader(path, settings, is_test, labels, unlabeled)
    return SentenceReader(path, reader.sentences(), unlabeled)


class _ColumnReader:
    """Converts the lines of a file to sentences; see `read_columns`."""

    def __init__(
        self,
        path: str,
        settings: Settings,
        is_test: bool,
        labels: Sequence[str],
        unlabeled: Unlabeled,
    ) -> None:
        self._path = path
        self._columns = settings.token_column, settings.label_column
        self._names = LabelNames(settings.tag_names) if settings.tag_names else None
        self._is_test = is_test
        self._labels = labels
        self._unlabeled = unlabeled
        self._known: dict[str, str] = {}  # label in the file → the label, which is held once

    def sentences(self) -> Iterator[Sentence]:
        """Yields the sentences; see `SentenceReader`."""
        count = 0
        for _, sentence in rows.parse_rows(self._path, self._parsed(), lambda row, _: row):
            count += len(sentence.tokens)
            yield sentence
        self._unlabeled.report(count)

    def _lines(self) -> Iterator[str]:
        with open_content(self._path) as (stream, _):
            for line in decode_lines(stream, self._path, True):
                yield line.removesuffix("\n")

    def _parsed(self) -> Iterator[tuple[int, Sentence | BadRowError]]:
        """Yields the line of each sentence with what is good of it, and of each bad line."""
        for lines in find_sentences(self._path, self._lines, *self._columns):
            tokens, labels, bad = [], [], []
            for number, cells in lines:
                try:
                    token, label = self._parse(cells)
                except BadRowError as error:
                    bad.append((number, error))
                    continue
                tokens.append(token)
                labels.append(label)
                if label is None:
                    self._unlabeled.add(f"{self._path}, line {number}")
            if tokens:
                yield lines[0][0], Sentence(lines[0][0], tuple(tokens), tuple(labels))
            yield from bad

    def _parse(self, cells: Sequence[str]) -> tuple[str, str | None]:
        """Returns the token and its label, which is None if a test file does not have it."""
        count = len(cells)
        column, label_column = self._columns
        place, label_place = (at if at >= 0 else count + at for at in self._columns)
        if not 0 <= place < count or not cells[place]:
            raise BadRowError(f"no token in column {column} of {count}")
        has_label = 0 <= label_place < count and label_place != place
        cell = cells[label_place] if has_label else ""
        label = self._known.get(cell)
        if label is None:
            label = named_tag(cell.strip(), self._names)
            if label and (label in self._labels or not self._labels):
                label = self._known[cell] = self._known.setdefault(label, label)
            elif self._is_test:
                return cells[place], None
            elif label:
                expected = rows.abbreviate(self._labels)
                raise BadRowError(f"unknown label {files.quote(label)}; expected {expected}")
            else:
                raise BadRowError(f"no label in column {label_column} of {count}{_spaced(cells)}")
        return cells[place], label


def _spaced(cells: Sequence[str]) -> str:
    """Returns what to do if spaces of Unicode seem to separate the columns of a line, or "".

    They are no separators, because tokens have them, such as numbers in French.
    """
    others = [char for char in cells[0].strip() if char.isspace()] if len(cells) == 1 else []
    if not others:
        return ""
    return (
        f", but a {unicodedata.name(others[0], repr(others[0]))} (U+{ord(others[0]):04X}), which "
        "does not separate columns: replace it by a tab or a space"
    )


def named_tag(tag: str, names: LabelNames | None) -> str:
    """Returns a tag by its name, or by its id as a text if it is not one of the names.

    Raises:
        BadRowError: there is no such id.
    """
    if names is None or tag in names.names or not tag.isdecimal():
        return tag
    if int(tag) >= len(names.names):
        raise BadRowError(f"tag {tag}: expected an id below {len(names.names)}")
    return names.names[int(tag)]


def parse_words(row: Row) -> str | list[str]:
    """Returns the text or the list of tokens of a row."""
    column = TOKENS.find(places_of(row)) if isinstance(row, dict) else None
    if column is None:
        return parse_text(row)
    tokens = cell(row, column)
    if not isinstance(tokens, list):
        raise BadRowError(f"{column!r}: expected a list, got {json.dumps(tokens)[:50]}")
    return [check_text(token, "a token") for token in tokens]


def write_predictions(
    path: str, data: Examples[Sentence], predicted: Sequence[Sequence[str]]
) -> None:
    r"""Writes one token per line and blank lines between sentences, for `conlleval -d '\t'`.

    A line contains the token, its label if all labels are known, and the predicted label, separated
    by tabs.

    Args:
        path: the file.
        data: the sentences.
        predicted: the predicted labels of each sentence.
    """
    has_labels = data.has_labels
    with files.write_atomically(path) as stream:
        for sentence, guesses in zip(data.examples, predicted, strict=True):
            for cells in zip(sentence.tokens, sentence.labels, guesses, strict=True):
                shown = cells if has_labels else (cells[0], cells[2])
                stream.write("\t".join(map(str, shown)) + "\n")
            stream.write("\n")

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
from collections.abc import Iterator, Sequence

from albert_tf import files
from albert_tf.finetuning import rows
from albert_tf.finetuning.columns import TOKENS, parse_text, places_of
from albert_tf.finetuning.examples import Examples, Unlabeled
from albert_tf.finetuning.rows import BadRowError, Row, cell, cells_of, check_text
from albert_tf.finetuning.token_classification.settings import Settings
from albert_tf.finetuning.token_classification.token_lines import Line, find_sentences
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


def read_columns(
    path: str, settings: Settings, is_test: bool, labels: Sequence[str] = ()
) -> Examples[Sentence]:
    """Reads the sentences of a file of columns.

    Args:
        path: the file, maybe compressed.
        settings: the columns.
        is_test: whether labels may be missing.
        labels: all valid labels; () to accept any.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: there is no sentence, or a line has no token, no label or an unknown label; the
            message names the file and the lines.
    """
    with open_content(path) as (stream, _):
        lines = [line.removesuffix("\n") for line in decode_lines(stream, path, True)]
    starts = set()

    def token_lines() -> Iterator[Line]:
        for sentence in find_sentences(path, lines, settings.token_column, settings.label_column):
            starts.add(sentence[0][0])
            yield from sentence

    def parse(row: Row, line: int) -> tuple[str, str | None]:
        return _parse_cells(cells_of(row), settings, labels, is_test)

    sentences: list[tuple[int, list[str], list[str | None]]] = []
    unlabeled = Unlabeled(path, is_test=True)  # elsewhere, such tokens are refused
    for number, (token, label) in rows.parse_rows(path, token_lines(), parse):
        if number in starts:
            sentences.append((number, [], []))
        sentences[-1][1].append(token)
        sentences[-1][2].append(label)
        if label is None:
            unlabeled.add(f"{path}, line {number}")
    examples = [Sentence(line, tuple(tokens), tuple(gold)) for line, tokens, gold in sentences]
    unlabeled.report(sum(len(sentence.tokens) for sentence in examples))
    return Examples(path, examples, not unlabeled)


def _parse_cells(
    cells: Sequence[str], settings: Settings, labels: Sequence[str], is_test: bool
) -> tuple[str, str | None]:
    """Returns the token and its label, which is None if a test file does not have it."""
    count = len(cells)
    place, label_place = (
        column if column >= 0 else count + column
        for column in (settings.token_column, settings.label_column)
    )
    if not 0 <= place < count or not cells[place]:
        raise BadRowError(f"no token in column {settings.token_column} of {count}")
    label = ""
    if 0 <= label_place < count and label_place != place:
        names = LabelNames(settings.tag_names) if settings.tag_names else None
        label = named_tag(cells[label_place].strip(), names)
    if label and (label in labels or not labels):
        return cells[place], label
    if is_test:
        return cells[place], None
    if not label:
        raise BadRowError(f"no label in column {settings.label_column} of {count}")
    raise BadRowError(f"unknown label {files.quote(label)}; expected {rows.abbreviate(labels)}")


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

"""Reads the rows to predict, before TensorFlow is imported: mistakes are reported at once."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

from albert_tf import files
from albert_tf.finetuning import rows
from albert_tf.finetuning.columns import NAMES_OF_INPUTS, named_rows
from albert_tf.finetuning.rows import BadRowError, Row
from albert_tf.finetuning.texts import parse_pair, parse_text
from albert_tf.inference.settings import STANDARD_INPUT, Settings
from albert_tf.model.tokenization import MASK_TOKEN
from albert_tf.tables import COMMAS, TABS, parse_lines

ExampleType = TypeVar("ExampleType")
Block: TypeAlias = list[tuple[int, ExampleType]]  # (line, input) pairs
ROWS_AT_ONCE = 1024  # rows in a block; sorted by length and batched together


def parse_masked(row: Row) -> str:
    """Returns the text of a row, whose masked words are to be predicted."""
    text = parse_text(row)
    if MASK_TOKEN not in text:
        raise BadRowError(f"no {MASK_TOKEN} in the text: put it in place of a word to predict")
    return text


def parse_two(row: Row) -> tuple[str, str]:
    """Returns the two texts to compare."""
    pair = parse_pair(row)
    if not pair[1]:
        raise BadRowError("expected two texts to compare, got one")
    return pair


def read_inputs(
    settings: Settings, parse: Callable[[Row], ExampleType]
) -> list[Block[ExampleType]]:
    """Returns blocks of inputs; those given by flags are a block, each with line 0.

    Args:
        settings: the settings.
        parse: converts a row to an input; raises `BadRowError`.

    Raises:
        ValueError, OSError: a file cannot be read or has bad rows.
    """
    if settings.input_file is not None:
        return read_blocks(settings.input_file, settings.format, parse)
    try:
        return [[(0, parse(row)) for row in _rows_of(settings)]]
    except BadRowError as error:
        raise ValueError(f"--text, --question, --context or --options: {error}") from None


def _rows_of(settings: Settings) -> list[Row]:
    """Returns the inputs given by flags."""
    others = {
        "question": settings.question or None,
        "context": settings.context or None,
        "options": list(settings.options) or None,
    }
    found: list[Row] = []
    pairs: Sequence[tuple[str | None, str | None]] = settings.pairs or [(None, None)]
    for text, text_b in pairs:
        given = {"text": text, "text_b": text_b, **others}
        found.append({name: value for name, value in given.items() if value is not None})
    return found


def read_blocks(
    path: str, form: str, parse: Callable[[Row], ExampleType]
) -> list[Block[ExampleType]]:
    """Returns all rows of a file in blocks of (line, input).

    Args:
        path: the file, or `STANDARD_INPUT`.
        form: the format, one of `settings.FORMATS`.
        parse: converts a row to an input; raises `BadRowError`.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: there are bad rows, or no rows; the message names the file and the lines.
    """
    if path == STANDARD_INPUT:
        path = "standard input"
        text = files.decode_utf8(sys.stdin.buffer.read(), path).removeprefix("\ufeff")
    else:
        text = files.read_text(path)
    numbered = parse_lines(io.StringIO(text, newline="\n"), form, path)
    if form in (TABS, COMMAS):
        numbered = named_rows(numbered, NAMES_OF_INPUTS)
    found: Block[ExampleType] = list(rows.parse_rows(path, numbered, lambda row, _: parse(row)))
    if not found:
        raise ValueError(f"{path}: contains no input")
    return [found[start : start + ROWS_AT_ONCE] for start in range(0, len(found), ROWS_AT_ONCE)]

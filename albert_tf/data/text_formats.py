"""Parses chunks of text: lines with sentences or paragraphs, whole documents, or JSON objects.

`corpus` splits files of these formats into chunks. Here each chunk is converted to lists of
sentences, with an empty string between documents.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from albert_tf.data import corpus
from albert_tf.data.settings import TextSettings

_SURROGATE = re.compile("[\ud800-\udfff]")  # JSON can encode a lone surrogate: not a character
_REPLACEMENT = "\ufffd"


def split_paragraph(paragraph: str, language: str) -> list[str]:
    """Splits a paragraph into sentences, stripped of surrounding whitespace.

    Args:
        paragraph: a line of text.
        language: see `TextSettings`.
    """
    import sentencex  # an optional dependency

    return [
        sentence for part in sentencex.segment(language, paragraph) if (sentence := part.strip())
    ]


def chunk_lines(chunk: corpus.Chunk, settings: TextSettings) -> Iterator[list[str]]:
    """Yields the sentences of a chunk as lists of whole documents, with "" between documents.

    Args:
        chunk: a chunk read by `corpus.read_chunks` with `settings.input_format`.
        settings: how to parse it.

    Raises:
        ValueError: the text is not UTF-8 or not JSON, lacks the field, or has a line too long for a
            sentence; the message names the file and the line.
    """
    if settings.input_format == corpus.SENTENCES and not settings.split_sentences:
        yield from chunk.lines()
        return
    for part in chunk.parts:
        lines: list[str] = []
        for number, paragraph in _paragraphs(part, settings):
            sentences = [paragraph]
            if settings.split_sentences and paragraph:
                sentences = split_paragraph(paragraph, settings.language)
            for sentence in sentences:
                corpus.check_sentence(sentence, part.path, number)
            lines += sentences
        yield lines


def _paragraphs(part: corpus.Part, settings: TextSettings) -> Iterator[tuple[int, str]]:
    """Yields (line number, paragraph), with "" after a document.

    All paragraphs of a JSON object have the line number of that object.
    """
    numbered = enumerate(part.lines(), part.first_line)
    if settings.input_format == corpus.SENTENCES:
        # A line of spaces ends a document just like an empty line.
        yield from ((number, line if line.strip() else "") for number, line in numbered)
    elif settings.input_format == corpus.DOCUMENTS:
        yield from ((number, line) for number, line in numbered if line.strip())
    else:
        for number, line in numbered:
            if line.strip():
                text = _text_of_record(line, settings.text_field, part.path, number)
                paragraphs = re.split("\r\n?|\n", text)
                yield from ((number, paragraph) for paragraph in paragraphs if paragraph.strip())
                yield number, ""


def _text_of_record(line: str, field: str, path: str, number: int) -> str:
    """Returns the text in a JSON object, with lone surrogates replaced by U+FFFD.

    Raises:
        ValueError: the line is not a JSON object with this text field; the message names the file
            and the line.
    """
    try:
        record = json.loads(line, strict=False)  # tolerates raw tabs and NUL bytes
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}, line {number}: expected a JSON object: {error}") from None
    if not isinstance(record, dict):
        found = type(record).__name__
        raise ValueError(f"{path}, line {number}: expected a JSON object, found a {found}")
    if field not in record:
        names = ", ".join(map(repr, record)) or "none"
        raise ValueError(
            f"{path}, line {number}: no field {field!r}; its fields: {names}. Set --text_field to "
            "the one that contains the text."
        )
    text = record[field]
    if not isinstance(text, str):
        found = type(text).__name__
        raise ValueError(f"{path}, line {number}: field {field!r}: expected text, found a {found}")
    return _SURROGATE.sub(_REPLACEMENT, text)

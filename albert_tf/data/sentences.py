"""Parses chunks of text: lines with sentences or paragraphs, whole documents, or JSON objects.

`chunks` divides files of these formats (`text_formats`) into chunks. Here each chunk is converted
to lists of sentences, with an empty string between documents.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Iterator

from albert_tf import files
from albert_tf.data import text_formats
from albert_tf.data.chunks import ChunkPart
from albert_tf.data.settings import TextSettings

_SURROGATE = re.compile("[\ud800-\udfff]")  # JSON can encode a lone surrogate: not a character
_ARTICLE = re.compile(r'<doc id=.*\btitle="(?P<title>.*)">\s*$')
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


def sentences_of(parts: Iterable[ChunkPart], settings: TextSettings) -> Iterator[list[str]]:
    """Yields the sentences of each part, with "" between documents.

    Args:
        parts: parts of a chunk read by `chunks.read_chunks` with `settings.input_format`.
        settings: how to parse it.

    Raises:
        ValueError: the text is not UTF-8 or not JSON, lacks the field, or has a line too long for a
            sentence; the message names the file and the line.
    """
    for part in parts:
        lines: list[str] = []
        for number, paragraph in _paragraphs(part, settings):
            sentences = [paragraph]
            if settings.split_sentences and paragraph:
                sentences = split_paragraph(paragraph, settings.language)
            for sentence in sentences:
                part.check_sentence(sentence, number)
            lines += sentences
        yield lines


def _paragraphs(part: ChunkPart, settings: TextSettings) -> Iterator[tuple[int, str]]:
    """Yields (index of the line, paragraph), with "" after a document.

    All paragraphs of a JSON object have the index of that object's line.
    """
    numbered = enumerate(part.lines())
    if settings.input_format == text_formats.SENTENCES:
        # A line of spaces ends a document just like an empty line.
        yield from ((number, line if line.strip() else "") for number, line in numbered)
    elif settings.input_format == text_formats.DOCUMENTS:
        yield from ((number, line) for number, line in numbered if line.strip())
    elif settings.input_format == text_formats.WIKIEXTRACTOR:
        yield from _paragraphs_of_articles(numbered)
    else:
        for number, line in numbered:
            if line.strip():
                text = _text_of_record(line, settings.text_field, part, number)
                paragraphs = re.split("\r\n?|\n", text)
                yield from ((number, paragraph) for paragraph in paragraphs if paragraph.strip())
                yield number, ""


def _paragraphs_of_articles(numbered: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Yields the paragraphs of WikiExtractor's articles, without the titles above them."""
    title = ""
    for number, line in numbered:
        text = html.unescape(line).strip()
        if start := _ARTICLE.match(line):
            title = html.unescape(start["title"]).strip()
        elif line.strip() == "</doc>":
            yield number, ""
        elif text:
            if text != title:
                yield number, text
            title = ""


def _text_of_record(line: str, field: str, part: ChunkPart, number: int) -> str:
    """Returns the text in a JSON object, with lone surrogates replaced by U+FFFD.

    Raises:
        ValueError: the line is not a JSON object with this text field; the message names the file
            and the line.
    """

    def error(reason: str) -> ValueError:
        return ValueError(f"{part.path}, line {part.first_line + number}: {reason}")

    try:
        # Tolerates raw tabs and NUL bytes.
        record = json.loads(line, strict=False, object_pairs_hook=files.unique_object)
    except files.RepeatedNameError as cause:
        raise error(str(cause)) from None
    except ValueError as cause:
        raise error(f"expected a JSON object: {cause}") from None
    except RecursionError:
        raise error("expected a JSON object, found one that is nested hundreds of levels") from None
    if not isinstance(record, dict):
        raise error(f"expected a JSON object, found a {type(record).__name__}")
    if field not in record:
        raise error(
            f"no field {field!r}; its fields: {files.quote_all(record)}. Set --text_field to "
            "the one that contains the text."
        )
    text = record[field]
    if not isinstance(text, str):
        raise error(f"field {field!r}: expected text, found a {type(text).__name__}")
    return _SURROGATE.sub(_REPLACEMENT, text)

"""The formats of text files, and how the documents in them are separated.

By default, files have the format of Google's programs: one sentence per line and a blank line
between documents. With `input_format="documents"` each file is a document, and with "jsonl" each
line is a JSON object. With "wikiextractor" a document is between `<doc …>` and `</doc>`. `chunks`
divides files at the ends of documents, and `sentences` parses the documents.
"""

from __future__ import annotations

import dataclasses
import re


@dataclasses.dataclass(frozen=True)
class TextFormat:
    """How the documents in a text file are separated.

    Attributes:
        expected: what an error says about the format.
        end: matches the end of a document; of a line, where a file is one.
    """

    expected: str
    end: re.Pattern[bytes]


SENTENCES, DOCUMENTS, JSONL, WIKIEXTRACTOR = "sentences", "documents", "jsonl", "wikiextractor"
_LINE_END = rb"(?:\r+\n|\r(?!\r*\n)|\n)"
_END_OF_LINE = re.compile(_LINE_END)
FORMATS = {
    SENTENCES: TextFormat(
        "Expected one sentence per line and a blank line between documents; split the text into "
        "sentences first.",
        end=re.compile(_LINE_END + rb"[ \t]*" + _LINE_END),
    ),
    DOCUMENTS: TextFormat("Expected lines of text.", end=_END_OF_LINE),
    JSONL: TextFormat("Expected one JSON object per line.", end=_END_OF_LINE),
    WIKIEXTRACTOR: TextFormat(
        "Expected the output of WikiExtractor.",
        end=re.compile(rb"</doc>[ \t]*" + _LINE_END),
    ),
}
INPUT_FORMATS = tuple(FORMATS)

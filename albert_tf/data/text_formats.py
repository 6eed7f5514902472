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
    r"""How the documents in a text file are separated.

    Attributes:
        expected: what an error says about the format.
        end: matches the end of a document; of a line, where a file is one.
        unix_end: the same in text without "\r", many times as fast, because it begins with a
            literal, which Python searches for without its matcher.
    """

    expected: str
    end: re.Pattern[bytes]
    unix_end: re.Pattern[bytes]


SENTENCES, DOCUMENTS, JSONL, WIKIEXTRACTOR = "sentences", "documents", "jsonl", "wikiextractor"
# Before a line feed; each other carriage return ends a line. The number has a limit, because for
# each of millions of them the next line feed would be looked for.
RETURNS = rb"\r{1,8}"
_LINE_END = rb"(?:" + RETURNS + rb"\n|\r(?!\r{0,7}\n)|\n)"
_END_OF_LINE = re.compile(_LINE_END), re.compile(rb"\n")
FORMATS = {
    SENTENCES: TextFormat(
        "Expected one sentence per line and a blank line between documents; split the text into "
        "sentences first.",
        end=re.compile(_LINE_END + rb"[ \t]*" + _LINE_END),
        unix_end=re.compile(rb"\n[ \t]*\n"),
    ),
    DOCUMENTS: TextFormat("Expected lines of text.", *_END_OF_LINE),
    JSONL: TextFormat("Expected one JSON object per line.", *_END_OF_LINE),
    WIKIEXTRACTOR: TextFormat(
        "Expected the output of WikiExtractor.",
        end=re.compile(rb"</doc>[ \t]*" + _LINE_END),
        unix_end=re.compile(rb"</doc>[ \t]*\n"),
    ),
}
INPUT_FORMATS = tuple(FORMATS)

"""Turns documentation with markup into sentences of prose.

Understands what docstrings, reStructuredText, Markdown and plain text have in common:
blocks between blank lines, of which some are prose and others are code, tables, headings or
directives. Everything that is not prose is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

MIN_WORDS = 4
# Below this share of letters and spaces, a text is a formula, code or a table.
MIN_LETTER_SHARE = 0.8

_FENCED_CODE = re.compile(r"^[ \t]*(```|~~~).*?^[ \t]*\1[ \t]*$", re.MULTILINE | re.DOTALL)
_CODE_LINE = re.compile(r"\s*(?:>>>|\.\.\. |\$ |In \[\d|Out\[\d|#!)")
_TABLE_LINE = re.compile(r"\s*(?:\+[-=+]{3,}|\|.*\|\s*$|[=-]{2,}\s+[=-]{2,})")
_DIRECTIVE = re.compile(r"\s*\.\. ")
_UNDERLINE = re.compile(r"\s*([-=~^\"#*+`'._])\1{2,}\s*$")
_BULLET = re.compile(r"\s*(?:[-*+o•]|\(?\d+[.)])\s+")
# `axis : int` of numpydoc, `:param axis:` of Sphinx; `Args:` and `  axis: Text.` of Google.
_TYPED_NAME = re.compile(r"\s*[\w*`'\"][\w*`'\", .]*\s+:(?:\s.*)?$")
_FIELD = re.compile(r"\s*:\w+[^:]*:\s*")
_TYPE_FIELD = re.compile(r"\s*:(?:r?type|raises?)\b[^:]*:")
_SECTION = re.compile(r"\s*[A-Z]\w+(?: \w+)?:\s*$")
_ARGUMENT = re.compile(r"\s+\*{0,2}[`'\"]?\w+[`'\"]?\s*(?:\([^)]*\))?:\s+")

# Inline markup and what replaces it.
_INLINE = (
    (re.compile(r"!?\[([^\]\[]*)\]\([^)\s]*\)"), r"\1"),  # [text](address), ![text](image)
    (re.compile(r":[\w:+-]+:`[~!]?(?:[^`<]*\.)?([^`<]*?)(?:\s*<[^`]*>)?`"), r"\1"),  # :class:`~a.B`
    (re.compile(r"`([^`<]+?)\s*<[^`]*>`__?"), r"\1"),  # `text <address>`_
    (re.compile(r"\s*\[[\w#-]+\]_"), ""),  # [1]_
    (re.compile(r"</?\w+[^<>]*>"), ""),  # <b>
    (re.compile(r"`+|\*\*|(?<!\w)\*(?=\w)|(?<=\w)\*(?!\w)"), ""),
    (re.compile(r"\s+"), " "),
)
# A sentence ends at . ! or ? before a space and a character that can begin a sentence, but not
# after common abbreviations.
_SENTENCE_END = re.compile(r"(?<=[.!?])(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\bvs\.)\s+(?=[\"'(A-Z])")
# Names with underscores, equations and calls occur in English sentences about programs.
_FOREIGN = re.compile(r"[\\{}|]|://")
_NO_LETTERS = re.compile(r"[^A-Za-z\s]+")


def is_sentence(text: str) -> bool:
    """Returns whether `text` is a sentence of English prose, rather than code or a heading."""
    return (
        text.isascii()
        and text[:1].isupper()
        and text[-1] in ".!?"
        and len(text.split()) >= MIN_WORDS
        and len(_NO_LETTERS.sub("", text)) >= MIN_LETTER_SHARE * len(text)
        and not _FOREIGN.search(text)
    )


def read_prose(text: str) -> list[str]:
    """Returns the sentences of a docstring without common indentation, or of a text file."""
    paragraphs = map(_without_markup, _paragraphs(text))
    pieces = [piece for paragraph in paragraphs for piece in _SENTENCE_END.split(paragraph)]
    return [piece for piece in pieces if piece and is_sentence(piece)]


def _without_markup(paragraph: str) -> str:
    """Returns a paragraph without inline markup, on one line."""
    for pattern, replacement in _INLINE:
        paragraph = pattern.sub(replacement, paragraph)
    return paragraph.strip()


def _paragraphs(text: str) -> Iterator[str]:
    """Yields the paragraphs, without code, tables and directives."""
    text = _FENCED_CODE.sub("\n\n", text.expandtabs())
    literal_indent = -1  # blocks indented deeper belong to a `::` or a directive before them
    for block in re.split(r"\n\s*\n", text):
        lines = [line for line in block.splitlines() if line.strip()]
        if not lines:
            continue
        indent = min(map(_indent_of, lines))
        if 0 <= literal_indent < indent or _is_code(lines):
            if _DIRECTIVE.match(lines[0]):
                literal_indent = indent
            continue
        literal_indent = indent if lines[-1].rstrip().endswith("::") else -1
        yield from _items(lines)


def _indent_of(line: str) -> int:
    return len(line) - len(line.lstrip())


def _is_code(lines: list[str]) -> bool:
    """Returns whether a block is code, a table or a directive."""
    return bool(_DIRECTIVE.match(lines[0])) or any(
        _CODE_LINE.match(line) or _TABLE_LINE.match(line) for line in lines
    )


def _items(lines: list[str]) -> Iterator[str]:
    """Yields the paragraphs of a block: the text itself, list items, descriptions of arguments."""
    item: list[str] = []
    for number, line in enumerate(lines):
        following = lines[number + 1] if number + 1 < len(lines) else ""
        text, begins = _text_of(line, following)
        if begins and item:
            yield " ".join(item)
            item = []
        if text:
            item.append(text)
    if item:
        yield " ".join(item)


def _text_of(line: str, following: str) -> tuple[str, bool]:
    """Returns the prose of a line of a block, and whether it begins a paragraph."""
    is_heading = _UNDERLINE.match(line) or _UNDERLINE.match(following) or line.startswith("#")
    if is_heading or _TYPED_NAME.match(line) or _SECTION.match(line) or _TYPE_FIELD.match(line):
        return "", True
    for pattern in (_FIELD, _BULLET, _ARGUMENT):
        mark = pattern.match(line)
        if mark:
            return line[mark.end() :].strip(), True
    return line.strip(), False

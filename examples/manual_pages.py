"""Reads the running text of manual pages in the `man` macros of troff.

Pages in the `mdoc` macros of BSD are not read: their text is spread over macros for every word.
"""

from __future__ import annotations

import re

# Macros that end a paragraph; those that style their arguments, which belong to the text; and those
# that enclose examples and tables, with the one at their end.
_BREAKS = {"SH", "SS", "PP", "P", "LP", "TP", "TQ", "IP", "HP", "RS", "RE", "sp", "br", "in", "ti"}
_STYLES = {"B", "I", "R", "BR", "BI", "RB", "RI", "IR", "IB", "SM", "SB"}
_ENCLOSING = {"nf": "fi", "EX": "EE", "TS": "TE", "EQ": "EN", "de": ".", "ig": ".", "SY": "YS"}
_MACRO = re.compile(r"[.']\s*(\\\"|\w+|\.)?\s*(.*)")
_ARGUMENT = re.compile(r'"([^"]*)"|(\S+)')
_ESCAPES = (
    (re.compile(r"\\f(?:\[\w*\]|\(..|.)|\\s[-+]?\d|\\[&|^/,:%)]|\\m\[\w*\]"), ""),  # fonts, sizes
    (re.compile(r"\\\((?:aq|cq|oq)|\\\[(?:aq|cq|oq)\]|\\'"), "'"),
    (re.compile(r"\\\((?:lq|rq|dq)|\\\[(?:lq|rq|dq)\]|\\\*\(?[lr]q|\\\*\(L\"|\\\*\(R\""), '"'),
    (re.compile(r"\\\((?:em|en|hy)|\\\[(?:em|en|hy)\]"), " - "),
    (re.compile(r"\\-"), "-"),
    (re.compile(r"\\[ ~0]"), " "),
)


def read_manual_page(source: str) -> str:
    """Returns the text of a manual page, with blank lines between paragraphs; empty for `mdoc`."""
    if re.search(r"^\.Dd\b", source, re.MULTILINE):
        return ""
    text: list[str] = []
    end = ""  # the macro that ends the example or table being skipped
    is_tag = False  # the line after .TP, which names what the next paragraph describes
    for line in source.splitlines():
        mark = _MACRO.match(line)
        name, arguments = (mark[1] or "", mark[2]) if mark else ("", line)
        if end:
            end = "" if name == end else end
        elif name in _ENCLOSING:
            end = _ENCLOSING[name]
        elif mark and name in _BREAKS:
            text.append("")
            is_tag = name in ("TP", "TQ")
        elif is_tag and (not mark or name in _STYLES):
            is_tag = False
        elif not mark:
            text.append(_unescaped(line).strip())
        elif name in _STYLES:
            text.append(_styled(name, arguments))
    return "\n".join(text)


def _styled(name: str, arguments: str) -> str:
    """Returns the text of a macro such as `.BR grep (1)`; two styles join their arguments."""
    words = ["".join(parts) for parts in _ARGUMENT.findall(arguments)]
    return _unescaped(("" if len(name) == 2 and name not in ("SM", "SB") else " ").join(words))


def _unescaped(text: str) -> str:
    """Returns text with troff's escapes for fonts removed and those for characters replaced."""
    for pattern, replacement in _ESCAPES:
        text = pattern.sub(replacement, text)
    return text

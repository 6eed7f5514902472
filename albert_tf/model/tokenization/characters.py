"""Classes of characters, as BERT's tokenizer has them, and the words of a text by these."""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Callable
from typing import TypeVar

_PUNCTUATION_IN_WORD = re.compile(r"(?<=a)\.(?=a)")
_WORD = re.compile(r"a+|[c.]")

# The code points that BERT surrounds with spaces; kana and hangul are not among them.
_CJK = re.compile(
    "[\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002b81f"
    "\U0002b820-\U0002ceaf\uf900-\ufaff\U0002f800-\U0002fa1f]"
)
# All characters for which a predicate below may be true. This excludes surrogates, rare Chinese
# characters that BERT does not know either, unassigned planes, and private use planes.
_CODE_POINTS = (*range(0xD800), *range(0xE000, 0x30000), *range(0xE0000, 0xE0200))


def is_whitespace(char: str) -> bool:
    """Returns whether BERT treats `char` as whitespace: tab, newline, return or category Zs."""
    return char in " \t\n\r" or unicodedata.category(char) == "Zs"


def is_control(char: str) -> bool:
    """Returns whether BERT drops `char` as a control character: Cc or Cf except tab, newline."""
    return char not in "\t\n\r" and unicodedata.category(char) in ("Cc", "Cf")


def is_cjk(char: str) -> bool:
    """Returns whether `char` is a Chinese character, which BERT makes a separate word."""
    return _CJK.match(char) is not None


def is_punctuation(char: str) -> bool:
    """Returns whether BERT splits at `char`: category P* or any ASCII symbol, even "$" and "^"."""
    if char.isascii():
        return char.isprintable() and not char.isalnum() and char != " "
    return unicodedata.category(char).startswith("P")


def is_dropped(char: str) -> bool:
    """Returns whether BERT removes `char`: a control character, NUL or U+FFFD."""
    is_removed = char in "\0\ufffd" or is_control(char)
    return is_removed and not is_whitespace(char)


def is_mark(char: str) -> bool:
    """Returns whether BERT strips `char` as an accent: category Mn."""
    return unicodedata.category(char) == "Mn"


def is_combining(char: str) -> bool:
    """Returns whether `preprocess_text` strips `char`: its combining class is not 0."""
    return unicodedata.combining(char) != 0


def past_marks(text: str, end: int, limit: int) -> int:
    """Returns the first place from `end` on, up to `limit`, that has no mark of a letter before."""
    while end < limit and (is_combining(text[end]) or is_mark(text[end])):
        end += 1
    return end


def find_words(text: str) -> list[tuple[str, int]]:
    """Returns the words of a text, and the index of the first character of each.

    A Chinese character is a word, and so is punctuation, except within a word.

    >>> find_words("U.N. officials (北京)")
    [('U.N', 0), ('.', 3), ('officials', 5), ('(', 15), ('北', 16), ('京', 17), (')', 18)]
    """
    kinds = _PUNCTUATION_IN_WORD.sub("a", "".join(map(word_kind, text)))
    return [(text[slice(*match.span())], match.start()) for match in _WORD.finditer(kinds)]


def word_kind(char: str) -> str:
    """Returns " " for a space, "c" for a Chinese character, "." for punctuation, or else "a"."""
    if char.isspace():
        return " "
    if is_cjk(char):
        return "c"
    return "." if is_punctuation(char) else "a"


@functools.cache
def character_class(contains: Callable[[str], bool]) -> str:
    """Returns a regular expression's character class of all characters accepted by a predicate.

    The syntax is valid in both RE2 and Oniguruma.

    Args:
        contains: the predicate, true for at least one of `_CODE_POINTS`; only these are tested.
    """
    runs: list[list[int]] = []
    for code in _CODE_POINTS:
        if not contains(chr(code)):
            continue
        if runs and runs[-1][1] == code - 1:
            runs[-1][1] = code
        else:
            runs.append([code, code])
    return "[" + "".join(rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in runs) + "]"


MAX_REMEMBERED = 200_000  # words in the cache, about 40 MB

Key = TypeVar("Key")
Value = TypeVar("Value")


class BoundedCache(dict[Key, Value]):
    """A cache of a function's results; can be used as a table for `str.translate`."""

    def __init__(self, function: Callable[[Key], Value]) -> None:
        super().__init__()
        self._function = function

    def __missing__(self, key: Key) -> Value:
        if len(self) >= MAX_REMEMBERED:
            self.clear()
        value = self[key] = self._function(key)
        return value

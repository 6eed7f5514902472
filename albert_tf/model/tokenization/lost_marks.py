"""Counts the words whose accents or other marks normalization removes.

Google's rules remove combining characters, and English loses little by it. In other languages,
words differ by their marks and become equal, as Russian "мой" and "мои" do. A vocabulary that is
trained on such text covers all of it, so nothing else tells.
"""

from __future__ import annotations

import dataclasses
import unicodedata
from collections.abc import Iterable
from typing import Literal

from albert_tf.model.tokenization.characters import BoundedCache, is_combining, is_dropped, is_mark
from albert_tf.model.tokenization.full_tokenizer import FullTokenizer
from albert_tf.model.tokenization.tokenizer import Tokenizer

MAX_SHARE = 0.03  # of the words; English text has less than a percent
_JOINERS = "\u200c\u200d"  # zero-width non-joiner and joiner, by which words are told apart
_ADVICE = (
    "To keep the marks, train a vocabulary with --type=wordpiece --nodo_lower_case and pass "
    "--nodo_lower_case to every program, or use a tokenizer of Hugging Face; "
    "docs/guides/pretrain.md has a table by script."
)


@dataclasses.dataclass(frozen=True)
class LostMarks:
    """What normalization does to the words of some texts.

    Attributes:
        words: number of words, which are what is between spaces.
        changed: number of those that lose a mark.
        example: the first of these; "" if there is none.
        becomes: the example without its marks.
    """

    words: int = 0
    changed: int = 0
    example: str = ""
    becomes: str = ""

    @property
    def share(self) -> float:
        """Fraction of the words that lose a mark."""
        return self.changed / max(1, self.words)

    def problem(self, what: str) -> str:
        """Returns a warning with the way out; "" if few words are changed.

        Args:
            what: the texts, such as "the text".
        """
        if self.share <= MAX_SHARE:
            return ""
        example = f', such as "{self.example}" → "{self.becomes}"' if self.example else ""
        return (
            f"normalization removes accents or other marks of {self.share:.0%} of the words of "
            f"{what}{example}: different words may become equal. {_ADVICE}"
        )


class MarkRemoval:
    """The removal of marks by a tokenizer's normalization.

    Args:
        is_sentencepiece: whether texts are normalized for SentencePiece, whose marks are removed
            also with their case kept.
        do_lower_case: whether WordPiece strips accents.
    """

    def __init__(self, is_sentencepiece: bool, do_lower_case: bool) -> None:
        self._form: Literal["NFKD", "NFD", ""] = ""
        if is_sentencepiece:
            self._form = "NFKD"
        elif do_lower_case:
            self._form = "NFD"
        is_accent = is_combining if is_sentencepiece else is_mark

        def keep(code: int) -> int | None:
            char = chr(code)
            is_joiner = char in _JOINERS and not is_sentencepiece and is_dropped(char)
            return None if is_joiner or (self._form and is_accent(char)) else code

        self._removed = BoundedCache[int, int | None](keep)

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> MarkRemoval | None:
        """Returns that of Google's rules; None for a tokenizer with rules of its own."""
        if not isinstance(tokenizer, FullTokenizer):
            return None
        return cls(tokenizer.is_sentencepiece, tokenizer.do_lower_case)

    def count(self, texts: Iterable[str]) -> LostMarks:
        """Returns what happens to the words of texts."""
        words = changed = 0
        example = becomes = ""
        for text in texts:
            words += len(text.split())
            for word in () if text.isascii() else text.split():
                if word.isascii():
                    continue
                spelled = unicodedata.normalize(self._form, word) if self._form else word
                kept = spelled.translate(self._removed)
                if len(kept) < len(spelled):
                    changed += 1
                    if not example:
                        example, becomes = word, kept
        return LostMarks(words, changed, example, becomes)

"""Finds Chinese words, for whole-word masking: which tokens of a sentence continue a word.

Chinese is written without spaces, so a word segmenter (jieba, an optional dependency) has to find
the words. Two ways of using its output are implemented:

* `ChineseWords` aligns words by position: a character continues a word if the segmenter puts it
  into the same word as the character before it. Words may have any length, and the labels are the
  ids of the characters.
* `AlbertZhWords` reproduces `get_new_segment` of albert_zh, for records like those that its
  released models were trained on. The words of a sentence form a set; scanning from the left, the
  longest run of up to 3 tokens whose text is in this set is a word, wherever in the sentence the
  segmenter found it. The labels of its second and third character are their "##" forms.

Both mark Han characters only. The vocabulary decides where all other words start.
"""

from __future__ import annotations

import abc
import functools
import itertools
import logging
import re
import warnings
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from albert_tf.model.tokenization import SPIECE_UNDERLINE, BasicTokenizer, Tokenizer

Segmenter = Callable[[str], list[str]]

LONGEST_ALBERT_ZH_WORD = 3  # tokens
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f]")
_ALBERT_ZH_HAN = re.compile("[\u4e00-\u9fa5]")
_CACHED_WORDS = 200_000


def load_segmenter() -> Segmenter:
    """Returns a function that segments text into words with jieba and its default dictionary.

    Raises:
        ValueError: jieba is not installed.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # jieba uses deprecated syntax and pkg_resources
            import jieba
    except ImportError:
        raise ValueError(
            "Chinese word segmentation requires jieba: pip install 'albert-tf2[zh]'"
        ) from None
    jieba.setLogLevel(logging.WARNING)
    segmenter = jieba.Tokenizer()  # not jieba's global one, to which users may have added words
    segment: Segmenter = segmenter.lcut
    return segment


class WordMarker(abc.ABC):
    """Marks the tokens that continue a Chinese word.

    Args:
        tokenizer: the tokenizer that produced the tokens.
        segment: splits a text into words; defaults to jieba.

    Attributes:
        label_table: int32 [V], the label of each token where it continues a word; None if this is
            always the token's own id.
    """

    label_table: NDArray[np.int32] | None = None

    def __init__(self, tokenizer: Tokenizer, segment: Segmenter | None = None):
        self._tokenizer = tokenizer
        self._segment = segment or load_segmenter()

    def continues_word(self, lines: list[str], encoded: list[list[int]]) -> NDArray[np.bool_]:
        """Returns which tokens continue a word: bool [tokens of all lines, concatenated].

        Args:
            lines: sentences.
            encoded: their token ids, as returned by `tokenizer.encode_batch`.
        """
        pairs = zip(lines, encoded, strict=True)
        marks = (mark for line, ids in pairs if ids for mark in self.mark(line, ids))
        return np.fromiter(marks, bool, sum(map(len, encoded)))

    @abc.abstractmethod
    def mark(self, line: str, ids: list[int]) -> list[bool]:
        """Returns which tokens of a sentence continue a word."""


class ChineseWords(WordMarker):
    """Marks words by position; see `WordMarker`. The words of the segmenter form the text."""

    def __init__(self, tokenizer: Tokenizer, segment: Segmenter | None = None):
        super().__init__(tokenizer, segment)
        self._basic = BasicTokenizer(tokenizer.do_lower_case)
        self._size_of = functools.lru_cache(_CACHED_WORDS)(lambda word: len(tokenizer.encode(word)))

    def mark(self, line: str, ids: list[int]) -> list[bool]:
        """See `WordMarker`."""
        text, places = self._spell(line)
        begins = {0, *itertools.accumulate(map(len, self._segment(text)))}
        return [
            place not in begins and bool(_HAN.match(text, place) and _HAN.match(text, place - 1))
            for place in places
        ]

    def _spell(self, line: str) -> tuple[str, list[int]]:
        """Returns the text of a line's tokens, and the offset in it at which each token begins."""
        text = ""
        places: list[int] = []
        if self._tokenizer.is_sentencepiece:
            for piece in self._tokenizer.tokenize(line):
                spelled = piece.replace(SPIECE_UNDERLINE, " ")
                places.append(len(text) + len(spelled) - len(spelled.lstrip()))
                text += spelled
            return text, places
        for word in self._basic.words(line):
            is_han = bool(_HAN.match(word))
            # Spaces between Han characters have no meaning; other spaces separate words.
            if text and not is_han and not _HAN.match(text, len(text) - 1):
                text += " "
            # All pieces of a non-Chinese word share its offset, so that they are never marked.
            places += [len(text)] * (1 if is_han else self._size_of(word))
            text += word
        return text, places


class AlbertZhWords(WordMarker):
    """Marks words as albert_zh does, with "##" labels; see `WordMarker`.

    jieba has one word of up to 3 lower-cased tokens that mixes Han and other characters: 江南style.
    albert_zh labels its last piece "##style"; here the piece keeps its own id.

    Raises:
        ValueError: the vocabulary is not WordPiece, or lacks the "##" form of a Han character.
    """

    def __init__(self, tokenizer: Tokenizer, segment: Segmenter | None = None):
        if tokenizer.is_sentencepiece:
            raise ValueError(
                "albert_zh_compat requires a WordPiece vocabulary: set --vocab_file and not "
                "--spm_model_file"
            )
        missing = [
            piece
            for piece in tokenizer.pieces
            if _ALBERT_ZH_HAN.fullmatch(piece) and "##" + piece not in tokenizer.vocab
        ]
        if missing:
            raise ValueError(
                "albert_zh_compat predicts ##字 for 字 inside a word, but the vocabulary lacks "
                f"{len(missing)} such pieces, for example ##{missing[0]}. Use BERT's Chinese "
                "vocabulary, or omit the flag."
            )
        super().__init__(tokenizer, segment)
        continuation_ids = (
            tokenizer.vocab.get("##" + piece, piece_id)
            for piece_id, piece in enumerate(tokenizer.pieces)
        )
        self.label_table = np.fromiter(continuation_ids, np.int32)

    def mark(self, line: str, ids: list[int]) -> list[bool]:
        """See `WordMarker`; marks the tokens that albert_zh gives a "##"."""
        tokens = self._tokenizer.convert_ids_to_tokens(ids)
        words = set(self._segment("".join(tokens)))
        marks: list[bool] = []
        while (first := len(marks)) < len(tokens):
            size = 1
            if _ALBERT_ZH_HAN.search(tokens[first]):
                size = min(LONGEST_ALBERT_ZH_WORD, len(tokens) - first)
                while size > 1 and "".join(tokens[first : first + size]) not in words:
                    size -= 1
            marks += [False] + [True] * (size - 1)
        return marks

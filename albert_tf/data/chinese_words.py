"""Chinese words: which tokens of a sentence continue a word.

Chinese is written without spaces, so a segmenter (jieba, an extra) has to find the words. There are
two ways to use them, both for tokenized sentences:

* `ChineseWords` goes by position: a character continues a word if the segmenter's word at this
  position also has the character before it. Words may have any length; the ids to predict are those
  of the characters.
* `AlbertZhWords` does what albert_zh's `get_new_segment` does, for records like those of its
  released models. The words of a sentence are a set; from the left, the longest of 3, 2 or 1 tokens
  whose text is in the set is a word, wherever in the sentence the segmenter found it. The id to
  predict for its second and third character is that of their "##" form.

Both mark Han characters only: other pieces start words where the vocabulary says so.
"""

from __future__ import annotations

import functools
import itertools
import logging
import re
import warnings
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from albert_tf.tokenization import SPIECE_UNDERLINE, BasicTokenizer, FullTokenizer

Segmenter = Callable[[str], list[str]]

LONGEST_ALBERT_ZH_WORD = 3  # tokens
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f]")
_ALBERT_ZH_HAN = re.compile("[\u4e00-\u9fa5]")
_REMEMBERED = 200_000  # words


def load_segmenter() -> Segmenter:
    """Cuts text into words with jieba and its own dictionary.

    Raises:
        ValueError: jieba is not installed.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # old syntax in jieba and its way to find its files
            import jieba
    except ImportError:
        raise ValueError(
            "Chinese words need the package jieba: pip install 'albert-tf2[zh]'"
        ) from None
    jieba.setLogLevel(logging.WARNING)
    segmenter = jieba.Tokenizer()  # not the shared one, to which users may have added words
    segment: Segmenter = segmenter.lcut
    return segment


class ChineseWords:
    """Marks the tokens that continue a Chinese word, by position.

    Args:
        tokenizer: made the tokens.
        segment: cuts a text into words that joined are the text again; jieba by default.

    Attributes:
        label_table: None: the ids to predict are those of the tokens.
    """

    label_table: NDArray[np.int32] | None = None

    def __init__(self, tokenizer: FullTokenizer, segment: Segmenter | None = None):
        self._tokenizer = tokenizer
        self._segment = segment or load_segmenter()
        self._basic = BasicTokenizer(tokenizer.do_lower_case)
        self._size_of = functools.lru_cache(_REMEMBERED)(lambda word: len(tokenizer.encode(word)))

    def continues_word(self, lines: list[str], encoded: list[list[int]]) -> NDArray[np.bool_]:
        """Which tokens continue a Chinese word: bool [tokens of all lines, concatenated].

        Args:
            lines: sentences.
            encoded: their ids, as `tokenizer.encode_batch` gives them.
        """
        with_tokens = (line for line, ids in zip(lines, encoded, strict=True) if ids)
        marks = itertools.chain.from_iterable(map(self._mark, with_tokens))
        return np.fromiter(marks, bool, sum(map(len, encoded)))

    def _mark(self, line: str) -> list[bool]:
        text, places = self._spell(line)
        begins = {0, *itertools.accumulate(map(len, self._segment(text)))}
        return [
            place not in begins and bool(_HAN.match(text, place) and _HAN.match(text, place - 1))
            for place in places
        ]

    def _spell(self, line: str) -> tuple[str, list[int]]:
        """The text of the tokens of a line, and the position in it at which each token begins."""
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
            # Spaces between Han characters are layout; others separate words.
            if text and not is_han and not _HAN.match(text, len(text) - 1):
                text += " "
            # All pieces of a word that is not Chinese get its position: they are never marked.
            places += [len(text)] * (1 if is_han else self._size_of(word))
            text += word
        return text, places


class AlbertZhWords:
    """Marks words as albert_zh does, with "##" labels.

    One of jieba's words with up to 3 lower-cased tokens has other characters after Han ones:
    江南style. albert_zh reads its last piece as "##style"; here it keeps its own id.

    Args:
        tokenizer: made the tokens.
        segment: cuts a text into words; jieba by default.

    Attributes:
        label_table: int32 [V], the id to predict for a token that continues a word.

    Raises:
        ValueError: not a WordPiece vocabulary, or one without the "##" form of a Han character.
    """

    def __init__(self, tokenizer: FullTokenizer, segment: Segmenter | None = None):
        if tokenizer.is_sentencepiece:
            raise ValueError("albert_zh_compat needs a WordPiece vocabulary: --vocab_file alone")
        missing = [
            piece
            for piece in tokenizer.pieces
            if _ALBERT_ZH_HAN.fullmatch(piece) and "##" + piece not in tokenizer.vocab
        ]
        if missing:
            raise ValueError(
                "albert_zh_compat predicts ##字 for 字 inside a word, but the vocabulary lacks "
                f"{len(missing)} such pieces, for instance ##{missing[0]}. Use BERT's Chinese "
                "vocabulary, or leave the flag out."
            )
        self._pieces = tokenizer.pieces
        self._segment = segment or load_segmenter()
        twins = (
            tokenizer.vocab.get("##" + piece, piece_id)
            for piece_id, piece in enumerate(tokenizer.pieces)
        )
        self.label_table: NDArray[np.int32] | None = np.fromiter(twins, np.int32)

    def continues_word(self, lines: list[str], encoded: list[list[int]]) -> NDArray[np.bool_]:
        """Which tokens albert_zh marks with "##": bool [tokens of all lines, concatenated].

        Args:
            lines: sentences; not used.
            encoded: their ids.
        """
        marks = itertools.chain.from_iterable(map(self._mark, encoded))
        return np.fromiter(marks, bool, sum(map(len, encoded)))

    def _mark(self, ids: list[int]) -> list[bool]:
        tokens = [self._pieces[token_id] for token_id in ids]
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

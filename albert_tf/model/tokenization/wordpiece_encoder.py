"""Text to pieces and ids with a WordPiece vocabulary, as in BERT."""

from __future__ import annotations

import unicodedata

from albert_tf import files
from albert_tf.model.tokenization.characters import (
    BoundedCache,
    is_cjk,
    is_dropped,
    is_mark,
    is_punctuation,
    is_whitespace,
)

UNKNOWN_TOKEN = "[UNK]"
MAX_INPUT_CHARS_PER_WORD = 200  # longer words become one unknown token


def load_vocab(path: str) -> dict[str, int]:
    """Reads a vocabulary file with one token per line; returns token → id in file order.

    As in the official `load_vocab`, the token is the first field of its line (so `.vocab` files
    with scores can be read), a blank line is the token " ", and a repeated token gets no new id.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is empty or not UTF-8.
    """
    try:
        text = files.read_text(path)
    except ValueError as error:
        raise ValueError(f"{error}. Pass a SentencePiece .model as --spm_model_file.") from None
    if not text:
        raise ValueError(f"{path}: the file is empty; expected a vocabulary, one token per line")
    lines = text.removesuffix("\n").split("\n")
    tokens = dict.fromkeys((line.split() or [" "])[0] for line in lines)
    return {token: token_id for token_id, token in enumerate(tokens)}


def _clean(code: int) -> str | None:
    char = chr(code)
    if is_whitespace(char):
        return " "
    if is_dropped(char):
        return None
    return f" {char} " if is_cjk(char) else char


# Tables for `str.translate`: code point → text in its place, None for none.
_CLEAN_AND_SPACE_CJK = BoundedCache(_clean)
_SPACE_PUNCTUATION: BoundedCache[int, str | int] = BoundedCache(
    lambda c: f" {chr(c)} " if is_punctuation(chr(c)) else c
)
_DROP_MARKS: BoundedCache[int, int | None] = BoundedCache(lambda c: None if is_mark(chr(c)) else c)


class BasicTokenizer:
    """Splits text into words, punctuation and single CJK characters (BERT's BasicTokenizer).

    Args:
        do_lower_case: whether to lowercase and strip accents.
    """

    def __init__(self, do_lower_case: bool = True) -> None:
        self.do_lower_case = do_lower_case

    def tokenize(self, text: str) -> list[str]:
        """Returns the tokens of `text`."""
        return [part for word in self.words(text) for part in self.split_word(word)]

    def words(self, text: str) -> list[str]:
        """Splits `text` at whitespace and CJK characters, before case and punctuation."""
        return text.translate(_CLEAN_AND_SPACE_CJK).split()

    def split_word(self, word: str) -> list[str]:
        """Normalizes one of `words` if `do_lower_case`, and splits it at punctuation."""
        if self.do_lower_case:
            word = word.lower()
            if not word.isascii():
                word = unicodedata.normalize("NFD", word).translate(_DROP_MARKS)
        return word.translate(_SPACE_PUNCTUATION).split()


class WordpieceTokenizer:
    """Splits words into the longest pieces of a vocabulary (BERT's WordpieceTokenizer).

    Args:
        vocab: token → id; pieces inside a word start with "##".
    """

    def __init__(self, vocab: dict[str, int]) -> None:
        self.vocab = vocab
        self._longest = max(map(len, vocab), default=0)

    def tokenize(self, text: str) -> list[str]:
        """Returns the pieces of the whitespace-separated words of `text`."""
        return [piece for word in text.split() for piece in self.split_word(word)]

    def split_word(self, word: str) -> list[str]:
        """Returns the pieces of a word by greedy longest-match-first from the left.

        A word that cannot be split into pieces, or is too long, becomes one unknown token.
        """
        if len(word) > MAX_INPUT_CHARS_PER_WORD:
            return [UNKNOWN_TOKEN]
        pieces: list[str] = []
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            for end in range(min(len(word), start + self._longest), start, -1):
                piece = prefix + word[start:end]
                if piece in self.vocab:
                    break
            else:
                return [UNKNOWN_TOKEN]
            pieces.append(piece)
            start = end
        return pieces


class WordPieceEncoder:
    """Converts text to pieces and ids with a WordPiece vocabulary, caching words."""

    def __init__(self, path: str, do_lower_case: bool) -> None:
        self.vocab = load_vocab(path)
        self.unk_id = self.vocab.get(UNKNOWN_TOKEN, -1)
        self._basic = BasicTokenizer(do_lower_case)
        self._wordpiece = WordpieceTokenizer(self.vocab)
        self._pieces = list(self.vocab)
        self._ids_of = BoundedCache(self._cut)

    def _cut(self, word: str) -> list[int]:
        parts = self._basic.split_word(word)
        return [self.vocab[piece] for part in parts for piece in self._wordpiece.split_word(part)]

    def tokenize(self, text: str) -> list[str]:
        """Returns the pieces of a text."""
        (ids,) = self.encode([text])
        return [self._pieces[token_id] for token_id in ids]

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Returns the ids of each text."""
        ids_of = self._ids_of
        words = self._basic.words
        return [[token_id for word in words(text) for token_id in ids_of[word]] for text in texts]

    def encode_and_spell(self, texts: list[str]) -> tuple[list[list[int]], dict[int, list[str]]]:
        """Returns the ids of each text, and no spelling."""
        return self.encode(texts), {}

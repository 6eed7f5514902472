"""Which pieces of a vocabulary start a word.

Source: `is_start_piece_sp` in Google's create_pretraining_data.py.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# As in Google's program, which omits ', = and >: pieces that contain one of these start a word.
_PUNCTUATION = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~')
_LETTERS_AND_PUNCTUATION = _PUNCTUATION | frozenset("abcdefghijklmnopqrstuvwxyz")


def starts_word(piece: str) -> bool:
    """Returns whether a SentencePiece piece starts a word, like Google's `is_start_piece_sp`.

    A piece starts a word if it begins with "▁" or "<", is a punctuation mark, or contains a
    character that is neither a letter a-z nor punctuation. Every Chinese piece is therefore a
    separate word.
    """
    return (
        piece.startswith(("\u2581", "<"))
        or piece in _PUNCTUATION
        or not all(char.lower() in _LETTERS_AND_PUNCTUATION for char in piece)
    )


def word_start_table(pieces: list[str], is_sentencepiece: bool) -> NDArray[np.bool_]:
    """Returns which pieces of a vocabulary start a word: bool [V].

    In a WordPiece vocabulary these are the pieces without the prefix "##". For SentencePiece see
    `starts_word`; the entry of the unknown token is meaningless, because all unknown pieces share
    its id.
    """
    if is_sentencepiece:
        return np.array([starts_word(piece) for piece in pieces], bool)
    return np.array([not piece.startswith("##") for piece in pieces], bool)

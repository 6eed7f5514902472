"""Tokenizes the documents of a chunk of text, once for all passes over it, and finds their words.

Shapes: T tokens in the chunk, V vocabulary size.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from albert_tf.data.chinese_words import WordMarker
from albert_tf.model.tokenization import Tokenizer

LINES_AT_ONCE = 2000  # tokenized together; bounds the number of Python objects in memory
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


@dataclasses.dataclass(frozen=True)
class Documents:
    """Tokenized documents, concatenated into one array.

    Sentences and documents are never empty: `sentence_starts` and `document_starts` strictly
    increase.

    Attributes:
        ids: int32 [T], the token ids.
        word_starts: bool [T], whether each token starts a word.
        sentence_starts: token offset at which each sentence starts, followed by T.
        sentence_ends: token offset at which each sentence ends; a separator may follow.
        document_starts: index of each document's first sentence, followed by the number of
            sentences.
        labels: int32 [T], the ids to predict where tokens are masked. None if these are `ids`.
    """

    ids: NDArray[np.int32]
    word_starts: NDArray[np.bool_]
    sentence_starts: list[int]
    sentence_ends: list[int]
    document_starts: list[int]
    labels: NDArray[np.int32] | None = None

    @property
    def num_documents(self) -> int:
        """Number of documents."""
        return len(self.document_starts) - 1


def _is_blank(line: str, tokenizer: Tokenizer) -> bool:
    """Returns whether a line without tokens is blank, and so ends a document, as in Google's code.

    Lines that are not blank but have no tokens (control characters, say) are dropped instead.
    """
    return not (tokenizer.preprocess(line) if tokenizer.is_sentencepiece else line.strip())


def tokenize_documents(
    parts: Iterable[list[str]],
    tokenizer: Tokenizer,
    word_start_table: NDArray[np.bool_],
    word_marker: WordMarker | None = None,
) -> Documents:
    """Tokenizes lines of text: one sentence per line, blank lines between documents.

    Sentences without tokens and documents without sentences are dropped.

    Args:
        parts: lists of lines; each list starts a new document.
        tokenizer: the tokenizer.
        word_start_table: bool [V], which pieces start a word; see `word_start_table`.
        word_marker: finds tokens that continue a word although `word_start_table` says otherwise.
    """
    ids: list[NDArray[np.int32]] = [np.zeros(0, np.int32)]
    word_starts: list[NDArray[np.bool_]] = [np.zeros(0, bool)]
    lengths: list[int] = []
    document_starts = [0]
    for lines in parts:
        for first in range(0, len(lines), LINES_AT_ONCE):
            some = lines[first : first + LINES_AT_ONCE]
            encoded, spelled = tokenizer.encode_and_spell(some)
            ids.append(np.fromiter(itertools.chain.from_iterable(encoded), np.int32))
            word_starts.append(word_start_table[ids[-1]])
            if spelled:
                _correct_unknown_pieces(ids[-1], word_starts[-1], encoded, spelled, tokenizer)
            if word_marker:
                word_starts[-1] &= ~word_marker.continues_word(some, encoded)
            for line, pieces in zip(some, encoded, strict=True):
                if pieces:
                    lengths.append(len(pieces))
                elif _is_blank(line, tokenizer):
                    document_starts.append(len(lengths))
        document_starts.append(len(lengths))
    all_ids, all_starts = np.concatenate(ids), np.concatenate(word_starts)
    sentence_ends = list(itertools.accumulate(lengths))
    table = word_marker.label_table if word_marker else None
    return Documents(
        ids=all_ids,
        word_starts=all_starts,
        sentence_starts=[0, *sentence_ends],
        sentence_ends=sentence_ends,
        document_starts=sorted(set(document_starts)),
        labels=None if table is None else np.where(all_starts, all_ids, table[all_ids]),
    )


def _correct_unknown_pieces(
    ids: NDArray[np.int32],
    word_starts: NDArray[np.bool_],
    encoded: list[list[int]],
    spelled: dict[int, list[str]],
    tokenizer: Tokenizer,
) -> None:
    """Corrects `word_starts` in place where pieces are unknown.

    Unknown pieces share one id, so whether they start a word depends on their spelling.

    Args:
        ids: int32 [T], the ids of all lines.
        word_starts: bool [T], the entries of the pieces' ids in the table.
        encoded: the ids of each line.
        spelled: index of a line → its pieces, for all lines with unknown pieces.
        tokenizer: the tokenizer.
    """
    unknown = np.flatnonzero(ids == tokenizer.unk_id)
    ends = np.cumsum([len(pieces) for pieces in encoded])
    lines = np.searchsorted(ends, unknown, side="right")
    places = unknown - ends[lines]  # counted from the end of the line: -1 is its last piece
    word_starts[unknown] = [
        starts_word(spelled[line][place])
        for line, place in zip(lines.tolist(), places.tolist(), strict=True)
    ]

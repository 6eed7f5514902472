"""Aligns the pieces of a text with its characters, inside a TensorFlow graph.

`squad.alignment` finds a longest common subsequence of the text and the joined pieces. This module
computes the alignment from the number of characters that each character is normalized to, and from
the offsets that the tokenizer returns. The result is the same, with two exceptions. A subsequence
may pair a character with an equal neighbor that another character was normalized to, as in "….".
If the first word has no matched characters, a subsequence may also pair the space after it with the
space that SentencePiece adds before it.

Letters: B batch size, T pieces of a text (ragged), M characters in the batch, V normalized
characters in the batch.
"""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from albert_tf import tokenization
from albert_tf.serving.graph_characters import CharacterTable
from albert_tf.serving.graph_tokenizer import GraphTokenizer, cumulative, valid_utf8
from albert_tf.tokenization import BasicTokenizer, FullTokenizer

MIN_MATCHED = 0.8  # share of the characters; below it, no piece is kept, as in `squad.alignment`
_SPACE = 127  # marks spaces in the table of counts: only the first space in a run is kept


@dataclasses.dataclass(frozen=True)
class AlignedTexts:
    """The pieces of texts and their positions.

    Attributes:
        codes: code points of the texts, int32 [B, ragged].
        ids: ids of the pieces, int32 [B, T].
        first, last: indices of the first and last character of each piece in its text, both
            inclusive, int64 [B, T].
    """

    codes: tf.RaggedTensor
    ids: tf.RaggedTensor
    first: tf.RaggedTensor
    last: tf.RaggedTensor


class GraphAligner(tf.Module):
    """Tokenizes texts and aligns the pieces with them.

    Args:
        tokenizer: the tokenizer of the model.
        graph: the same tokenizer in a graph.
    """

    def __init__(self, tokenizer: FullTokenizer, graph: GraphTokenizer) -> None:
        super().__init__(name="aligner")
        self._graph = graph
        self._is_sentencepiece = tokenizer.is_sentencepiece
        lower = tokenizer.do_lower_case
        basic = BasicTokenizer(lower)

        def count(char: str) -> int:
            if not tokenizer.is_sentencepiece:
                return sum(len(part) for part in basic.tokenize(char))
            if char.isspace():
                return _SPACE
            return len(tokenization.preprocess_text(char, remove_space=False, lower=lower))

        self._counts = CharacterTable(count)

    def tokenize(self, texts: tf.Tensor) -> AlignedTexts:
        """Returns the pieces of texts, aligned with their characters.

        Args:
            texts: string [B], UTF-8. Invalid bytes become U+FFFD.
        """
        codes = tf.strings.unicode_decode(valid_utf8(texts), "UTF-8")  # [B, ragged]
        codes = codes.with_row_splits_dtype(tf.int64)
        counts = codes.with_flat_values(self._counts.look_up(codes.flat_values))
        if self._is_sentencepiece:
            counts = _with_single_spaces(counts)
        ids, begins, ends = self._graph.tokenize_with_offsets(texts)  # [B, T]
        first, last = self._characters(counts, begins, ends)
        if self._is_sentencepiece:
            # The first piece includes all characters before it, which its "▁" stands for.
            is_first = tf.ragged.range(ids.row_lengths()).flat_values == 0
            places = first.flat_values
            first = first.with_flat_values(tf.where(is_first, tf.zeros_like(places), places))
            matched = tf.reduce_sum(tf.cast(counts == 1, tf.float64), axis=1)  # [B]
            lengths = tf.cast(codes.row_lengths(), tf.float64)
            is_aligned = (matched >= MIN_MATCHED * lengths) & (matched > 0)
            is_kept = tf.gather(is_aligned, ids.value_rowids())  # [T of all]
            ids, first, last = (
                tf.ragged.boolean_mask(x, ids.with_flat_values(is_kept)) for x in (ids, first, last)
            )
        return AlignedTexts(codes, ids, first, last)

    def _characters(
        self, counts: tf.RaggedTensor, begins: tf.RaggedTensor, ends: tf.RaggedTensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
        """Returns the first and last character of each piece, int64 [B, T].

        Args:
            counts: number of characters that each character is normalized to, int32 [B, ragged].
            begins: first normalized character of each piece, int64 [B, T].
            ends: end of each piece in normalized characters, exclusive, int64 [B, T].
        """
        flat = tf.cast(counts.flat_values, tf.int64)  # [M]
        total = tf.cumsum(flat)  # [M]
        origins = tf.repeat(tf.range(tf.size(flat, tf.int64)), flat)  # [V], in the batch
        # Where each row begins, among all characters and among all normalized characters.
        row_begins = tf.gather(counts.row_starts(), begins.value_rowids())
        total = tf.concat([tf.zeros([1], tf.int64), total], 0)
        normal_begins = tf.gather(total, row_begins)
        first, last = _fill_unmatched(counts) if self._is_sentencepiece else (None, None)

        def character(offsets: tf.Tensor, filled: tf.Tensor | None) -> tf.RaggedTensor:
            place = tf.clip_by_value(normal_begins + offsets, 0, tf.size(origins, tf.int64) - 1)
            place = tf.gather(origins, place)
            place = place if filled is None else tf.gather(filled, place)
            return begins.with_flat_values(tf.maximum(place - row_begins, 0))

        return character(begins.flat_values, first), character(ends.flat_values - 1, last)


def _with_single_spaces(counts: tf.RaggedTensor) -> tf.RaggedTensor:
    """Returns counts with 1 for the first space of each inner run of spaces, 0 for others."""
    flat = counts.flat_values  # [M]
    rows = counts.value_rowids()  # [M]
    is_text = flat != _SPACE
    words = cumulative(counts.with_flat_values(tf.cast(is_text, tf.int64)))  # [B, ragged]
    in_row = tf.reduce_sum(counts.with_flat_values(tf.cast(is_text, tf.int64)), axis=1)  # [B]
    is_inside = (words.flat_values > 0) & (words.flat_values < tf.gather(in_row, rows))
    is_first = tf.roll(is_text, 1, 0)  # a space at the start of a text is not inside
    spaces = tf.cast(is_inside & is_first, tf.int32)
    return counts.with_flat_values(tf.where(is_text, flat, spaces))


def _fill_unmatched(counts: tf.RaggedTensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the range of characters to use for each character that a piece begins or ends with.

    A character that is normalized to exactly one character is matched with itself. Others, such as
    "½", match nothing in the joined pieces: their range begins after the previous matched character
    and ends before the next one.

    Returns:
        The first and the last character, int64 [M] each, indices in the batch.
    """
    is_matched = counts.flat_values == 1  # [M]
    places = tf.range(tf.size(is_matched, tf.int64))
    matched = tf.concat([tf.boolean_mask(places, is_matched), tf.zeros([1], tf.int64)], 0)
    up_to = tf.cumsum(tf.cast(is_matched, tf.int64))  # [M]
    rows = counts.value_rowids()
    count = tf.reduce_sum(tf.cast(is_matched, tf.int64))
    row_begin = tf.gather(counts.row_starts(), rows)  # [M]
    row_end = tf.gather(counts.row_limits(), rows)  # [M]
    before = tf.where(up_to > 0, tf.gather(matched, tf.maximum(up_to - 1, 0)), -1)
    after = tf.where(up_to < count, tf.gather(matched, up_to), row_end)
    first = tf.maximum(before + 1, row_begin)
    last = tf.minimum(after, row_end) - 1
    return tf.where(is_matched, places, first), tf.where(is_matched, places, last)

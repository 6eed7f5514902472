"""Aligns the pieces of a text with its characters, inside a TensorFlow graph.

The result is that of `squad.alignment`, which finds a longest common subsequence of the text and
the joined pieces. Here it follows from how many characters normalization makes of each character,
and from the offsets that the tokenizer knows: the same, except where a subsequence pairs a
character with an equal one beside it that was made of another character, as in "….", or the space
behind a first word without matched characters with the one that SentencePiece adds before it.

Letters: B batch, T pieces of a text (ragged), M characters of the batch, V the normalized ones.
"""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from albert_tf import tokenization
from albert_tf.serving.graph_characters import CharacterTable
from albert_tf.serving.graph_tokenizer import GraphTokenizer, cumulative, valid_utf8
from albert_tf.tokenization import BasicTokenizer, FullTokenizer

MIN_MATCHED = 0.8  # share of the characters; below, a text has no pieces, as in `squad.alignment`
_SPACE = 127  # in the table of normalized characters: only the first of a run of spaces is kept


@dataclasses.dataclass(frozen=True)
class AlignedTexts:
    """The pieces of texts, and where they are in them.

    Attributes:
        codes: int32 [B, ragged], the characters.
        ids: int32 [B, T].
        first, last: int64 [B, T], the index in a text of the first and last character of each
            piece, both inclusive.
    """

    codes: tf.RaggedTensor
    ids: tf.RaggedTensor
    first: tf.RaggedTensor
    last: tf.RaggedTensor


class GraphAligner(tf.Module):
    """Tokenizes texts and aligns the pieces with them.

    Args:
        tokenizer: of the model's vocabulary.
        graph: the same in a graph.
    """

    def __init__(self, tokenizer: FullTokenizer, graph: GraphTokenizer) -> None:
        super().__init__(name="aligner")
        self._graph, self._is_sentencepiece = graph, tokenizer.is_sentencepiece
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
        """Returns the pieces of texts.

        Args:
            texts: string [B], UTF-8. Bytes that are not become U+FFFD.
        """
        codes = tf.strings.unicode_decode(valid_utf8(texts), "UTF-8")  # [B, ragged]
        codes = codes.with_row_splits_dtype(tf.int64)
        counts = codes.with_flat_values(self._counts.look_up(codes.flat_values))
        if self._is_sentencepiece:
            counts = _with_single_spaces(counts)
        ids, begins, ends = self._graph.tokenize_with_offsets(texts)  # [B, T]
        first, last = self._characters(counts, begins, ends)
        if self._is_sentencepiece:
            # What is before the first piece belongs to it: its space, in the joined pieces.
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
        """Returns the first and last character of pieces.

        Args:
            counts: int32 [B, ragged], the normalized characters that each character makes.
            begins: int64 [B, T], the first normalized character of each piece.
            ends: int64 [B, T], the one behind its last.
        """
        flat = tf.cast(counts.flat_values, tf.int64)  # [M]
        total = tf.cumsum(flat)  # [M]
        origins = tf.repeat(tf.range(tf.size(flat, tf.int64)), flat)  # [V], in the batch
        # Rows of the batch begin here, among its characters and its normalized characters.
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
    """Returns counts with 1 for the first of a run of spaces within a text, 0 for other spaces."""
    flat, rows = counts.flat_values, counts.value_rowids()  # [M]
    is_text = flat != _SPACE
    words = cumulative(counts.with_flat_values(tf.cast(is_text, tf.int64)))  # [B, ragged]
    in_row = tf.reduce_sum(counts.with_flat_values(tf.cast(is_text, tf.int64)), axis=1)  # [B]
    is_inside = (words.flat_values > 0) & (words.flat_values < tf.gather(in_row, rows))
    is_first = tf.roll(is_text, 1, 0)  # what is before the first of a text is not inside of one
    spaces = tf.cast(is_inside & is_first, tf.int32)
    return counts.with_flat_values(tf.where(is_text, flat, spaces))


def _fill_unmatched(counts: tf.RaggedTensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the first and last character of what is normalized to each character.

    A character that makes exactly one stands for itself. Others, as "½", are matched with nothing
    in the joined pieces: what they make begins behind the matched character before, and ends before
    the next one.

    Returns:
        int64 [M] each, indices in the batch.
    """
    is_matched = counts.flat_values == 1  # [M]
    places = tf.range(tf.size(is_matched, tf.int64))
    matched = tf.concat([tf.boolean_mask(places, is_matched), tf.zeros([1], tf.int64)], 0)
    up_to = tf.cumsum(tf.cast(is_matched, tf.int64))  # [M]
    rows, count = counts.value_rowids(), tf.reduce_sum(tf.cast(is_matched, tf.int64))
    row_begin = tf.gather(counts.row_starts(), rows)  # [M]
    row_end = tf.gather(counts.row_limits(), rows)  # [M]
    before = tf.where(up_to > 0, tf.gather(matched, tf.maximum(up_to - 1, 0)), -1)
    after = tf.where(up_to < count, tf.gather(matched, up_to), row_end)
    first = tf.maximum(before + 1, row_begin)
    last = tf.minimum(after, row_end) - 1
    return tf.where(is_matched, places, first), tf.where(is_matched, places, last)

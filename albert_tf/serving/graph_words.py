"""Builds the input of token classifiers from raw strings, inside a TensorFlow graph.

Texts are split into words as in `tokenization.find_words`. Each word is tokenized, and the pieces
are arranged in windows as in the fine-tuning program:

    [CLS] pieces of whole words [SEP] padding

Letters: B batch size, M characters in the batch, W words of a text (ragged), T words in the batch,
P pieces of a word (ragged), N windows, S sequence length.
"""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from albert_tf import tokenization
from albert_tf.serving.graph_characters import CharacterTable
from albert_tf.serving.graph_tokenizer import GraphTokenizer, keep, valid_utf8

_KINDS = tokenization.WORD_KINDS
_SPACE, _LETTER, _PUNCTUATION = map(_KINDS.index, " a.")
_SPECIAL_TOKENS = 2


class WordSplitter(tf.Module):
    """Splits texts into words as `tokenization.find_words` does."""

    def __init__(self) -> None:
        super().__init__(name="words")
        self._kinds = CharacterTable(lambda char: _KINDS.index(tokenization.word_kind(char)))

    def split(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Returns the words of texts and their offsets.

        Args:
            texts: string [B], UTF-8.

        Returns:
            The words, string [B, W], and the character offsets where they begin and end
            (exclusive), int32 [B, W] each.
        """
        codes = tf.strings.unicode_decode(valid_utf8(texts), "UTF-8")  # [B, ragged]
        rows = codes.value_rowids()  # [M]
        places = tf.ragged.range(codes.row_lengths()).flat_values  # [M]
        kinds = self._kinds.look_up(codes.flat_values)  # [M]
        before, after = _neighbors(kinds, rows)
        is_inside = (kinds == _PUNCTUATION) & (before == _LETTER) & (after == _LETTER)
        kinds = tf.where(is_inside, _LETTER, kinds)
        before, _ = _neighbors(kinds, rows)
        is_start = (kinds != _SPACE) & ((kinds != _LETTER) | (before != _LETTER))  # [M]
        is_kept = kinds != _SPACE
        word_of_char = tf.cumsum(tf.cast(is_start, tf.int64)) - 1  # [M]
        begins = tf.cast(tf.boolean_mask(places, is_start), tf.int32)  # [T]
        chars = tf.RaggedTensor.from_value_rowids(
            tf.boolean_mask(codes.flat_values, is_kept),
            tf.boolean_mask(word_of_char, is_kept),
            tf.size(begins, tf.int64),
        )  # [T, ragged]
        words = tf.strings.unicode_encode(chars, "UTF-8")  # [T]
        ends = begins + tf.cast(chars.row_lengths(), tf.int32)  # [T]
        row_of_word = tf.boolean_mask(rows, is_start)  # [T]
        count = tf.size(texts, tf.int64)
        split, first, last = (
            tf.RaggedTensor.from_value_rowids(values, row_of_word, count)
            for values in (words, begins, ends)
        )
        return split, first, last


def _neighbors(kinds: tf.Tensor, rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the kinds of the previous and next characters; beyond a text, these are spaces."""
    before = tf.roll(kinds, 1, 0)
    after = tf.roll(kinds, -1, 0)
    has_before = tf.roll(rows, 1, 0) == rows
    has_after = tf.roll(rows, -1, 0) == rows
    places = tf.range(tf.size(kinds))
    has_before &= places > 0
    has_after &= places < tf.size(kinds) - 1
    return tf.where(has_before, before, _SPACE), tf.where(has_after, after, _SPACE)


@dataclasses.dataclass(frozen=True)
class Windows:
    """The model's input for words.

    Attributes:
        batch: `input_ids`, `input_mask` and `segment_ids`, int32 [N, S].
        places: window of each word and position of its first piece in it, int64 [T, 2].
    """

    batch: dict[str, tf.Tensor]
    places: tf.Tensor


def pack(tokenizer: GraphTokenizer, words: tf.RaggedTensor, max_seq_length: int) -> Windows:
    """Returns the windows of texts; each word is tokenized separately.

    Args:
        tokenizer: the tokenizer of the model.
        words: string [B, W].
        max_seq_length: maximum number of tokens in a window; longer texts are split between words.
    """
    room = max_seq_length - _SPECIAL_TOKENS
    pieces = tokenizer.tokenize(words.flat_values)  # [T, P]
    is_empty = tf.cast(pieces.row_lengths() == 0, tf.int64)  # such as a lone accent
    unknown = tf.RaggedTensor.from_row_lengths(
        tf.fill([tf.reduce_sum(is_empty)], tokenizer.unk_id), is_empty
    )
    pieces = tf.concat([keep(pieces, tf.fill(tf.shape(is_empty), room)), unknown], 1)  # [T, P]
    windows, counts = _windows(words.with_flat_values(pieces.row_lengths()), room)
    windows += tf.gather(tf.cumsum(counts, exclusive=True), words.value_rowids())  # [T]
    ids = tf.RaggedTensor.from_value_rowids(pieces, windows, tf.reduce_sum(counts))
    ids = ids.merge_dims(1, 2)  # [N, pieces]
    positions = 1 + pieces.row_starts() - tf.gather(ids.row_starts(), windows)  # [T]
    ends = tf.shape(ids.row_starts())[0]
    cls, sep = (tf.fill([ends, 1], value) for value in (tokenizer.cls_id, tokenizer.sep_id))
    ids = tf.concat([cls, ids, sep], 1)
    input_ids = ids.to_tensor(tokenizer.pad_id)  # [N, S]
    batch = {
        "input_ids": input_ids,
        "input_mask": tf.ones_like(ids).to_tensor(0),
        "segment_ids": tf.zeros_like(input_ids),
    }
    return Windows(batch, tf.stack([windows, positions], axis=1))


def _windows(lengths: tf.RaggedTensor, room: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the window of each word among those of its text, and the number of windows.

    Args:
        lengths: number of pieces of each word, int64 [B, W], at most `room`.
        room: maximum number of pieces in a window.

    Returns:
        The window of each word, int64 [T], and the number of windows of each text, int64 [B]. A
        text without words has one window.
    """
    dense = lengths.to_tensor(0)  # [B, W]
    ends = tf.cumsum(dense, axis=1)  # [B, W], pieces up to the end of each word
    width = tf.shape(dense, tf.int64)[1]
    places = tf.range(width)

    def fill(begin: tf.Tensor, window: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        first = tf.minimum(begin, width - 1)[:, None]
        used = tf.gather(ends - dense, first, batch_dims=1)  # [B, 1], pieces of earlier windows
        end = tf.reduce_sum(tf.cast(ends <= used + room, tf.int64), axis=1)  # [B]
        return end, window + tf.cast(places >= end[:, None], tf.int64)

    _, window = tf.while_loop(
        lambda begin, _: tf.reduce_any(begin < lengths.row_lengths()),
        fill,
        (tf.zeros_like(lengths.row_lengths()), tf.zeros_like(dense)),
    )
    window = tf.RaggedTensor.from_tensor(window, lengths.row_lengths())
    last = tf.concat([window, tf.zeros_like(lengths.row_lengths())[:, None]], axis=1)
    return window.flat_values, tf.reduce_max(last, axis=1) + 1

"""Tokenizes inside a TensorFlow graph, so that exported models accept raw strings.

    tokens = GraphTokenizer(tokenizer)
    batch = tokens.pack(tf.constant(["The river"]), tf.constant(["A boat"]), max_seq_length=128)

The ids are the same as those of `FullTokenizer`. Text is normalized by regular
expressions with the same character classes as in Python, and tokenized by the SentencePiece or
WordPiece ops of tensorflow-text. docs/notebook/differences.md lists the exceptions, which are
characters that are missing in one of the two Unicode versions.

Letters: B batch size, T tokens of a text (ragged), S sequence length, V vocabulary size.
"""

from __future__ import annotations

from typing import TypeGuard

import tensorflow as tf
import tensorflow_text as tf_text
from absl import logging

from albert_tf.model.tokenization import (
    SPIECE_UNDERLINE,
    UNKNOWN_TOKEN,
    FullTokenizer,
    Tokenizer,
    characters,
)
from albert_tf.model.tokenization.characters import character_class
from albert_tf.model.tokenization.sentencepiece_encoder import has_number_comma
from albert_tf.model.tokenization.wordpiece_encoder import MAX_INPUT_CHARS_PER_WORD

_UNKNOWN_CHARACTER = "\ue000"  # private use, so that no vocabulary contains it
# More than MAX_INPUT_CHARS_PER_WORD characters need in UTF-8.
_MAX_BYTES_PER_WORD = 8 * MAX_INPUT_CHARS_PER_WORD


def is_supported(tokenizer: Tokenizer) -> TypeGuard[FullTokenizer]:
    """Returns whether texts can be tokenized in a graph; logs it if they cannot."""
    if isinstance(tokenizer, FullTokenizer):
        return True
    logging.warning(
        "The tokenizer of a Hugging Face folder cannot be computed in a graph: the export takes "
        "ids, not texts"
    )
    return False


class GraphTokenizer(tf.Module):
    """Tokenizes strings in a graph, with the vocabulary of a `FullTokenizer`.

    It owns lookup tables, so it must be an attribute of the object saved as a SavedModel.

    Args:
        tokenizer: the tokenizer to reproduce.

    Attributes:
        cls_id, sep_id, pad_id: ids of the special tokens.
    """

    def __init__(self, tokenizer: FullTokenizer) -> None:
        super().__init__(name="tokenizer")
        self.cls_id = tokenizer.cls_id
        self.sep_id = tokenizer.sep_id
        self.pad_id = tokenizer.pad_id
        kind = _SentencePiece if tokenizer.is_sentencepiece else _WordPiece
        self._pieces: _SentencePiece | _WordPiece = kind(tokenizer)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of texts without special tokens, as `FullTokenizer.encode_batch` does.

        Args:
            texts: string [B], UTF-8. Invalid bytes become U+FFFD.

        Returns:
            The ids, int32 [B, T].
        """
        valid = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")
        return self._pieces.tokenize(valid).with_row_splits_dtype(tf.int64)

    def pack(
        self,
        texts: tf.Tensor,
        pairs: tf.Tensor | None,
        max_seq_length: int,
        pad_to: int | None = None,
    ) -> dict[str, tf.Tensor]:
        """Returns the model's input for texts or text pairs, as `FullTokenizer.__call__` does.

        Args:
            texts: string [B].
            pairs: second texts, string [B], "" where a row has only one text; or None.
            max_seq_length: maximum number of tokens in a row, including special tokens.
            pad_to: S; None pads to the longest row.

        Returns:
            `input_ids`, `input_mask` and `segment_ids`, int32 [B, S].
        """
        first = self.tokenize(texts)  # [B, T]
        second = self.tokenize(tf.zeros_like(texts) if pairs is None else pairs)  # [B, T]
        has_second = second.row_lengths() > 0  # [B]
        room = max_seq_length - tf.where(has_second, 3, 2)  # [B]
        kept_first, kept_second = truncated_lengths(
            tf.cast(first.row_lengths(), tf.int32), tf.cast(second.row_lengths(), tf.int32), room
        )
        rows = tf.shape(texts)[0]
        cls = tf.fill([rows, 1], self.cls_id)
        sep = tf.fill([rows, 1], self.sep_id)
        ends = tf.cast(kept_second > 0, tf.int64)  # [B]
        last_sep = tf.RaggedTensor.from_row_lengths(
            tf.fill([tf.reduce_sum(ends)], self.sep_id), ends
        )
        segment_0 = tf.concat([cls, keep(first, kept_first), sep], axis=1)  # [B, T]
        segment_1 = tf.concat([keep(second, kept_second), last_sep], axis=1)  # [B, T]
        ids = tf.concat([segment_0, segment_1], axis=1)
        segments = tf.concat([tf.zeros_like(segment_0), tf.ones_like(segment_1)], axis=1)
        return {
            "input_ids": ids.to_tensor(self.pad_id, shape=[None, pad_to]),
            "input_mask": tf.ones_like(ids).to_tensor(0, shape=[None, pad_to]),
            "segment_ids": segments.to_tensor(0, shape=[None, pad_to]),
        }


def truncated_lengths(
    first: tf.Tensor, second: tf.Tensor, room: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the lengths of text pairs truncated to `room` tokens, as in `tokenization`.

    Args:
        first: number of tokens in the first texts, int32 [B].
        second: number of tokens in the second texts, int32 [B].
        room: maximum number of tokens in a pair, int32 [B].

    Returns:
        The number of tokens to keep in the first and second texts, int32 [B] each.
    """
    half = room // 2
    # Truncates the longer text, but not below half of the room; then, truncates both.
    kept_second = tf.where(
        first + second <= room,
        second,
        tf.where(first <= room - half, room - first, tf.minimum(second, half)),
    )
    return tf.minimum(first, room - kept_second), kept_second


def keep(tokens: tf.RaggedTensor, lengths: tf.Tensor) -> tf.RaggedTensor:
    """Returns the first `lengths` [B] tokens of each row of `tokens` [B, T]."""
    positions = tf.ragged.range(tokens.row_lengths())  # [B, T]
    return tf.ragged.boolean_mask(
        tokens, positions < tf.cast(tf.expand_dims(lengths, 1), positions.dtype)
    )


class _SentencePiece(tf.Module):
    """Implements `preprocess_text` and `encode_pieces` of `tokenization` in a graph."""

    def __init__(self, tokenizer: FullTokenizer) -> None:
        super().__init__(name="sentencepiece")
        self._lower = tokenizer.do_lower_case
        self._spaces = character_class(str.isspace) + "+"
        self._combining = character_class(characters.is_combining) + "+"
        self._model = tokenizer.sentencepiece_model
        self._unk_id = tokenizer.unk_id
        table = tf.lookup.KeyValueTensorInitializer(
            tokenizer.pieces, list(range(tokenizer.vocab_size)), tf.string, tf.int32
        )
        self._id_of_piece = tf.lookup.StaticHashTable(table, tokenizer.unk_id)
        # The result of `encode_pieces` for each piece: the piece itself, or the pieces of a number
        # and its trailing comma.
        final_ids = [
            _ids_without_comma(tokenizer, piece) if has_number_comma(piece) else [piece_id]
            for piece_id, piece in enumerate(tokenizer.pieces)
        ]
        self._final_ids = tf.ragged.constant(final_ids, tf.int32)  # [V, ragged]

    def _preprocess(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns the normalized form of valid UTF-8 texts [B]."""
        # `tf.strings.lower` truncates texts at NUL characters.
        texts = tf.strings.regex_replace(texts, r"\x00", _UNKNOWN_CHARACTER)
        texts = tf.strings.strip(tf.strings.regex_replace(texts, self._spaces, " "))
        texts = tf_text.normalize_utf8(texts, "NFKD")
        texts = tf.strings.regex_replace(texts, self._combining, "")
        return tf.strings.lower(texts, encoding="utf-8") if self._lower else texts

    def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids, int32 [B, T], of valid UTF-8 texts [B]."""
        texts = self._preprocess(texts)
        ids = self._sentencepiece(tf.int32).tokenize(texts)  # [B, T]
        ids = ids.with_flat_values(self._find_special_symbols(ids.flat_values, texts))
        return tf.gather(self._final_ids, ids).merge_dims(1, 2)  # [B, T]

    def _sentencepiece(self, out_type: tf.DType) -> tf_text.SentencepieceTokenizer:
        """Returns a tokenizer whose model is part of the current graph.

        A tokenizer created once outside the graph would lose its model when TensorFlow clears its
        caches, for example in `tf.random.set_seed`.
        """
        return tf_text.SentencepieceTokenizer(self._model, out_type)

    def _find_special_symbols(self, ids: tf.Tensor, texts: tf.Tensor) -> tf.Tensor:
        """Replaces the ids of unknown pieces that are special tokens, such as "[MASK]".

        SentencePiece never recognizes special tokens in text, but the official program looks up
        all pieces in the vocabulary.
        """

        def look_up() -> tf.Tensor:
            pieces = self._sentencepiece(tf.string).tokenize(texts)
            return self._id_of_piece.lookup(pieces.flat_values)

        is_unknown = tf.equal(ids, self._unk_id)
        return tf.cond(
            tf.reduce_any(is_unknown), lambda: tf.where(is_unknown, look_up(), ids), lambda: ids
        )


class _WordPiece(tf.Module):
    """Implements `BasicTokenizer` and `WordpieceTokenizer` of `tokenization` in a graph."""

    def __init__(self, tokenizer: FullTokenizer) -> None:
        super().__init__(name="wordpiece")
        self._lower = tokenizer.do_lower_case
        self._dropped = character_class(characters.is_dropped) + "+"
        self._spaces = character_class(_is_space) + "+"
        self._cjk = f"({character_class(characters.is_cjk)})"
        self._marks = character_class(characters.is_mark) + "+"
        self._punctuation = f"({character_class(characters.is_punctuation)})"
        self._ids = tf_text.FastWordpieceTokenizer(
            tokenizer.pieces,
            suffix_indicator="##",
            max_bytes_per_word=_MAX_BYTES_PER_WORD,
            token_out_type=tf.int32,
            unknown_token=UNKNOWN_TOKEN,
            no_pretokenization=True,
        )

    def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids, int32 [B, T], of valid UTF-8 texts [B]."""
        words = self._words(texts)  # [B, words]
        sizes = tf.strings.length(words.flat_values, "UTF8_CHAR")
        is_too_long = sizes > MAX_INPUT_CHARS_PER_WORD
        known = tf.where(is_too_long, UNKNOWN_TOKEN, words.flat_values)
        words = words.with_flat_values(known)
        return self._ids.tokenize(words).merge_dims(1, 2)  # [B, T]

    def _words(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the words of valid UTF-8 texts [B], string [B, words]."""
        texts = tf.strings.regex_replace(texts, self._dropped, "")
        texts = tf.strings.regex_replace(texts, self._spaces, " ")
        texts = tf.strings.regex_replace(texts, self._cjk, r" \1 ")
        if self._lower:
            texts = tf.strings.lower(texts, encoding="utf-8")
            texts = tf_text.normalize_utf8(texts, "NFD")
            texts = tf.strings.regex_replace(texts, self._marks, "")
        texts = tf.strings.regex_replace(texts, self._punctuation, r" \1 ")
        return tf.strings.split(texts).with_row_splits_dtype(tf.int64)  # [B, words]


def _is_space(char: str) -> bool:
    """Whether `BasicTokenizer` splits words at a character."""
    return char.isspace() and not characters.is_dropped(char)


def _ids_without_comma(tokenizer: FullTokenizer, piece: str) -> list[int]:
    """Returns the ids of the number and the comma in a piece such as "▁1999,"."""
    body = piece[:-1].replace(SPIECE_UNDERLINE, "")
    return tokenizer.convert_tokens_to_ids([*tokenizer.tokenize_preprocessed(body), ","])

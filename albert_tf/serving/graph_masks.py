"""Predicts the words for "[MASK]" in raw strings, inside a TensorFlow graph.

The model's input and the predicted words are the same as in `inference.predictors.MaskFiller`.

Letters: B batch size, N parts of texts between masks, T tokens (ragged), S sequence length, P masks
in a text, V vocabulary size, K words per mask.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from albert_tf.serving.graph_tokenizer import GraphTokenizer
from albert_tf.tokenization import MASK_TOKEN as MASK
from albert_tf.tokenization import FullTokenizer, Tokenizer, character_class

_DROPPED = -1  # marks pieces of which nothing is left without the space


def is_word(tokenizer: Tokenizer) -> list[bool]:
    """Returns whether each piece is a word, not a special token or a lone space."""
    special = {tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id}
    special |= {tokenizer.pad_id, tokenizer.unk_id}
    return [
        number not in special and bool(tokenizer.detokenize([piece]))
        for number, piece in enumerate(tokenizer.pieces)
    ]


class MaskReader(tf.Module):
    """Converts texts with masks to the input of a pre-trained model, and predicts the words.

    Args:
        tokenizer: the tokenizer of the model.
        max_seq_length: maximum of S; a longer text is reduced to a window around its masks.
        top_k: K.
    """

    def __init__(self, tokenizer: FullTokenizer, max_seq_length: int, top_k: int) -> None:
        super().__init__(name="masks")
        self._room = max_seq_length - 2
        self._mask_id = tokenizer.mask_id
        self._is_sentencepiece = tokenizer.is_sentencepiece
        self._tokenizer = GraphTokenizer(tokenizer)
        self._starts_with_text = f"(?s)[^{character_class(str.isspace)[1:]}.*"
        self._top_k = min(top_k, tokenizer.vocab_size)
        self._is_word = tf.constant(np.array(is_word(tokenizer), np.float32))  # [V]
        self._words = tf.constant([tokenizer.detokenize([piece]) for piece in tokenizer.pieces])
        glued = [tokenizer.id_without_space(piece) for piece in tokenizer.pieces]
        self._glued_ids = tf.constant([_DROPPED if x is None else x for x in glued])  # [V]

    def fill(
        self, texts: tf.Tensor, find_logits: Callable[[dict[str, tf.Tensor]], tf.Tensor]
    ) -> dict[str, tf.Tensor]:
        """Returns the words for the masks of texts.

        Args:
            texts: string [B].
            find_logits: the model, a function from a batch with `masked_lm_positions` to logits,
                float32 [B, P, V or more].

        Returns:
            `filled`, string [B], the texts with the best words; `tokens`, string, and `scores`,
            float32, [B, P, K], which are "" and 0 where a text has fewer masks or a mask is outside
            the window.
        """
        parts = tf.strings.split(texts, MASK)  # [B, ragged]
        is_first = tf.ragged.range(parts.row_lengths()).flat_values == 0  # [N]
        ids = self._join(parts, is_first)  # [B, T]
        places = tf.ragged.boolean_mask(tf.ragged.range(ids.row_lengths()), ids == self._mask_id)
        begin = self._window(ids, places)[:, None]  # [B, 1]
        order = tf.ragged.range(ids.row_lengths())
        kept = tf.ragged.boolean_mask(ids, (order >= begin) & (order < begin + self._room))
        is_read = (places >= begin) & (places < begin + self._room)  # [B, P]
        positions = tf.where(is_read, places - begin + 1, tf.zeros_like(places))
        logits = find_logits(self._batch(kept, positions))
        scores = tf.nn.softmax(logits)[:, :, : self._is_word.shape[0]] * self._is_word
        best = tf.math.top_k(scores, self._top_k)
        is_there = is_read.to_tensor(False)[:, :, None]  # [B, P, 1]
        tokens = tf.where(is_there, tf.gather(self._words, best.indices), "")
        words = tf.where(is_there[:, :, 0], tokens[:, :, 0], MASK)  # [B, P]
        return {
            "filled": _fill_in(parts, is_first, tf.ragged.boolean_mask(words, _has(places))),
            "tokens": tokens,
            "scores": tf.where(is_there, best.values, 0.0),
        }

    def _join(self, parts: tf.RaggedTensor, is_first: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of the parts of each text, joined by masks, int32 [B, T]."""
        ids = self._tokenizer.tokenize(parts.flat_values)  # [N, T]
        if self._is_sentencepiece:
            # "[MASK]." has no space before the period.
            is_glued = tf.strings.regex_full_match(parts.flat_values, self._starts_with_text)
            is_glued = tf.gather(is_glued & ~is_first, ids.value_rowids())
            is_glued &= tf.ragged.range(ids.row_lengths()).flat_values == 0
            glued = tf.where(is_glued, tf.gather(self._glued_ids, ids.flat_values), ids.flat_values)
            ids = ids.with_flat_values(glued)
            ids = tf.ragged.boolean_mask(ids, ids != _DROPPED)
        count = tf.cast(~is_first, tf.int64)  # [N]
        masks = tf.RaggedTensor.from_row_lengths(
            tf.fill([tf.reduce_sum(count)], self._mask_id), count
        )
        ids = tf.concat([masks, ids], axis=1)
        return parts.with_row_splits_dtype(tf.int64).with_flat_values(ids).merge_dims(1, 2)

    def _window(self, ids: tf.RaggedTensor, places: tf.RaggedTensor) -> tf.Tensor:
        """Returns the start of each window, int64 [B], chosen so that masks are in the middle."""
        first = tf.concat([places[:, :1], tf.zeros_like(ids.row_starts())[:, None]], 1)
        last = tf.concat([tf.zeros_like(ids.row_starts())[:, None], places[:, -1:]], 1)
        first = tf.reduce_max(first, axis=1)
        last = tf.reduce_max(last, axis=1)
        middle = (first + last + 1 - self._room) // 2
        return tf.maximum(tf.minimum(middle, ids.row_lengths() - self._room), 0)

    def _batch(self, ids: tf.RaggedTensor, positions: tf.RaggedTensor) -> dict[str, tf.Tensor]:
        rows = tf.shape(ids.row_starts())[0]
        tokenizer = self._tokenizer
        cls, sep = (tf.fill([rows, 1], value) for value in (tokenizer.cls_id, tokenizer.sep_id))
        ids = tf.concat([cls, ids, sep], axis=1)
        input_ids = ids.to_tensor(tokenizer.pad_id)  # [B, S]
        return {
            "input_ids": input_ids,
            "input_mask": tf.ones_like(ids).to_tensor(0),
            "segment_ids": tf.zeros_like(input_ids),
            "masked_lm_positions": tf.cast(positions.to_tensor(0), tf.int32),
        }


def _has(values: tf.RaggedTensor) -> tf.Tensor:
    """Returns True for the values of a ragged tensor and False for the padding, as a tensor."""
    return tf.ones_like(values, tf.bool).to_tensor(False)


def _fill_in(parts: tf.RaggedTensor, is_first: tf.Tensor, words: tf.RaggedTensor) -> tf.Tensor:
    """Returns texts, string [B], with their parts joined by words."""
    words = tf.strings.regex_replace(words.flat_values, "^##", "")
    number = tf.cumsum(tf.cast(~is_first, tf.int32)) - 1  # [N], of the mask before each part
    before = tf.gather(tf.concat([words, [""]], 0), tf.maximum(number, 0))
    filled = tf.strings.join([tf.where(is_first, "", before), parts.flat_values])
    return tf.strings.reduce_join(parts.with_flat_values(filled), axis=1)

"""The features of sentences: windows of token ids, with the label of each token at its first piece.

Shapes: B batch size, N windows, S sequence length.
"""

from __future__ import annotations

import array
import dataclasses
import itertools
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from albert_tf.finetuning.batching import Array, Batch
from albert_tf.finetuning.examples import blocks_of
from albert_tf.finetuning.token_classification.sentences import Sentence
from albert_tf.finetuning.token_sequences import Packer, TokenSequences
from albert_tf.model.tokenization import Tokenizer

NO_LABEL = -1  # in `label_ids`, for all but the first piece of a token


@dataclasses.dataclass(frozen=True)
class Windows:
    """The features of sentences: `[CLS] pieces [SEP]`, with long sentences split into windows.

    Attributes:
        sequences: the token ids of N windows.
        label_ids: int32 [sum of lengths], the index of the label of a token at its first piece, and
            NO_LABEL elsewhere.
        labels: the labels in the order of these indices.
    """

    sequences: TokenSequences
    label_ids: NDArray[np.int32]
    labels: Sequence[str | None]

    def __len__(self) -> int:
        return len(self.sequences)

    @property
    def lengths(self) -> NDArray[np.int32]:
        """Number of pieces in each window, int32 [N]."""
        return self.sequences.lengths

    def with_labels(self, labels: Sequence[str]) -> Windows:
        """Returns the windows with the ids of labels: their order; 0 for an unknown label."""
        id_of: dict[str | None, int] = {label: number for number, label in enumerate(labels)}
        id_of[None] = 0
        # The last element is for NO_LABEL.
        ids = np.array([*(id_of[label] for label in self.labels), NO_LABEL], np.int32)
        return dataclasses.replace(self, label_ids=ids[self.label_ids], labels=labels)

    def batch(self, rows: NDArray[np.integer], seq_length: int) -> Batch:
        """Returns `input_ids`, `input_mask`, `segment_ids` and `label_ids`, int32 [B, S]."""
        label_ids = self.sequences.padded(self.label_ids, rows, seq_length, NO_LABEL)
        return self.sequences.batch(rows, seq_length) | {"label_ids": label_ids}

    def at_tokens(self, values: Array) -> Array:
        """Returns the elements of `values` [N, S] at the first piece of each token: [tokens]."""
        is_piece = np.arange(values.shape[1]) < self.lengths[:, None]
        return np.asarray(values[is_piece][self.label_ids != NO_LABEL])


class WindowEncoder:
    """Makes the windows of sentences, in their order. Each token is in exactly one window.

    Tokens are encoded separately. A token without pieces, such as a lone accent, becomes [UNK].

    Args:
        tokenizer: the tokenizer.
        max_seq_length: S; longer sentences are split between tokens.
    """

    def __init__(self, tokenizer: Tokenizer, max_seq_length: int) -> None:
        self._tokenizer = tokenizer
        self._room = max_seq_length - 2
        self._packer = Packer()
        self._label_ids = array.array("i")
        self._index_of: dict[str | None, int] = {}  # of the labels so far

    def add(self, sentences: Sequence[Sentence]) -> None:
        """Adds the windows of sentences."""
        tokens = list(itertools.chain.from_iterable(sentence.tokens for sentence in sentences))
        pieces_of = self._pieces_of(tokens)
        pieces = [pieces_of[token] for token in tokens]
        lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
        ends = self._ends(sentences, lengths.tolist())
        cls_id, sep_id = self._tokenizer.cls_id, self._tokenizer.sep_id
        for begin, end in itertools.pairwise((0, *ends)):
            ids = [cls_id, *itertools.chain.from_iterable(pieces[begin:end]), sep_id]
            self._packer.add(ids, len(ids))
        window_of = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))
        label_ids = np.full(lengths.sum() + 2 * len(ends), NO_LABEL, np.int32)
        label_ids[np.cumsum(lengths) - lengths + 2 * window_of + 1] = [
            self._index_of.setdefault(label, len(self._index_of))
            for sentence in sentences
            for label in sentence.labels
        ]
        self._label_ids.frombytes(label_ids.tobytes())

    def _pieces_of(self, tokens: Sequence[str]) -> dict[str, list[int]]:
        """Returns token → ids of its pieces; each token is encoded once."""
        distinct = list(dict.fromkeys(tokens))
        encoded = self._tokenizer.encode_batch(distinct)
        unknown = [self._tokenizer.unk_id]
        kept = ((ids or unknown)[: self._room] for ids in encoded)
        return dict(zip(distinct, kept, strict=True))

    def _ends(self, sentences: Sequence[Sentence], lengths: Sequence[int]) -> list[int]:
        """Returns the number of tokens up to the end of each window, given those of pieces."""
        ends = []
        before = 0
        for sentence in sentences:
            size = 0
            for place, length in enumerate(lengths[before : before + len(sentence.tokens)], before):
                if size + length > self._room:
                    ends.append(place)
                    size = 0
                size += length
            before += len(sentence.tokens)
            ends.append(before)
        return ends

    def features(self) -> Windows:
        """Returns the windows of all sentences, whose labels are in the order of the sentences."""
        sequences = self._packer.packed({})
        return Windows(sequences, np.frombuffer(self._label_ids, np.int32), list(self._index_of))


def make_windows(
    sentences: Iterable[Sentence], tokenizer: Tokenizer, max_seq_length: int
) -> Windows:
    """Returns the windows of sentences, with their own labels; see `WindowEncoder`."""
    encoder = WindowEncoder(tokenizer, max_seq_length)
    for block in blocks_of(sentences):
        encoder.add(block)
    return encoder.features()

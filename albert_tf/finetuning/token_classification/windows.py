"""The features of sentences: windows of token ids, with the label of each token at its first piece.

Shapes: B batch size, N windows, S sequence length.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from albert_tf.finetuning.batching import Array, Batch
from albert_tf.finetuning.examples import Examples
from albert_tf.finetuning.token_classification.sentences import Sentence
from albert_tf.finetuning.token_sequences import TokenSequences
from albert_tf.model.tokenization import Tokenizer

NO_LABEL = -1  # in `label_ids`, for all but the first piece of a token


@dataclasses.dataclass(frozen=True)
class Windows:
    """The features of sentences: `[CLS] pieces [SEP]`, with long sentences split into windows.

    Attributes:
        sequences: the token ids of N windows.
        label_ids: for each window, int32 [length of the window]: the label of a token at its first
            piece (0 if it is unknown), and NO_LABEL elsewhere.
    """

    sequences: TokenSequences
    label_ids: list[NDArray[np.int32]]

    def __len__(self) -> int:
        return len(self.label_ids)

    @property
    def lengths(self) -> NDArray[np.int32]:
        """Number of pieces in each window, int32 [N]."""
        return self.sequences.lengths

    def batch(self, rows: NDArray[np.integer], seq_length: int) -> Batch:
        """Returns `input_ids`, `input_mask`, `segment_ids` and `label_ids`, int32 [B, S]."""
        batch = self.sequences.batch(rows, seq_length)
        label_ids = np.full_like(batch["input_ids"], NO_LABEL)
        label_ids[batch["input_mask"] == 1] = np.concatenate([self.label_ids[n] for n in rows])
        return batch | {"label_ids": label_ids}

    def at_tokens(self, values: Array) -> Array:
        """Returns the elements of `values` [N, S] at the first piece of each token: [tokens]."""
        rows = zip(self.label_ids, values, strict=True)
        return np.concatenate([row[: len(ids)][ids != NO_LABEL] for ids, row in rows])


def make_features(
    data: Examples[Sentence], labels: Sequence[str], tokenizer: Tokenizer, max_seq_length: int
) -> Windows:
    """Returns the windows of sentences, in their order. Each token is in exactly one window.

    Tokens are encoded separately. A token without pieces, such as a lone accent, becomes [UNK].

    Args:
        data: the sentences.
        labels: the labels, in the order of their ids.
        tokenizer: the tokenizer.
        max_seq_length: S; longer sentences are split between tokens.
    """
    id_of: dict[str | None, int] = {label: number for number, label in enumerate(labels)}
    id_of[None] = 0
    room = max_seq_length - 2
    sequences = []
    label_ids = []
    for sentence in data.examples:
        pieces = [
            (ids or [tokenizer.unk_id])[:room] for ids in tokenizer.encode_batch(sentence.tokens)
        ]
        for begin, end in _windows([len(ids) for ids in pieces], room):
            ids = [tokenizer.cls_id]
            row = [NO_LABEL]
            for token in range(begin, end):
                ids += pieces[token]
                row += [id_of[sentence.labels[token]]] + [NO_LABEL] * (len(pieces[token]) - 1)
            sequences.append(([*ids, tokenizer.sep_id], len(ids) + 1))
            label_ids.append(np.array([*row, NO_LABEL], np.int32))
    return Windows(TokenSequences.pack(sequences, {}), label_ids)


def _windows(lengths: Sequence[int], room: int) -> Iterator[tuple[int, int]]:
    """Yields (first token, last token + 1) of each window, which has at most `room` pieces."""
    begin = size = 0
    for token, length in enumerate(lengths):
        if size + length > room:
            yield begin, token
            begin = token
            size = 0
        size += length
    yield begin, len(lengths)

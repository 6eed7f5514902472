"""Stores the features of questions as columns, and batches them.

    [CLS] question [SEP] window of the context [SEP] padding

A context that is too long for the model is split into overlapping windows. Each window is one
feature.

Shapes: B batch size, N features, S sequence length.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from albert_tf.finetuning.squad.settings import SPECIAL_TOKENS

if TYPE_CHECKING:
    from albert_tf.finetuning.batching import Batch
    from albert_tf.finetuning.token_sequences import TokenSequences

_LABELS = ("start_positions", "end_positions", "is_impossible")


class Window(NamedTuple):
    """A feature of a question; see `SquadFeatures`."""

    ids: NDArray[np.integer]
    first_length: int
    query_length: int
    first_char: NDArray[np.int32]
    last_char: NDArray[np.int32]
    is_max_context: NDArray[np.bool_]
    labels: tuple[int, int, int]  # start, end, is_impossible


@dataclasses.dataclass(frozen=True, eq=False)
class SquadFeatures:
    """N features, stored as columns. Sequences are concatenated without padding.

    Attributes:
        sequences: the token ids; for training, with the columns `start_positions` and
            `end_positions`, the positions of the answer's first and last token (both 0 if the
            window does not contain the whole answer), and `is_impossible`, 1 if it does not.
        example_index: int32 [N], index of the question.
        query_lengths: int32 [N], number of tokens in the question.
        first_char, last_char: int32 [sum of window lengths], offsets in the context of the first
            and the last character (inclusive) of each token in the window; int32 [0] for training,
            where no answers are decoded.
        is_max_context: bool [sum of window lengths], whether this window has more context around
            the token than any other window; bool [0] for training.
    """

    sequences: TokenSequences
    example_index: NDArray[np.int32]
    query_lengths: NDArray[np.int32]
    first_char: NDArray[np.int32]
    last_char: NDArray[np.int32]
    is_max_context: NDArray[np.bool_]

    @classmethod
    def pack(cls, found: Mapping[int, Sequence[Window]], is_training: bool) -> SquadFeatures:
        """Returns the features of questions, number → windows, in the order of the numbers."""
        # Imported late: it needs TensorFlow, for which the processes do not wait.
        from albert_tf.finetuning.token_sequences import TokenSequences

        numbers = [number for number in sorted(found) for _ in found[number]]
        windows = [window for number in sorted(found) for window in found[number]]
        ids, first_lengths, query_lengths, first_char, last_char, is_max_context, labels = zip(
            *windows, strict=True
        )
        columns = dict(zip(_LABELS, np.array(labels, np.int32).T, strict=True))
        sequences = TokenSequences(
            np.concatenate(ids),
            np.array([len(part) for part in ids], np.int32),
            np.array(first_lengths, np.int32),
            columns if is_training else {},
        )
        return cls(
            sequences,
            np.array(numbers, np.int32),
            np.array(query_lengths, np.int32),
            np.concatenate(first_char),
            np.concatenate(last_char),
            np.concatenate(is_max_context),
        )

    def __len__(self) -> int:
        return len(self.sequences)

    @property
    def lengths(self) -> NDArray[np.int32]:
        """Number of tokens in each feature, including special tokens, int32 [N]."""
        return self.sequences.lengths

    @property
    def window_lengths(self) -> NDArray[np.int32]:
        """Number of context tokens in each feature, int32 [N]."""
        return self.lengths - self.query_lengths - np.int32(SPECIAL_TOKENS)

    @property
    def window_offsets(self) -> NDArray[np.int64]:
        """Index in `first_char` at which each window starts, and its size; int64 [N + 1]."""
        return np.concatenate(([0], np.cumsum(self.window_lengths, dtype=np.int64)))

    def batch(self, rows: NDArray[np.integer], seq_length: int) -> Batch:
        """Returns a batch of features.

        Args:
            rows: int [B], indices of the features.
            seq_length: S, at least the length of the longest of these features.

        Returns:
            `input_ids`, `input_mask`, `segment_ids` and `p_mask` (1 at positions where no answer
            can start or end), int32 [B, S]; and for training `start_positions`, `end_positions`
            and `is_impossible`, int32 [B].
        """
        places = np.arange(seq_length)
        begin = self.query_lengths[rows, None] + 2
        in_window = (places >= begin) & (places < self.lengths[rows, None] - 1)  # [B, S]
        p_mask = (~in_window & (places > 0)).astype(np.int32)
        return self.sequences.batch(rows, seq_length) | {"p_mask": p_mask}

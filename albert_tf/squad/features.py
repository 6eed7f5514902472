"""Stores the features of questions as columns, and batches them.

    [CLS] question [SEP] window of the context [SEP] padding

A context that is too long for the model is split into overlapping windows. Each window is one
feature. `windows` creates the features.

Shapes: B batch size, N features, S sequence length.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

FIRST_UNIQUE_ID = 1_000_000_000
SPECIAL_TOKENS = 3  # [CLS] question [SEP] window [SEP]
_LABELS = ("start_positions", "end_positions", "is_impossible")


@dataclasses.dataclass(frozen=True, eq=False)
class SquadFeatures:
    """N features, stored as columns. Sequences are concatenated without padding.

    Attributes:
        example_index: int32 [N], index of the question.
        doc_span_index: int32 [N], index of the window within its question.
        lengths: int32 [N], number of tokens in the feature, including special tokens.
        query_lengths: int32 [N], number of tokens in the question.
        first_lengths: int32 [N], number of tokens in segment 0.
        input_ids: int32 [sum of lengths].
        first_char, last_char: int32 [sum of window lengths], offsets in the context of the first
            and the last character (inclusive) of each token in the window.
        is_max_context: bool [sum of window lengths], whether this window has more context around
            the token than any other window.
        start_positions, end_positions: int32 [N], positions of the answer's first and last token;
            both 0 if the window does not contain the whole answer. All 0 for prediction.
        is_impossible: int32 [N], 1 if the window does not contain the answer. All 0 for prediction.
    """

    example_index: NDArray[np.int32]
    doc_span_index: NDArray[np.int32]
    lengths: NDArray[np.int32]
    query_lengths: NDArray[np.int32]
    first_lengths: NDArray[np.int32]
    input_ids: NDArray[np.int32]
    first_char: NDArray[np.int32]
    last_char: NDArray[np.int32]
    is_max_context: NDArray[np.bool_]
    start_positions: NDArray[np.int32]
    end_positions: NDArray[np.int32]
    is_impossible: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def has_labels(self) -> bool:
        """Whether the features have labels for training: an answer or `is_impossible`."""
        return bool(len(self) and (self.start_positions[0] or self.is_impossible[0]))

    @property
    def window_lengths(self) -> NDArray[np.int32]:
        """Number of context tokens in each feature, int32 [N]."""
        return self.lengths - self.query_lengths - np.int32(SPECIAL_TOKENS)

    @property
    def window_offsets(self) -> NDArray[np.int64]:
        """Index in `first_char` at which each window starts, and its size; int64 [N + 1]."""
        return _offsets(self.window_lengths)

    @property
    def unique_ids(self) -> NDArray[np.int64]:
        """The `unique_ids` of Google's programs, int64 [N]."""
        return FIRST_UNIQUE_ID + np.arange(len(self))

    def take(self, rows: NDArray[np.integer]) -> SquadFeatures:
        """Returns the features with the given indices, in this order."""
        ids = _positions(_offsets(self.lengths), rows)
        pieces = _positions(self.window_offsets, rows)
        place = {"input_ids": ids, "first_char": pieces, "last_char": pieces}
        place["is_max_context"] = pieces
        return SquadFeatures(
            **{name: column[place.get(name, rows)] for name, column in vars(self).items()}
        )

    def batch(self, rows: NDArray[np.integer], seq_length: int) -> dict[str, NDArray[Any]]:
        """Returns a batch of features.

        Args:
            rows: int [B], indices of the features.
            seq_length: S, at least the length of the longest of these features.

        Returns:
            `input_ids`, `input_mask`, `segment_ids` and `p_mask` (1 at positions where no answer
            can start or end), int32 [B, S]; `unique_ids`, int64 [B]; and for training
            `start_positions`, `end_positions` and `is_impossible`, int32 [B].
        """
        lengths = self.lengths[rows, None]
        begin = self.query_lengths[rows, None] + 2
        places = np.arange(seq_length)
        input_mask = places < lengths  # [B, S]
        input_ids = np.zeros(input_mask.shape, np.int32)
        input_ids[input_mask] = self.input_ids[_positions(_offsets(self.lengths), rows)]
        in_second = input_mask & (places >= self.first_lengths[rows, None])
        in_window = (places >= begin) & (places < lengths - 1)
        labels = {name: getattr(self, name)[rows] for name in _LABELS if self.has_labels}
        return labels | {
            "unique_ids": self.unique_ids[rows],
            "input_ids": input_ids,
            "input_mask": input_mask.astype(np.int32),
            "segment_ids": in_second.astype(np.int32),
            "p_mask": (~in_window & (places > 0)).astype(np.int32),
        }


def _offsets(lengths: NDArray[np.integer]) -> NDArray[np.int64]:
    return np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))


def _positions(offsets: NDArray[np.int64], rows: NDArray[np.integer]) -> NDArray[np.int64]:
    """Returns the indices of the elements of `rows` in a column of concatenated sequences."""
    begins = offsets[rows]
    sizes = np.diff(offsets)[rows]
    ends = np.cumsum(sizes)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(begins - (ends - sizes), sizes)


def concatenate(parts: list[SquadFeatures]) -> SquadFeatures:
    """Concatenates features; `parts` must not be empty."""
    names = [field.name for field in dataclasses.fields(SquadFeatures)]
    return SquadFeatures(
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    )

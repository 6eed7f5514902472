"""Stores the token sequences of fine-tuning examples without padding, and batches them.

    [CLS] first text [SEP] second text [SEP] padding

Shapes: B batch size, N examples, S sequence length.
"""

from __future__ import annotations

import array
import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from absl import logging
from numpy.typing import NDArray

from albert_tf.finetuning.batching import Array, Batch
from albert_tf.model.tokenization import Tokenizer, split_pairs

ItemType = TypeVar("ItemType", bound=np.generic)


@dataclasses.dataclass(frozen=True)
class TokenSequences:
    """N examples of one token sequence each.

    Attributes:
        input_ids: integers [sum of lengths], all sequences concatenated; of `pack`, uint16 if there
            is no larger id, which takes half of the memory of int32.
        sequence_lengths: int32 [N], number of tokens in each sequence.
        first_lengths: int32 [N], number of tokens in segment 0 of each sequence.
        columns: name → array [N] of other features, such as `label_ids`.
    """

    input_ids: NDArray[np.integer]
    sequence_lengths: NDArray[np.int32]
    first_lengths: NDArray[np.int32]
    columns: Mapping[str, Array]

    @classmethod
    def pack(
        cls, sequences: Iterable[tuple[Sequence[int], int]], columns: Mapping[str, Array]
    ) -> TokenSequences:
        """Concatenates token sequences.

        Args:
            sequences: (ids, number of ids in segment 0) of each example.
            columns: name → array [N] of other features.
        """
        packer = Packer()
        packer.extend(sequences)
        return packer.packed(columns)

    @classmethod
    def concatenate(cls, parts: Sequence[TokenSequences]) -> TokenSequences:
        """Returns the sequences of several parts, which have the same columns."""
        return cls(
            np.concatenate([part.input_ids for part in parts]),
            np.concatenate([part.sequence_lengths for part in parts]),
            np.concatenate([part.first_lengths for part in parts]),
            {
                name: np.concatenate([part.columns[name] for part in parts])
                for name in parts[0].columns
            },
        )

    def reordered(self, order: NDArray[np.integer]) -> TokenSequences:
        """Returns the sequences in another order, given the index of each."""
        return TokenSequences(
            reordered(self.input_ids, self.sequence_lengths, order),
            self.sequence_lengths[order],
            self.first_lengths[order],
            {name: column[order] for name, column in self.columns.items()},
        )

    def take(self, rows: NDArray[np.integer]) -> TokenSequences:
        """Returns the sequences of some examples, given their indices, in ascending order."""
        is_taken = np.zeros(len(self), bool)
        is_taken[rows] = True
        return TokenSequences(
            self.input_ids[np.repeat(is_taken, self.sequence_lengths)],
            self.sequence_lengths[rows],
            self.first_lengths[rows],
            {name: column[rows] for name, column in self.columns.items()},
        )

    def __len__(self) -> int:
        return len(self.sequence_lengths)

    @property
    def lengths(self) -> NDArray[np.int32]:
        """Number of tokens in each sequence, int32 [N]."""
        return self.sequence_lengths

    @functools.cached_property
    def _begins(self) -> NDArray[np.int64]:
        return np.cumsum(self.sequence_lengths, dtype=np.int64) - self.sequence_lengths

    def padded(
        self, values: Array, rows: NDArray[np.integer], seq_length: int, fill: int = 0
    ) -> NDArray[np.int32]:
        """Returns the values of the tokens of examples, int32 [B, S]; `fill` at padding.

        Args:
            values: integers [sum of lengths], one for each of `input_ids`.
            rows: int [B], indices of the examples.
            seq_length: S, at least the length of the longest of these examples.
            fill: the value at padding.
        """
        places = np.arange(seq_length)
        mask = places < self.sequence_lengths[rows, None]
        padded = np.full(mask.shape, fill, np.int32)
        padded[mask] = values[(self._begins[rows, None] + places)[mask]]
        return padded

    def batch(self, rows: NDArray[np.integer], seq_length: int) -> Batch:
        """Returns a padded batch of examples.

        Args:
            rows: int [B], indices of the examples.
            seq_length: S, at least the length of the longest of these examples.

        Returns:
            `input_ids`, `input_mask` and `segment_ids`, int32 [B, S], and the columns, [B].

        Raises:
            ValueError: a sequence is longer than S.
        """
        lengths = self.sequence_lengths[rows, None]  # [B, 1]
        check_lengths(lengths, seq_length)
        places = np.arange(seq_length)
        mask = places < lengths  # [B, S]
        return {
            "input_ids": self.padded(self.input_ids, rows, seq_length),
            "input_mask": mask.astype(np.int32),
            "segment_ids": (mask & (places >= self.first_lengths[rows, None])).astype(np.int32),
            **{name: column[rows] for name, column in self.columns.items()},
        }


def reordered(
    values: NDArray[ItemType], lengths: NDArray[np.int32], order: NDArray[np.integer]
) -> NDArray[ItemType]:
    """Returns concatenated rows of different lengths in another order."""
    rows = np.split(values, np.cumsum(lengths)[:-1])
    return np.concatenate([rows[number] for number in order])


def check_lengths(lengths: NDArray[np.int32], seq_length: int) -> None:
    """Raises ValueError if a sequence of a batch is longer than the batch."""
    if lengths.max(initial=0) > seq_length:
        raise ValueError(f"a sequence has {lengths.max()} ids, more than seq_length={seq_length}")


class Packer:
    """Concatenates token sequences, some at a time."""

    def __init__(self) -> None:
        self._ids: array.array[int] = array.array("H")
        self._lengths = array.array("i")
        self._first_lengths = array.array("i")

    def extend(self, sequences: Iterable[tuple[Sequence[int], int]]) -> None:
        """Adds sequences; see `TokenSequences.pack`."""
        for sequence, first_length in sequences:
            self.add(list(sequence), first_length)

    def add(self, ids: list[int], first_length: int) -> None:
        """Adds a sequence."""
        try:
            self._ids.fromlist(ids)
        except OverflowError:  # by an id above 65,535; none of the sequence is added
            self._ids = array.array("i", self._ids)
            self._ids.fromlist(ids)
        self._lengths.append(len(ids))
        self._first_lengths.append(first_length)

    def __len__(self) -> int:
        """Returns the number of sequences so far."""
        return len(self._lengths)

    def packed(self, columns: Mapping[str, Array]) -> TokenSequences:
        """Returns all sequences, after which none can be added."""
        parts = map(_without_copy, (self._ids, self._lengths, self._first_lengths))
        ids, lengths, first_lengths = parts
        return TokenSequences(ids, lengths, first_lengths, columns)


def _without_copy(values: array.array[int]) -> NDArray[Any]:
    dtype = np.dtype(values.typecode)
    return np.frombuffer(values, dtype) if values else np.zeros(0, dtype)


class _HasLengths(Protocol):
    @property
    def sequence_lengths(self) -> NDArray[np.int32]: ...


def log_full_sequences(path: str, features: _HasLengths, max_seq_length: int) -> None:
    """Logs how many sequences of the file `path` have the maximum length, and may be truncated."""
    num_full = np.count_nonzero(features.sequence_lengths == max_seq_length)
    if num_full:
        logging.info(
            "%s: %d of %d sequences have --max_seq_length=%d or more tokens; longer ones are "
            "truncated",
            path,
            num_full,
            features.sequence_lengths.size,
            max_seq_length,
        )


def parse_pairs(
    texts: str | Sequence[str] | Sequence[Sequence[str]],
    pairs: str | Sequence[str] | None = None,
) -> tuple[list[tuple[str, str]], bool]:
    """Returns the pairs in the arguments of a call, and whether it is for a single one.

    Args:
        texts: a text, a list of texts, or a list of pairs of texts.
        pairs: the second text of the pair, or one for each of `texts`.

    Returns:
        Pairs (text, text or ""), and whether the call is for a single one.

    Raises:
        ValueError: an input is not a string.
    """
    return list(zip(*split_pairs(texts, pairs), strict=True)), isinstance(texts, str)


def encode_pairs(
    pairs: Sequence[tuple[str, str]], tokenizer: Tokenizer, max_seq_length: int
) -> tuple[TokenSequences, int]:
    """Returns the token sequences of pairs of texts, and how many of them were too long.

    Longer pairs are truncated at the end of the longer text.

    Args:
        pairs: one or more pairs (text, text or "").
        tokenizer: the tokenizer.
        max_seq_length: maximum number of tokens of a pair.
    """
    firsts, seconds = (list(side) for side in zip(*pairs, strict=True))
    rows = tokenizer.sequences(firsts, seconds, max_seq_length + 1)  # shows what is too long
    too_long = [number for number, (ids, _) in enumerate(rows) if len(ids) > max_seq_length]
    for number in too_long:
        (rows[number],) = tokenizer.sequences(firsts[number], seconds[number], max_seq_length)
    return TokenSequences.pack(rows, {}), len(too_long)

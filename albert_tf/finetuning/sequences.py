"""What the model reads of fine-tuning examples, kept without padding.

    [CLS] first text [SEP] second text [SEP] padding

Letters: B batch, N examples, C choices, S sequence length.
"""

from __future__ import annotations

import array
import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_ARRAYS = ("input_ids", "input_mask", "segment_ids")
_IS_REAL = "is_real_example"  # in the official records: 0 in what fills the last batch up


@dataclasses.dataclass(frozen=True)
class TokenSequences:
    """N examples of one token sequence each, or of C, the options of a question.

    Attributes:
        input_ids: int32, the ids of all sequences one after the other.
        sequence_lengths: int32 [N·max(C, 1)], ids of each sequence; 0 for an option that a question
            does not have.
        first_lengths: int32, same shape, how many of them are of segment 0.
        columns: name → array [N], what else belongs to an example, such as `label_ids`.
        num_choices: C; 0 where examples have no options.
    """

    input_ids: NDArray[np.int32]
    sequence_lengths: NDArray[np.int32]
    first_lengths: NDArray[np.int32]
    columns: Mapping[str, NDArray[Any]]
    num_choices: int = 0

    def __post_init__(self) -> None:
        sequences, choices = len(self.sequence_lengths), max(self.num_choices, 1)
        sizes = {len(column) * choices for column in self.columns.values()}
        if {sequences, len(self.first_lengths)} | sizes != {sequences} or sequences % choices:
            raise ValueError(
                f"{sequences} sequences of {choices} choices do not go with columns of "
                f"{[len(column) for column in self.columns.values()]} examples"
            )

    @classmethod
    def pack(
        cls,
        sequences: Iterable[tuple[Sequence[int], int]],
        columns: Mapping[str, NDArray[Any]],
        num_choices: int = 0,
    ) -> TokenSequences:
        """Makes one of sequences (ids, how many are of segment 0), C for each example."""
        ids, lengths, first_lengths = array.array("i"), array.array("i"), array.array("i")
        for sequence, first_length in sequences:
            ids.extend(sequence)
            lengths.append(len(sequence))
            first_lengths.append(first_length)
        tokens, sizes, firsts = (np.array(part, np.int32) for part in (ids, lengths, first_lengths))
        return cls(tokens, sizes, firsts, columns, num_choices)

    def __len__(self) -> int:
        return len(self.sequence_lengths) // max(self.num_choices, 1)

    @functools.cached_property
    def lengths(self) -> NDArray[np.int32]:
        """int32 [N], the longest sequence of each example."""
        by_example = self.sequence_lengths.reshape(-1, max(self.num_choices, 1))
        return np.asarray(by_example.max(axis=1, initial=0), np.int32)

    @functools.cached_property
    def _begins(self) -> NDArray[np.int64]:
        return np.cumsum(self.sequence_lengths, dtype=np.int64) - self.sequence_lengths

    @property
    def num_tokens(self) -> int:
        """Ids in all sequences, special symbols included."""
        return len(self.input_ids)

    def batch(self, rows: NDArray[np.integer], seq_length: int) -> dict[str, NDArray[Any]]:
        """Examples as the model takes them.

        Args:
            rows: [B], which.
            seq_length: S, at least the length of the longest of them.

        Returns:
            `input_ids`, `input_mask`, `segment_ids`, int32 [B, S], or [B, C, S] with as many C as
            the questions have; and the columns.

        Raises:
            ValueError: a sequence is longer than S.
        """
        choices = max(self.num_choices, 1)
        which = (rows[:, None] * choices + np.arange(choices)).ravel()  # [B·C]
        lengths = self.sequence_lengths[which, None]  # [B·C, 1]
        if lengths.max(initial=0) > seq_length:
            raise ValueError(f"a sequence of {lengths.max()} ids, seq_length={seq_length}")
        places = np.arange(seq_length)
        mask = places < lengths  # [B·C, S]
        ids = np.zeros(mask.shape, np.int32)
        ids[mask] = self.input_ids[(self._begins[which, None] + places)[mask]]
        arrays = {
            "input_ids": ids,
            "input_mask": mask.astype(np.int32),
            "segment_ids": (mask & (places >= self.first_lengths[which, None])).astype(np.int32),
        }
        if self.num_choices:
            used = int(np.flatnonzero(lengths.reshape(-1, choices).any(axis=0))[-1]) + 1
            shape = (len(rows), choices, seq_length)
            arrays = {name: value.reshape(shape)[:, :used] for name, value in arrays.items()}
        return arrays | {name: column[rows] for name, column in self.columns.items()}

    @property
    def layout(self) -> dict[str, int]:
        """What `from_records` must know besides the records."""
        return {"num_choices": self.num_choices}

    def to_records(self, rows: NDArray[np.integer], seq_length: int) -> dict[str, NDArray[Any]]:
        """What the records of these examples hold: name → [B, number of values].

        These are `input_ids`, `input_mask`, `segment_ids`, all C sequences of an example one after
        the other; the columns; and `is_real_example`, 1.

        Args:
            rows: [B], which.
            seq_length: S.
        """
        batch = self.batch(rows, seq_length)
        flat = {name: value.reshape(len(rows), -1) for name, value in batch.items()}
        # The batch has no more options than its questions.
        missing = max(self.num_choices, 1) * seq_length - flat["input_ids"].shape[1]
        for name in _ARRAYS:
            flat[name] = np.pad(flat[name], [(0, 0), (0, missing)])
        return flat | {_IS_REAL: np.ones((len(rows), 1), np.int32)}

    @classmethod
    def from_records(
        cls, blocks: Iterable[Mapping[str, NDArray[Any]]], layout: Mapping[str, int]
    ) -> TokenSequences:
        """The examples of records, given as `to_records` makes them, and their `layout`."""
        choices = max(layout["num_choices"], 1)
        parts: dict[str, list[NDArray[Any]]] = {"ids": [], "lengths": [], "firsts": []}
        columns: dict[str, list[NDArray[Any]]] = {}
        for block in blocks:
            count = len(block["input_ids"]) * choices
            ids, mask, segments = (block[name].reshape(count, -1) for name in _ARRAYS)
            parts["ids"].append(ids[mask > 0])
            parts["lengths"].append(mask.sum(axis=1, dtype=np.int32))
            parts["firsts"].append((mask * (1 - segments)).sum(axis=1, dtype=np.int32))
            for name in block.keys() - {*_ARRAYS, _IS_REAL}:
                columns.setdefault(name, []).append(block[name][:, 0])
        tokens, lengths, firsts = (np.concatenate(part) for part in parts.values())
        joined = {name: np.concatenate(column) for name, column in columns.items()}
        return cls(tokens, lengths, firsts, joined, layout["num_choices"])

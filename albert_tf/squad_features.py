"""What the model reads of a question: columns of features, their batches and their file.

    [CLS] question [SEP] window of the context [SEP] padding

A context too long for the model is read through windows that overlap; each is a feature of its
own. `squad_windows` makes them.

Letters: B batch, N features, S sequence length.
"""

from __future__ import annotations

import dataclasses
import io
import json
import zipfile
from typing import Any

import numpy as np
from absl import logging
from numpy.typing import NDArray

from albert_tf import files

FIRST_UNIQUE_ID = 1_000_000_000
SPECIAL_TOKENS = 3  # [CLS] question [SEP] window [SEP]
FORMAT = 1  # of the file; a file of another format is made anew


@dataclasses.dataclass(frozen=True, eq=False)
class SquadFeatures:
    """N features, a column a field. Two of the columns are of different length for each feature.

    Attributes:
        example_index: int32 [N], number of the question.
        doc_span_index: int32 [N], number of the window among those of its question.
        lengths: int32 [N], pieces and special symbols of a feature, without padding.
        query_lengths: int32 [N], pieces of the question.
        input_ids: int32 [sum of lengths].
        first_char, last_char: int32 [sum of window lengths], the characters of the context that
            a piece of the window stands for, both included.
        is_max_context: bool, same, whether no other window shows more around this piece.
        start_positions, end_positions: int32 [N], the answer's first and last piece; both 0 where
            the answer is not all in the window, or there is none. All 0 in prediction.
        is_impossible: int32 [N], 1 where the window does not hold the answer.
    """

    example_index: NDArray[np.int32]
    doc_span_index: NDArray[np.int32]
    lengths: NDArray[np.int32]
    query_lengths: NDArray[np.int32]
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
    def window_lengths(self) -> NDArray[np.int32]:
        """int32 [N], pieces of the context in a feature."""
        return self.lengths - self.query_lengths - np.int32(SPECIAL_TOKENS)

    @property
    def window_offsets(self) -> NDArray[np.int64]:
        """int64 [N + 1], where the window of a feature begins in `first_char` and its like."""
        return _offsets(self.window_lengths)

    @property
    def unique_ids(self) -> NDArray[np.int64]:
        """int64 [N], the official numbers of the features."""
        return FIRST_UNIQUE_ID + np.arange(len(self))

    def take(self, rows: NDArray[np.integer]) -> SquadFeatures:
        """These features, in this order."""
        ids = _positions(_offsets(self.lengths), rows)
        pieces = _positions(self.window_offsets, rows)
        place = {"input_ids": ids, "first_char": pieces, "last_char": pieces}
        place["is_max_context"] = pieces
        return SquadFeatures(
            **{name: column[place.get(name, rows)] for name, column in vars(self).items()}
        )

    def batch(self, rows: NDArray[np.integer], seq_length: int) -> dict[str, NDArray[Any]]:
        """Features as the model takes them.

        Args:
            rows: [B], which.
            seq_length: S, at least the length of the longest of them.

        Returns:
            `input_ids`, `input_mask`, `segment_ids`, `p_mask` (1 where no answer may begin or
            end), int32 [B, S]; `unique_ids` int64 [B]; `start_positions`, `end_positions`,
            `is_impossible`, int32 [B].
        """
        lengths, begin = self.lengths[rows, None], self.query_lengths[rows, None] + 2
        places = np.arange(seq_length)
        input_mask = places < lengths  # [B, S]
        input_ids = np.zeros(input_mask.shape, np.int32)
        input_ids[input_mask] = self.input_ids[_positions(_offsets(self.lengths), rows)]
        in_window = (places >= begin) & (places < lengths - 1)
        return {
            "unique_ids": self.unique_ids[rows],
            "input_ids": input_ids,
            "input_mask": input_mask.astype(np.int32),
            "segment_ids": (input_mask & (places >= begin)).astype(np.int32),
            "p_mask": (~in_window & (places > 0)).astype(np.int32),
            "start_positions": self.start_positions[rows],
            "end_positions": self.end_positions[rows],
            "is_impossible": self.is_impossible[rows],
        }


def _offsets(lengths: NDArray[np.integer]) -> NDArray[np.int64]:
    return np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))


def _positions(offsets: NDArray[np.int64], rows: NDArray[np.integer]) -> NDArray[np.int64]:
    """Where the values of `rows` are in a column of rows of different length."""
    begins, sizes = offsets[rows], np.diff(offsets)[rows]
    ends = np.cumsum(sizes)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(begins - (ends - sizes), sizes)


def concatenate(parts: list[SquadFeatures]) -> SquadFeatures:
    """All features of several, which must be one or more."""
    names = [field.name for field in dataclasses.fields(SquadFeatures)]
    return SquadFeatures(
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    )


def save(path: str, features: SquadFeatures, made_of: dict[str, Any]) -> None:
    """Writes features to a file, with what they were made of.

    Args:
        path: the file, in NumPy's `.npz` form.
        features: the features.
        made_of: whatever decides what they are: checksums, settings. Can be written as JSON.
    """
    origin = json.dumps({"format": FORMAT, **made_of}, sort_keys=True)
    content = io.BytesIO()
    np.savez(content, made_of=np.array(origin), **vars(features))
    with files.write_atomically(path, "wb") as stream:
        stream.write(content.getbuffer())


def load(path: str, made_of: dict[str, Any]) -> SquadFeatures | None:
    """Reads features that `save` wrote.

    Returns:
        None where there is no file, or one that was made of something else.

    Raises:
        ValueError: the file holds something else, or is damaged.
    """
    try:
        with files.open_binary(path) as stream, np.load(stream, allow_pickle=False) as content:
            origin = json.loads(str(content["made_of"]))
            if origin == {"format": FORMAT, **json.loads(json.dumps(made_of))}:
                names = [field.name for field in dataclasses.fields(SquadFeatures)]
                return SquadFeatures(**{name: content[name] for name in names})
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, OSError, EOFError, TypeError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{path}: no file of features of this program, or a damaged one ({error}). Remove it, "
            "or name another file."
        ) from None
    logging.info("%s was made of something else and is made anew: %s", path, origin)
    return None

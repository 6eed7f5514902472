"""Which examples go into which batch, and how far these are padded.

The order of training examples is a pure function of their number, the seed and the step, so that a
run that stops goes on as if it had not. Rows are padded to the longest of their batch only, and
examples of like length may be put together, so that little padding is left.

Letters: B batch, N examples, S sequence length.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

DRAWS_AT_ONCE = 4096
OFFICIAL_SHUFFLE_BUFFER = 100

Batch = dict[str, NDArray[Any]]


class Features(Protocol):
    """Examples that batches can be made of."""

    def __len__(self) -> int:
        """N."""

    @property
    def lengths(self) -> NDArray[np.int32]:
        """int32 [N], the length of each."""

    def batch(self, rows: NDArray[np.integer], seq_length: int) -> Batch:
        """These examples, padded to `seq_length`."""


@dataclasses.dataclass(frozen=True)
class Padding:
    """How far a batch is padded: to its longest row, rounded up.

    Attributes:
        max_seq_length: S is never larger.
        multiple: S is a multiple of this, or `max_seq_length`. With a `multiple` as large as that,
            all batches are of one length, as TPUs want it.
    """

    max_seq_length: int
    multiple: int = 8

    def length(self, longest: int) -> int:
        """S for a batch whose longest row has this length."""
        return min(-(-longest // self.multiple) * self.multiple, self.max_seq_length)


@dataclasses.dataclass(frozen=True)
class TrainingOrder:
    """In which order training examples are seen.

    Attributes:
        batch_size: B.
        seed: of all shuffling.
        shuffle_buffer: as the official programs, which go through the examples in the order of the
            file again and again, and draw from a buffer of the next 100 of them; 1 keeps the order
            of the file. None shuffles all examples anew in every epoch.
        batches_to_sort: so many batches in a row are put together from examples of like length,
            and then shuffled; 1 leaves the examples where they are.
    """

    batch_size: int
    seed: int = 0
    shuffle_buffer: int | None = None
    batches_to_sort: int = 1


def _epochs(num_examples: int, seed: int, start: int) -> Iterator[int]:
    epoch, done = divmod(start, num_examples)
    while True:
        yield from np.random.default_rng((seed, epoch)).permutation(num_examples)[done:].tolist()
        epoch, done = epoch + 1, 0


def _through_buffer(num_examples: int, seed: int, size: int) -> Iterator[int]:
    """What `tf.data`'s `repeat().shuffle(size)` gives."""
    rng = np.random.default_rng(seed)
    upcoming = itertools.cycle(range(num_examples))
    buffer = list(itertools.islice(upcoming, size))
    while True:
        for place in rng.integers(size, size=DRAWS_AT_ONCE).tolist():
            yield buffer[place]
            buffer[place] = next(upcoming)


def example_order(num_examples: int, order: TrainingOrder, start: int = 0) -> Iterator[int]:
    """Numbers of training examples for ever, from the one on that is seen as number `start`.

    Raises:
        ValueError: there are no examples.
    """
    if num_examples < 1:
        raise ValueError("no examples to train on")
    if order.shuffle_buffer is None:
        return _epochs(num_examples, order.seed, start)
    numbers = _through_buffer(num_examples, order.seed, order.shuffle_buffer)
    return itertools.islice(numbers, start, None)


def _sorted_batches(
    lengths: NDArray[np.int32], order: TrainingOrder, start: int
) -> Iterator[NDArray[np.int64]]:
    """Numbers of the examples of each batch [B], from batch `start` on."""
    block, skip = divmod(start, order.batches_to_sort)
    size = order.batch_size * order.batches_to_sort
    numbers = example_order(len(lengths), order, block * size)
    for number in itertools.count(block):
        rows = np.fromiter(itertools.islice(numbers, size), np.int64, size)
        if order.batches_to_sort > 1:
            rows = rows[np.argsort(lengths[rows], kind="stable")]
        batches = rows.reshape(order.batches_to_sort, order.batch_size)
        if order.batches_to_sort > 1:
            batches = np.random.default_rng((order.seed, 1, number)).permutation(batches)
        yield from batches[skip:]
        skip = 0


def training_batches(
    features: Features, order: TrainingOrder, padding: Padding, start_step: int = 0
) -> Iterator[Batch]:
    """Batches of B examples for ever, from the step `start_step` on.

    Raises:
        ValueError: there are no examples.
    """
    lengths = features.lengths
    for rows in _sorted_batches(lengths, order, start_step):
        yield features.batch(rows, padding.length(int(lengths[rows].max())))


def evaluation_batches(
    features: Features, batch_size: int, padding: Padding
) -> Iterator[tuple[NDArray[np.int64], Batch]]:
    """Every example once, the longest first, so that memory that does not suffice shows at once.

    Returns:
        the numbers of the examples, [B] (the last batch may be smaller), and the batch.
    """
    lengths = features.lengths
    rows = np.argsort(-lengths, kind="stable")
    for begin in range(0, len(rows), batch_size):
        chosen = rows[begin : begin + batch_size]
        yield chosen, features.batch(chosen, padding.length(int(lengths[chosen].max())))

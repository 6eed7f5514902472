"""Batches of examples: their order and their padding.

The order of training examples is a pure function of their number, the seed and the step, so that an
interrupted run resumes exactly. Batches are padded to their longest example only, and examples may
be sorted by length, so that little padding remains.

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
        """Number of tokens of each example, int32 [N]."""

    def batch(self, rows: NDArray[np.integer], seq_length: int) -> Batch:
        """Returns the examples of these indices, padded to `seq_length`."""


@dataclasses.dataclass(frozen=True)
class Padding:
    """Padding of batches: to the longest example, rounded up.

    Attributes:
        max_seq_length: maximum of S.
        multiple: S is a multiple of this, or `max_seq_length`. If both are equal, all batches have
            the same length, as TPUs need it.
    """

    max_seq_length: int
    multiple: int = 8

    def length(self, longest: int) -> int:
        """Returns S for a batch whose longest example has this length."""
        return min(-(-longest // self.multiple) * self.multiple, self.max_seq_length)


@dataclasses.dataclass(frozen=True)
class TrainingOrder:
    """The order of training examples.

    Attributes:
        batch_size: B.
        seed: of all shuffling.
        shuffle_buffer: number of examples in a shuffle buffer over the repeated file, 100 in the
            official programs; 1 keeps the order of the file. None shuffles all examples anew in
            each epoch.
        batches_to_sort: number of consecutive batches whose examples are sorted by length together,
            after which the batches are shuffled; 1 for no sorting.
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
    """Yields indices as `repeat().shuffle(size)` of `tf.data` orders them."""
    rng = np.random.default_rng(seed)
    upcoming = itertools.cycle(range(num_examples))
    buffer = list(itertools.islice(upcoming, size))
    while True:
        for place in rng.integers(size, size=DRAWS_AT_ONCE).tolist():
            yield buffer[place]
            buffer[place] = next(upcoming)


def example_order(num_examples: int, order: TrainingOrder, start: int = 0) -> Iterator[int]:
    """Returns the endless sequence of example indices, from its position `start` on.

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
    """Yields the indices of the examples of each batch, int64 [B], from batch `start` on."""
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
    """Yields batches of B examples without end, from the step `start_step` on.

    Raises:
        ValueError: there are no examples.
    """
    lengths = features.lengths
    for rows in _sorted_batches(lengths, order, start_step):
        yield features.batch(rows, padding.length(int(lengths[rows].max())))


def evaluation_batches(
    features: Features, batch_size: int, padding: Padding
) -> Iterator[tuple[NDArray[np.int64], Batch]]:
    """Yields batches with every example once, longest first, so that lack of memory shows at once.

    Returns:
        the indices of the examples, int64 [B] (the last batch may be smaller), and the batch.
    """
    lengths = features.lengths
    rows = np.argsort(-lengths, kind="stable")
    for begin in range(0, len(rows), batch_size):
        chosen = rows[begin : begin + batch_size]
        yield chosen, features.batch(chosen, padding.length(int(lengths[chosen].max())))

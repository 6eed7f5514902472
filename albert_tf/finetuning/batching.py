"""Shuffles, batches and pads examples, and computes outputs for all of them, batch by batch.

The order of training examples is a pure function of their number, the seed and the step, so that an
interrupted run resumes exactly where it stopped. Each batch is padded only to its longest example,
and examples of similar length may be batched together, to reduce padding further. Examples are
predicted in order of length; the results are returned in the order of the examples. What computes a
batch is a `Step`: a model of TensorFlow, or a file that a runtime has opened, without TensorFlow.

Shapes: B batch size, N examples, S sequence length.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from albert_tf.export.runtimes import Array as Array
from albert_tf.export.runtimes import Batch as Batch
from albert_tf.export.runtimes import Step as Step
from albert_tf.training import progress

DRAWS_AT_ONCE = 4096  # random numbers drawn at once, for speed
OFFICIAL_SHUFFLE_BUFFER = 100
# Number of this order in the record of a run; the first one sorted batches of several epochs
# together, so that an epoch had some examples several times and others not at all.
SORTED_ORDER = 2
EXAMPLES_AT_ONCE = 256  # examples that `checksum` holds in memory


class Features(Protocol):
    """Features of N examples, from which batches can be built."""

    def __len__(self) -> int:
        """Returns N."""

    @property
    def lengths(self) -> NDArray[np.int32]:
        """Number of tokens of each example, int32 [N]."""

    def batch(self, rows: NDArray[np.integer], seq_length: int) -> Batch:
        """Returns the examples with the given indices, padded to `seq_length`."""


@dataclasses.dataclass(frozen=True)
class Padding:
    """How batches are padded: to their longest example, rounded up.

    Attributes:
        max_seq_length: maximum of S.
        multiple: S is rounded up to a multiple of this, but not above `max_seq_length`. If both are
            equal, all batches have the same length, as TPUs require.
    """

    max_seq_length: int
    multiple: int = 8

    def length(self, longest: int) -> int:
        """Returns S for a batch whose longest example has the given length."""
        return min(-(-longest // self.multiple) * self.multiple, self.max_seq_length)


@dataclasses.dataclass(frozen=True)
class TrainingOrder:
    """How training examples are shuffled and batched.

    Attributes:
        batch_size: B.
        seed: random seed of all shuffling.
        shuffle_buffer: size of the shuffle buffer that the repeated file passes through, in
            examples: 100 in Google's programs, 1 to keep the order of the file. None reshuffles all
            examples in each epoch.
        batches_to_sort: number of consecutive batches of an epoch whose examples are sorted by
            length together; the resulting batches are shuffled. 1 for no sorting.
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
    """Yields indices shuffled like those of `repeat().shuffle(size)` in `tf.data`."""
    rng = np.random.default_rng(seed)
    upcoming = itertools.cycle(range(num_examples))
    buffer = list(itertools.islice(upcoming, size))
    while True:
        for place in rng.integers(size, size=DRAWS_AT_ONCE).tolist():
            yield buffer[place]
            buffer[place] = next(upcoming)


def example_order(num_examples: int, order: TrainingOrder, start: int = 0) -> Iterator[int]:
    """Returns the infinite sequence of example indices, from position `start` on.

    Raises:
        ValueError: there are no examples.
    """
    if num_examples < 1:
        raise ValueError("no examples to train on")
    if order.shuffle_buffer is None:
        return _epochs(num_examples, order.seed, start)
    numbers = _through_buffer(num_examples, order.seed, order.shuffle_buffer)
    return itertools.islice(numbers, start, None)


def _window(batch: int, num_examples: int, order: TrainingOrder) -> tuple[int, int]:
    """Returns the first batch, and the one after the last, of those that are sorted with a batch.

    They are of one epoch: a batch with the end of an epoch and the start of the next is alone.
    """
    epoch = batch * order.batch_size // num_examples
    first = -(-epoch * num_examples // order.batch_size)  # of those that lie in the epoch
    end = (epoch + 1) * num_examples // order.batch_size
    if batch >= end:
        return batch, batch + 1
    begin = batch - (batch - first) % order.batches_to_sort
    return begin, min(begin + order.batches_to_sort, end)


def _sorted_batches(
    lengths: NDArray[np.int32], order: TrainingOrder, start: int
) -> Iterator[NDArray[np.int64]]:
    """Yields the example indices of each batch, int64 [B], from batch `start` on."""
    count = len(lengths)
    begin, end = _window(start, count, order) if count else (0, 0)
    numbers = example_order(count, order, begin * order.batch_size)
    while True:
        size = (end - begin) * order.batch_size
        rows = np.fromiter(itertools.islice(numbers, size), np.int64, size)
        batches = rows.reshape(-1, order.batch_size)
        if order.batches_to_sort > 1:
            batches = rows[np.argsort(lengths[rows], kind="stable")].reshape(batches.shape)
            # In the first epoch, the remainder is 0, which changes no random number.
            place = divmod(begin, order.batches_to_sort)
            batches = np.random.default_rng((order.seed, 1, *place)).permutation(batches)
        yield from batches[max(start - begin, 0) :]
        begin, end = _window(end, count, order)


def training_batches(
    features: Features, order: TrainingOrder, padding: Padding, start_step: int = 0
) -> Iterator[Batch]:
    """Yields training batches of B examples indefinitely, from step `start_step` on.

    Raises:
        ValueError: there are no examples.
    """
    lengths = features.lengths
    for rows in _sorted_batches(lengths, order, start_step):
        yield features.batch(rows, padding.length(int(lengths[rows].max())))


def checksum(features: Features, seq_length: int) -> str:
    """Returns the SHA-256 of the features of all examples, in hexadecimal.

    Args:
        features: the features.
        seq_length: S that they are padded to, at least the length of the longest one.
    """
    content = hashlib.sha256()
    for begin in range(0, len(features), EXAMPLES_AT_ONCE):
        rows = np.arange(begin, min(begin + EXAMPLES_AT_ONCE, len(features)))
        for name, values in sorted(features.batch(rows, seq_length).items()):
            content.update(f"{name} {values.dtype} {values.shape} ".encode() + values.tobytes())
    return content.hexdigest()


def evaluation_batches(
    features: Features, batch_size: int, padding: Padding
) -> Iterator[tuple[NDArray[np.int64], Batch]]:
    """Yields batches that contain every example once, in order of decreasing length.

    The largest batch comes first, so that memory runs out at the start or not at all.

    Yields:
        The indices of the examples, int64 [B] (the last batch may be smaller), and the batch.
    """
    lengths = features.lengths
    rows = np.argsort(-lengths, kind="stable")
    for begin in range(0, len(rows), batch_size):
        chosen = rows[begin : begin + batch_size]
        yield chosen, features.batch(chosen, padding.length(int(lengths[chosen].max())))


Outputs: TypeAlias = Mapping[str, Array]


class BatchRunner:
    """Computes outputs for all examples. Weights may change between calls.

    Several threads may call `run` at the same time: what a call needs is passed to it.

    Args:
        step: computes the outputs of a batch; those that are not named in `outputs` are left out.
        padding: how batches are padded.
        outputs: name of each output → padding value for outputs whose width differs between
            batches, as with questions that have different numbers of options.
        shows_progress: whether to show a progress bar, if standard error is a terminal.
    """

    def __init__(
        self,
        step: Step,
        padding: Padding,
        outputs: Mapping[str, float],
        shows_progress: bool = True,
    ) -> None:
        self.step = step
        self.fill = dict(outputs)
        self.padding = padding
        self.shows_progress = shows_progress

    def run(self, features: Features, batch_size: int) -> dict[str, Array]:
        """Returns name → outputs [N, …], in the order of the examples.

        Args:
            features: the features of N examples.
            batch_size: B.
        """
        count = len(features)
        rows = {name: [np.empty(0)] * count for name in self.fill}
        batches = evaluation_batches(features, batch_size, self.padding)
        total = -(-count // batch_size)
        if self.shows_progress:
            batches = progress.with_progress(batches, "predicting", total)
        for numbers, batch in batches:
            computed = self.step(batch)
            for name in self.fill:
                values = np.asarray(computed[name])
                for number, row in zip(numbers.tolist(), values, strict=True):
                    rows[name][number] = row
        return {name: _stack(rows[name], fill) for name, fill in self.fill.items()}


def _stack(rows: Sequence[Array], fill: float) -> Array:
    """Stacks rows, after padding them at the end of their last axis to the same width."""
    if rows[0].ndim == 0:
        return np.array(rows)
    width = max(row.shape[-1] for row in rows)
    stacked = np.full((len(rows), *rows[0].shape[:-1], width), fill, rows[0].dtype)
    for place, row in zip(stacked, rows, strict=True):
        place[..., : row.shape[-1]] = row
    return stacked

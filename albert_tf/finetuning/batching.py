"""Shuffles, batches and pads examples.

The order of training examples is a pure function of their number, the seed and the step, so that an
interrupted run resumes exactly where it stopped. Each batch is padded only to its longest example,
and examples of similar length may be batched together, to reduce padding further.

Shapes: B batch size, N examples, S sequence length.
"""

from __future__ import annotations

import array
import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
from absl import logging
from numpy.typing import NDArray

from albert_tf.training import progress
from albert_tf.training.prefetching import prefetch

DRAWS_AT_ONCE = 4096  # random numbers drawn at once, for speed
OFFICIAL_SHUFFLE_BUFFER = 100
EXAMPLES_AT_ONCE = 256  # examples that `checksum` holds in memory

Batch = dict[str, NDArray[Any]]


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
        batches_to_sort: number of consecutive batches whose examples are sorted by length together;
            the resulting batches are shuffled. 1 for no sorting.
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


def _sorted_batches(
    lengths: NDArray[np.int32], order: TrainingOrder, start: int
) -> Iterator[NDArray[np.int64]]:
    """Yields the example indices of each batch, int64 [B], from batch `start` on."""
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

    The largest batch comes first, so that the program runs out of memory at once or not at all.

    Yields:
        The indices of the examples, int64 [B] (the last batch may be smaller), and the batch.
    """
    lengths = features.lengths
    rows = np.argsort(-lengths, kind="stable")
    for begin in range(0, len(rows), batch_size):
        chosen = rows[begin : begin + batch_size]
        yield chosen, features.batch(chosen, padding.length(int(lengths[chosen].max())))


# Stores the token sequences of fine-tuning examples without padding, and batches them.
#
#     [CLS] first text [SEP] second text [SEP] padding
#
# Shapes: B batch size, N examples, C choices, S sequence length.


@dataclasses.dataclass(frozen=True)
class TokenSequences:
    """N examples of one token sequence each, or of C sequences, one for each option of a question.

    Attributes:
        input_ids: int32 [sum of lengths], all sequences concatenated.
        sequence_lengths: int32 [N·max(C, 1)], number of tokens in each sequence; 0 for an option
            that a question does not have.
        first_lengths: int32 [N·max(C, 1)], number of tokens in segment 0 of each sequence.
        columns: name → array [N] of other features, such as `label_ids`.
        num_choices: C; 0 if examples have no options.
    """

    input_ids: NDArray[np.int32]
    sequence_lengths: NDArray[np.int32]
    first_lengths: NDArray[np.int32]
    columns: Mapping[str, NDArray[Any]]
    num_choices: int = 0

    @classmethod
    def pack(
        cls,
        sequences: Iterable[tuple[Sequence[int], int]],
        columns: Mapping[str, NDArray[Any]],
        num_choices: int = 0,
    ) -> TokenSequences:
        """Concatenates token sequences.

        Args:
            sequences: (ids, number of ids in segment 0), max(C, 1) of them for each example.
            columns: name → array [N] of other features.
            num_choices: C; 0 if examples have no options.
        """
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
        """Length of the longest sequence of each example, int32 [N]."""
        by_example = self.sequence_lengths.reshape(-1, max(self.num_choices, 1))
        return np.asarray(by_example.max(axis=1, initial=0), np.int32)

    @functools.cached_property
    def _begins(self) -> NDArray[np.int64]:
        return np.cumsum(self.sequence_lengths, dtype=np.int64) - self.sequence_lengths

    def batch(self, rows: NDArray[np.integer], seq_length: int) -> dict[str, NDArray[Any]]:
        """Returns a padded batch of examples.

        Args:
            rows: int [B], indices of the examples.
            seq_length: S, at least the length of the longest of these examples.

        Returns:
            `input_ids`, `input_mask` and `segment_ids`, int32 [B, S], or [B, C, S] where C is the
            largest number of options among these questions; and the columns, [B].

        Raises:
            ValueError: a sequence is longer than S.
        """
        choices = max(self.num_choices, 1)
        which = (rows[:, None] * choices + np.arange(choices)).ravel()  # [B·C]
        lengths = self.sequence_lengths[which, None]  # [B·C, 1]
        if lengths.max(initial=0) > seq_length:
            raise ValueError(
                f"a sequence has {lengths.max()} ids, more than seq_length={seq_length}"
            )
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


def log_full_sequences(path: str, features: TokenSequences, max_seq_length: int) -> None:
    """Logs how many sequences of the file `path` have the maximum length, and may be truncated."""
    num_full = np.count_nonzero(features.sequence_lengths == max_seq_length)
    if num_full:
        logging.info(
            "%s: %d of %d sequences have --max_seq_length=%d or more tokens; longer ones are "
            "truncated",
            path,
            num_full,
            len(features.sequence_lengths),
            max_seq_length,
        )


# Training datasets and prediction, for any fine-tuning task.
#
# Batches are padded to their longest example, and a step is traced once for all lengths. Examples
# are predicted in order of length; the results are returned in the order of the examples.
#
# Shapes: B batch size, N examples, S sequence length.

Step = Callable[[Any], Mapping[str, Any]]  # batch → outputs


def batch_signature(features: Features) -> dict[str, tf.TensorSpec]:
    """Returns name → TensorSpec of the features of a batch, with all dimensions unknown."""
    batch = features.batch(np.zeros(1, np.int64), int(features.lengths[0]))
    return {
        name: tf.TensorSpec([None] * value.ndim, tf.as_dtype(value.dtype))
        for name, value in batch.items()
    }


def training_dataset(
    features: Features,
    order: TrainingOrder,
    padding: Padding,
    start_step: int = 0,
    rows: slice = slice(None),
) -> tf.data.Dataset:
    """Returns the batches of `batching.training_batches` as a prefetching dataset.

    Args:
        features: the features of the examples.
        order: how the examples are shuffled and batched.
        padding: how batches are padded.
        start_step: step of the first batch.
        rows: the rows of each batch that this process trains on; by default, all.
    """

    def make() -> Iterator[dict[str, Any]]:
        for batch in training_batches(features, order, padding, start_step):
            yield {name: value[rows] for name, value in batch.items()}

    signature = batch_signature(features)
    return prefetch(tf.data.Dataset.from_generator(make, output_signature=signature))


class BatchRunner:
    """Computes the outputs of a model for all examples. Weights may change between calls.

    Args:
        model: the model, called with (batch, training=False).
        features: the features of N examples.
        batch_size: B.
        padding: how batches are padded.
        outputs: name of each output → padding value for outputs whose width differs between
            batches, as with questions that have different numbers of options.
        predictions: converts the model's outputs to these outputs; None if they are the same.
        shows_progress: whether to show a progress bar, if standard error is a terminal.
        compile_step: compiles the function that computes a batch, given its TensorSpecs;
            `tf.function` by default.

    Attributes:
        features: the features; may be replaced by others of the same kind between calls.
    """

    def __init__(
        self,
        model: Any,
        features: Features,
        batch_size: int,
        padding: Padding,
        outputs: Mapping[str, float],
        predictions: Callable[[Any], Mapping[str, tf.Tensor]] | None = None,
        shows_progress: bool = True,
        compile_step: Callable[..., Step] | None = None,
    ) -> None:
        self.model = model
        self.features = features
        self.fill = dict(outputs)
        self._predictions = predictions or (lambda outputs: outputs)
        self.batch_size = batch_size
        self.padding = padding
        self.shows_progress = shows_progress
        signature = batch_signature(features)
        if compile_step is None:
            self._step: Step = tf.function(self._one_batch, input_signature=[signature])
        else:
            self._step = compile_step(self._one_batch, signature)

    def _one_batch(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        outputs = self._predictions(self.model(batch, training=False))
        return {name: outputs[name] for name in self.fill}

    def run(self) -> dict[str, NDArray[Any]]:
        """Returns name → outputs [N, …], in the order of the examples."""
        count = len(self.features)
        rows: dict[str, list[Any]] = {name: [None] * count for name in self.fill}
        batches = evaluation_batches(self.features, self.batch_size, self.padding)
        total = -(-count // self.batch_size)
        if self.shows_progress:
            batches = progress.with_progress(batches, "predicting", total)
        for numbers, batch in batches:
            for name, values in self._step(batch).items():
                for number, row in zip(numbers.tolist(), np.asarray(values), strict=True):
                    rows[name][number] = row
        return {name: _stack(rows[name], fill) for name, fill in self.fill.items()}


def _stack(rows: Sequence[NDArray[Any]], fill: float) -> NDArray[Any]:
    """Stacks rows, after padding them at the end of their last axis to the same width."""
    if rows[0].ndim == 0:
        return np.array(rows)
    width = max(row.shape[-1] for row in rows)
    stacked = np.full((len(rows), *rows[0].shape[:-1], width), fill, rows[0].dtype)
    for place, row in zip(stacked, rows, strict=True):
        place[..., : row.shape[-1]] = row
    return stacked

"""Input pipeline: reads, shuffles and batches pre-training records.

The order of training records is a pure function of the files, their lengths, the seed and the
position. A run that was stopped at record n therefore resumes at record n:

* Each epoch permutes the files and interleaves `FILES_AT_ONCE` of them, one record each, to mix
  files of different origin.
* Each block of `SHUFFLE_BLOCK` records is shuffled with its own seed.

Corrupt records can be skipped: `record_files.scan_record_files` finds them before training, and the
order is then that of files without them.

Google's program uses a shuffle buffer of 100 records over files read in parallel, in an order that
is not reproducible.

Shapes: B batch size, S sequence length, P masked positions.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf.data import records
from albert_tf.pretraining.record_files import (
    UNPARSABLE,
    Features,
    RecordFile,
    find_damage,
    parse,
)

FILES_AT_ONCE = 4
SHUFFLE_BLOCK = 1024  # records in memory, about 10 kB each at S = 512


class _FileGroup(NamedTuple):
    """Some files of an epoch that are interleaved, starting at a position within them."""

    files: list[RecordFile]  # starting with the file to read next
    skips: list[int]  # number of records to skip in each file
    seed: int  # of the shuffle, combined with the block index
    first_block: int  # index of the first block to read
    drop: int  # number of records to drop from the first block


def _training_groups(files: Sequence[RecordFile], seed: int, start: int) -> Iterator[_FileGroup]:
    """Yields the groups of files to read from record `start` on, over infinitely many epochs.

    Args:
        files: the record files.
        seed: random seed of all shuffling.
        start: number of records read before, over all epochs.
    """
    epoch, position = divmod(start, sum(file.num_records for file in files))
    while True:
        order = np.random.default_rng((seed, epoch)).permutation(len(files))
        for index, first in enumerate(range(0, len(files), FILES_AT_ONCE)):
            group = [files[i] for i in order[first : first + FILES_AT_ONCE]]
            length = sum(file.num_records for file in group)
            if position < length:
                group_seed = np.random.SeedSequence((seed, epoch, index)).generate_state(1)[0] >> 1
                yield _group_at(group, position, int(group_seed))
            position = max(0, position - length)
        epoch += 1


def _group_at(group: list[RecordFile], position: int, seed: int) -> _FileGroup:
    block, drop = divmod(position, SHUFFLE_BLOCK)
    skips, first = _read_from_each([file.num_records for file in group], block * SHUFFLE_BLOCK)
    rotated = [i % len(group) for i in range(first, first + len(group))]
    rest = [i for i in rotated if skips[i] < group[i].num_records]
    return _FileGroup([group[i] for i in rest], [skips[i] for i in rest], seed, block, drop)


def _read_from_each(lengths: list[int], count: int) -> tuple[list[int], int]:
    """Returns how many of the first `count` interleaved records each file supplies.

    Args:
        lengths: number of records in each file.
        count: number of records read, alternating between the files.

    Returns:
        The number of records read from each file, and the index of the file to read next.
    """

    def taken_after(rounds: int) -> list[int]:
        return [min(rounds, length) for length in lengths]

    candidates = range(1, max(lengths) + 1)
    full_rounds = bisect_right(candidates, count, key=lambda rounds: sum(taken_after(rounds)))
    taken = taken_after(full_rounds)
    for i, length in enumerate(lengths):
        if sum(taken) == count:
            return taken, i
        taken[i] += length > full_rounds
    return taken, 0


def training_dataset(
    files: Sequence[RecordFile],
    features: Features,
    batch_size: int,
    seed: int,
    start: int = 0,
    rows: slice | None = None,
) -> tf.data.Dataset:
    """Returns an infinite dataset of batches of parsed records.

    Args:
        files: the record files.
        features: name → shape and type of each feature.
        batch_size: B.
        seed: random seed of the shuffling.
        start: number of records read before; the first batch starts at this record.
        rows: the rows of each batch that this process trains on, if several processes share it;
            None for all. The other rows are read, but not parsed.

    Returns:
        A dataset of feature name → tensor [B, …] (only `rows` of it, if given); integers are int32.
    """
    part = slice(None) if rows is None else rows

    def blocks() -> Iterator[list[bytes]]:
        for group in _training_groups(files, seed, start):
            yield from _read_group(group)

    dataset = _dataset_of(blocks).rebatch(batch_size, drop_remainder=True)
    return dataset.map(lambda batch: parse(batch[part], features), tf.data.AUTOTUNE).prefetch(2)


def _dataset_of(blocks: Callable[[], Iterator[list[bytes]]]) -> tf.data.Dataset:
    """Returns a dataset of blocks of serialized records, string [number], read in Python.

    Unlike `tf.data.TFRecordDataset`, this does not run out of memory if the length of a record is
    corrupt, and can continue after corrupt records. Reading in blocks makes it equally fast.
    """
    return tf.data.Dataset.from_generator(
        blocks, output_signature=tf.TensorSpec((None,), tf.string)
    )


def _read_group(group: _FileGroup) -> Iterator[list[bytes]]:
    """Yields the shuffled blocks of a group of files."""
    contents = _interleave(
        itertools.islice(_read(file), skip, None)
        for file, skip in zip(group.files, group.skips, strict=True)
    )
    drop = group.drop
    for number in itertools.count(group.first_block):
        block = list(itertools.islice(contents, SHUFFLE_BLOCK))
        if not block:
            return
        yield [block[i] for i in _shuffled(len(block), (group.seed, number))[drop:]]
        drop = 0


def _shuffled(count: int, seed: tuple[int, int]) -> list[int]:
    """Returns a permutation of 0 to `count - 1`, determined by the seed."""
    with tf.device("CPU"):
        order = tf.random.experimental.stateless_shuffle(tf.range(count), seed)
    numbers: list[int] = order.numpy().tolist()
    return numbers


def _read(file: RecordFile) -> Iterator[bytes]:
    """Yields the usable records of a file."""
    contents = records.read_records(file.path, frozenset(file.damaged or ()))
    return itertools.islice(contents, file.num_records)


def _interleave(iterators: Iterable[Iterator[bytes]]) -> Iterator[bytes]:
    """Yields one item of each iterator, round-robin, until all are exhausted."""
    waiting = collections.deque(iterators)
    while waiting:
        iterator = waiting.popleft()
        item = next(iterator, None)
        if item is not None:
            waiting.append(iterator)
            yield item


def evaluation_dataset(
    files: Sequence[RecordFile], features: Features, batch_size: int
) -> tf.data.Dataset:
    """Returns a dataset with each record once, in order; the last batch may be smaller."""

    def blocks() -> Iterator[list[bytes]]:
        contents = itertools.chain.from_iterable(map(_read, files))
        while block := list(itertools.islice(contents, batch_size)):
            yield block

    return (
        _dataset_of(blocks).map(lambda batch: parse(batch, features), tf.data.AUTOTUNE).prefetch(2)
    )


@contextlib.contextmanager
def damage_named(files: Sequence[RecordFile], features: Features) -> Iterator[None]:
    """Converts TensorFlow's error about a corrupt record into one that names the record.

    Args:
        files: the files of a dataset of this module.
        features: the features that it parses.

    Raises:
        ValueError: a record is corrupt or cannot be parsed; the message names the file and the
            record.
    """
    try:
        yield
    except (*UNPARSABLE, tf.errors.UnknownError):
        damage = find_damage(files, features)
        if not damage:
            raise
        raise ValueError(damage) from None


def batches(
    dataset: tf.data.Dataset, files: Sequence[RecordFile], features: Features
) -> Iterator[Any]:
    """Yields the batches of a dataset.

    Args:
        dataset: a dataset of this module.
        files: the files that it reads.
        features: the features that it parses.

    Raises:
        ValueError: see `damage_named`.
    """
    iterator = iter(dataset)
    while True:
        with damage_named(files, features):
            batch = next(iterator, None)
        if batch is None:
            return
        yield batch

"""Reads records in batches, for training and evaluation.

The order of training records is a pure function of the files, their lengths, the seed and the
position, so that a run that was stopped at record n resumes at record n:

* every epoch puts the files in a new order and interleaves `FILES_AT_ONCE` of them, one record
  each, so that files of different origin mix;
* every block of `SHUFFLE_BLOCK` records is shuffled with a seed of its own.

Damaged records can be skipped: `record_files.scan_record_files` finds them before training, and
the order is that of files without them.

Google's program shuffles 100 records at a time over files read in parallel, in no repeatable order.

Letters: B batch, S sequence, P masked positions.
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
SHUFFLE_BLOCK = 1024  # records held in memory, some 10 kB each at S = 512


class _Turn(NamedTuple):
    """Some files of an epoch that are interleaved, from the block `first_block` on."""

    files: list[RecordFile]  # from the one to read next
    skips: list[int]  # records of each file before the position
    seed: int  # of shuffling, together with the number of the block
    first_block: int
    drop: int  # records of the first block before the position


def _training_turns(files: Sequence[RecordFile], seed: int, start: int) -> Iterator[_Turn]:
    """Yields what to read from record number `start` on, epoch after epoch.

    Args:
        files: what to read.
        seed: of all shuffling.
        start: number of records read before, over all epochs.
    """
    epoch, position = divmod(start, sum(file.num_records for file in files))
    while True:
        order = np.random.default_rng((seed, epoch)).permutation(len(files))
        for turn, first in enumerate(range(0, len(files), FILES_AT_ONCE)):
            group = [files[i] for i in order[first : first + FILES_AT_ONCE]]
            length = sum(file.num_records for file in group)
            if position < length:
                own_seed = np.random.SeedSequence((seed, epoch, turn)).generate_state(1)[0] >> 1
                yield _turn_at(group, position, int(own_seed))
            position = max(0, position - length)
        epoch += 1


def _turn_at(group: list[RecordFile], position: int, seed: int) -> _Turn:
    block, drop = divmod(position, SHUFFLE_BLOCK)
    skips, first = _read_in_turns([file.num_records for file in group], block * SHUFFLE_BLOCK)
    rotated = [i % len(group) for i in range(first, first + len(group))]
    rest = [i for i in rotated if skips[i] < group[i].num_records]
    return _Turn([group[i] for i in rest], [skips[i] for i in rest], seed, block, drop)


def _read_in_turns(lengths: list[int], count: int) -> tuple[list[int], int]:
    """Returns how many of `count` records come from each interleaved file, and which is next."""

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
    """Returns batches of parsed records, without end.

    Args:
        files: what to read.
        features: name → shape and type of each feature.
        batch_size: B.
        seed: of the shuffling.
        start: number of records read before; the first batch begins with record `start`.
        rows: which rows of each batch this process computes, where several share it; None for
            all. The others are read, but not parsed.

    Returns:
        a dataset of dicts of tensors [B, …], or of `rows` alone, integers as int32.
    """
    part = slice(None) if rows is None else rows

    def blocks() -> Iterator[list[bytes]]:
        for turn in _training_turns(files, seed, start):
            yield from _read_turn(turn)

    dataset = _dataset_of(blocks).rebatch(batch_size, drop_remainder=True)
    return dataset.map(lambda batch: parse(batch[part], features), tf.data.AUTOTUNE).prefetch(2)


def _dataset_of(blocks: Callable[[], Iterator[list[bytes]]]) -> tf.data.Dataset:
    """Returns a dataset of serialized records, string [number], that Python reads in blocks.

    Unlike `tf.data.TFRecordDataset`, this survives a record whose length is beyond all memory, and
    goes on after damaged ones. Reading in blocks, it takes no longer.
    """
    return tf.data.Dataset.from_generator(
        blocks, output_signature=tf.TensorSpec((None,), tf.string)
    )


def _read_turn(turn: _Turn) -> Iterator[list[bytes]]:
    """Yields the shuffled blocks of a turn."""
    contents = _take_turns(
        itertools.islice(_read(file), skip, None)
        for file, skip in zip(turn.files, turn.skips, strict=True)
    )
    drop = turn.drop
    for number in itertools.count(turn.first_block):
        block = list(itertools.islice(contents, SHUFFLE_BLOCK))
        if not block:
            return
        yield [block[i] for i in _shuffled(len(block), (turn.seed, number))[drop:]]
        drop = 0


def _shuffled(count: int, seed: tuple[int, int]) -> list[int]:
    """Returns the numbers below `count` in an order that the seed decides."""
    with tf.device("CPU"):
        order = tf.random.experimental.stateless_shuffle(tf.range(count), seed)
    numbers: list[int] = order.numpy().tolist()
    return numbers


def _read(file: RecordFile) -> Iterator[bytes]:
    """Yields the records of a file that can be used."""
    contents = records.read_records(file.path, frozenset(file.damaged or ()))
    return itertools.islice(contents, file.num_records)


def _take_turns(iterators: Iterable[Iterator[bytes]]) -> Iterator[bytes]:
    """Yields one item of each iterator in turn, until all have ended."""
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
    """Returns batches of every record once, in order; the last batch may be smaller."""

    def blocks() -> Iterator[list[bytes]]:
        contents = itertools.chain.from_iterable(map(_read, files))
        while block := list(itertools.islice(contents, batch_size)):
            yield block

    return (
        _dataset_of(blocks).map(lambda batch: parse(batch, features), tf.data.AUTOTUNE).prefetch(2)
    )


@contextlib.contextmanager
def damage_named(files: Sequence[RecordFile], features: Features) -> Iterator[None]:
    """Turns TensorFlow's error about a record into one that names it.

    Args:
        files: what a dataset of this module reads.
        features: what it parses.

    Raises:
        ValueError: a record is damaged or does not parse; names the file and the record.
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
    """Yields the batches of a dataset over `files`.

    Args:
        dataset: of this module.
        files: what it reads.
        features: what it parses.

    Raises:
        ValueError: as `damage_named`.
    """
    iterator = iter(dataset)
    while True:
        with damage_named(files, features):
            batch = next(iterator, None)
        if batch is None:
            return
        yield batch

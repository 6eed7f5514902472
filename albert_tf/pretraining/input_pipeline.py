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

import itertools
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.data import records
from albert_tf.pretraining.record_files import (
    Features,
    RecordFile,
    find_damage,
    open_records,
    parse,
)

FILES_AT_ONCE = 4
SHUFFLE_BLOCK = 1024  # records held in memory, some 10 kB each at S = 512

Reader = Callable[[tf.Tensor, tf.Tensor], tf.data.Dataset]  # of path and is_gzip


# Some files of an epoch that are interleaved, from the block `first_block` on.
_TURN = {
    "paths": tf.TensorSpec((None,), tf.string),  # of the files, from the one to read next
    "is_gzip": tf.TensorSpec((None,), tf.bool),
    "skips": tf.TensorSpec((None,), tf.int64),  # records of each file before the position
    "seed": tf.TensorSpec((), tf.int64),  # of shuffling, together with the number of the block
    "first_block": tf.TensorSpec((), tf.int64),
    "drop": tf.TensorSpec((), tf.int64),  # records of the first block before the position
}


def _training_turns(files: Sequence[RecordFile], seed: int, start: int) -> Iterator[dict[str, Any]]:
    """Yields what to read from record number `start` on, as `_TURN`, epoch after epoch.

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


def _turn_at(group: list[RecordFile], position: int, seed: int) -> dict[str, Any]:
    block, drop = divmod(position, SHUFFLE_BLOCK)
    skips, first = _read_in_turns([file.num_records for file in group], block * SHUFFLE_BLOCK)
    rotated = [i % len(group) for i in range(first, first + len(group))]
    rest = [i for i in rotated if skips[i] < group[i].num_records]
    return {
        "paths": [group[i].path for i in rest],
        "is_gzip": [group[i].is_gzip for i in rest],
        "skips": [skips[i] for i in rest],
        "seed": seed,
        "first_block": block,
        "drop": drop,
    }


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
    read = _reader(files)
    part = slice(None) if rows is None else rows
    dataset = tf.data.Dataset.from_generator(
        lambda: _training_turns(files, seed, start), output_signature=_TURN
    )
    dataset = dataset.flat_map(lambda turn: _read_turn(turn, read))
    dataset = dataset.batch(batch_size, drop_remainder=True)
    return dataset.map(lambda batch: parse(batch[part], features), tf.data.AUTOTUNE).prefetch(2)


def _read_turn(turn: dict[str, tf.Tensor], read: Reader) -> tf.data.Dataset:
    def shuffle(number: tf.Tensor, block: tf.Tensor) -> tf.data.Dataset:
        order = tf.random.experimental.stateless_shuffle(
            tf.range(tf.shape(block)[0]), seed=tf.stack([turn["seed"], number])
        )
        return tf.data.Dataset.from_tensor_slices(tf.gather(block, order))

    dataset = tf.data.Dataset.from_tensor_slices((turn["paths"], turn["is_gzip"], turn["skips"]))
    dataset = dataset.interleave(
        lambda path, is_gzip, skip: read(path, is_gzip).skip(skip),
        cycle_length=FILES_AT_ONCE,
        block_length=1,
    )
    dataset = dataset.batch(SHUFFLE_BLOCK).enumerate(turn["first_block"]).flat_map(shuffle)
    return dataset.skip(turn["drop"])


def _reader(files: Sequence[RecordFile]) -> Reader:
    """Returns a function that opens one of `files`, without its damaged records."""
    by_path = {file.path: file for file in files if file.damaged is not None}
    if not by_path:
        return open_records

    def usable_records(path: bytes) -> Iterator[bytes]:
        file = by_path[path.decode()]
        damaged = set(file.damaged or ())
        contents = records.read_records(file.path)
        for number, content in enumerate(
            itertools.islice(contents, file.num_records + len(damaged))
        ):
            if number not in damaged:
                yield content

    def read(path: tf.Tensor, is_gzip: tf.Tensor) -> tf.data.Dataset:
        # TensorFlow's reader ends at the first damaged record, so these files are read in Python.
        is_damaged = tf.reduce_any(path == list(by_path))
        none, every = tf.constant(0, tf.int64), tf.constant(-1, tf.int64)
        in_python = tf.data.Dataset.from_generator(
            usable_records, output_signature=tf.TensorSpec((), tf.string), args=(path,)
        )
        return (
            open_records(path, is_gzip)
            .take(tf.where(is_damaged, none, every))
            .concatenate(in_python.take(tf.where(is_damaged, every, none)))
        )

    return read


def evaluation_dataset(
    files: Sequence[RecordFile], features: Features, batch_size: int
) -> tf.data.Dataset:
    """Returns batches of every record once, in order; the last batch may be smaller."""
    paths = [file.path for file in files], [file.is_gzip for file in files]
    dataset = tf.data.Dataset.from_tensor_slices(paths).flat_map(_reader(files)).batch(batch_size)
    return dataset.map(lambda batch: parse(batch, features), tf.data.AUTOTUNE).prefetch(2)


def batches(
    dataset: tf.data.Dataset, files: Sequence[RecordFile], features: Features
) -> Iterator[Any]:
    """Yields the batches of a dataset over `files`.

    Args:
        dataset: of this module.
        files: what it reads.
        features: what it parses.

    Raises:
        ValueError: a record is damaged or does not parse; names the file and the record.
    """
    try:
        yield from dataset
    except (tf.errors.DataLossError, tf.errors.InvalidArgumentError) as error:
        raise ValueError(find_damage(files, features) or error.message) from None

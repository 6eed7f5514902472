"""Input pipeline: reads, shuffles and batches pre-training records.

The order of training records is a pure function of the files, their lengths, the seed and the
position. A run that was stopped at record n therefore resumes at record n:

* Each epoch permutes the files and interleaves `FILES_AT_ONCE` of them, one record each, to mix
  files of different origin.
* Each block of `SHUFFLE_BLOCK` records is shuffled with its own seed.

Of several processes that share each batch, each one reads only the records of its own rows. The
index of a file tells where they are (`data.record_index`), and where to begin after resuming. In a
local file without an index, the headers of the records tell that. Remote files without an index and
compressed files are read whole by each process.

Google's program uses a shuffle buffer of 100 records over files read in parallel, in an order that
is not reproducible.

Shapes: B batch size, S sequence length, P masked positions.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf.data import records
from albert_tf.files import is_remote
from albert_tf.pretraining.dynamic_masking import DynamicMasking
from albert_tf.pretraining.record_files import (
    UNPARSABLE,
    Features,
    RecordFile,
    name_files,
    parse,
    parse_first,
)
from albert_tf.training.datasets import prefetch

FILES_AT_ONCE = 4
SHUFFLE_BLOCK = 1024  # records in memory, about 10 kB each at S = 512
PARSED_AT_ONCE = 2  # batches, more are not faster

# Takes a flag for each of the next records of a file; returns the records whose flag is set.
Reader = Callable[[Sequence[bool]], list[bytes]]


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
    masking: DynamicMasking | None = None,
) -> tf.data.Dataset:
    """Returns an infinite dataset of batches of parsed records.

    Args:
        files: the record files.
        features: name → shape and type of each feature.
        batch_size: B.
        seed: random seed of the shuffling.
        start: number of records read before; the first batch starts at this record.
        rows: the rows of each batch that this process trains on, if several processes share it;
            None for all. The records of the other rows are not read.
        masking: masks the batches; None if the records contain masked tokens.

    Returns:
        A dataset of feature name → tensor [B, …] (only `rows` of it, if given); integers are int32.
    """
    own = [True] * batch_size
    if rows is not None:
        own = [rows.start <= row < rows.stop for row in range(batch_size)]

    def blocks() -> Iterator[list[bytes]]:
        is_own = itertools.cycle(own)
        for group in _training_groups(files, seed, start):
            yield from _read_group(group, is_own, all(own))

    batches = _dataset_of(blocks).rebatch(sum(own), drop_remainder=True)
    return _parsed(batches, features, masking, start + own.index(True), batch_size)


def _parsed(
    dataset: tf.data.Dataset,
    features: Features,
    masking: DynamicMasking | None,
    first: int,
    batch_size: int,
) -> tf.data.Dataset:
    """Returns a dataset of parsed batches, made from one of serialized records.

    Args:
        dataset: a dataset of serialized records, string [own rows of each batch].
        features: name → shape and type of each feature.
        masking: masks the batches; None to leave them as they are.
        first: number of the first record.
        batch_size: how many records further the first one of the next batch is.
    """

    @tf.autograph.experimental.do_not_convert  # not needed, and takes time
    def parse_batch(index: tf.Tensor, serialized: tf.Tensor) -> dict[str, tf.Tensor]:
        batch = parse(serialized, features)
        return masking.mask(batch, first + index * batch_size) if masking else batch

    numbered = dataset.enumerate()
    return prefetch(numbered.map(parse_batch, num_parallel_calls=PARSED_AT_ONCE))


def _dataset_of(blocks: Callable[[], Iterator[list[bytes]]]) -> tf.data.Dataset:
    """Returns a dataset of blocks of serialized records, string [number], read in Python.

    Unlike `tf.data.TFRecordDataset`, this can read any records of a file, and does not run out of
    memory if the length of one is corrupt. Reading in blocks makes it equally fast.
    """
    return tf.data.Dataset.from_generator(
        blocks, output_signature=tf.TensorSpec((None,), tf.string)
    )


def _read_group(group: _FileGroup, is_own: Iterator[bool], owns_all: bool) -> Iterator[list[bytes]]:
    """Yields the own records of the shuffled blocks of a group of files.

    Args:
        group: the files.
        is_own: whether each record, in the order of training, is one to yield.
        owns_all: whether all of them are.
    """
    left = [file.num_records - skip for file, skip in zip(group.files, group.skips, strict=True)]
    turns = _interleave(left)
    drop = group.drop
    # Remote files answer slowly, and are read at the same time.
    threads = len(group.files) if any(is_remote(file.path) for file in group.files) else 0
    with contextlib.ExitStack() as stack:
        readers = [
            stack.enter_context(_opened(file, skip, owns_all))
            for file, skip in zip(group.files, group.skips, strict=True)
        ]
        run = stack.enter_context(ThreadPoolExecutor(threads)).map if threads else map
        for number in itertools.count(group.first_block):
            block = list(itertools.islice(turns, SHUFFLE_BLOCK))
            if not block:
                return
            order = _shuffled(len(block), (group.seed, number))[drop:]
            drop = 0
            yield _read_block(block, list(itertools.compress(order, is_own)), readers, run)


def _read_block(
    block: list[int], own: list[int], readers: Sequence[Reader], run: Callable[..., Any]
) -> list[bytes]:
    """Returns some records of the next block.

    Args:
        block: the index of the file of each record, in the order before shuffling.
        own: indices of the records to return, in this order.
        readers: of the files.
        run: calls a function for each of several arguments, like `map`.
    """
    chosen = set(own)

    def read(file: int) -> list[tuple[int, bytes]]:
        indices = [index for index, turn in enumerate(block) if turn == file]
        is_chosen = [index in chosen for index in indices]
        numbered = readers[file](is_chosen)
        return list(zip(itertools.compress(indices, is_chosen), numbered, strict=True))

    contents = dict(itertools.chain.from_iterable(run(read, range(len(readers)))))
    return [contents[index] for index in own]


def _shuffled(count: int, seed: tuple[int, int]) -> list[int]:
    """Returns a permutation of 0 to `count - 1`, determined by the seed."""
    with tf.device("CPU"):
        order = tf.random.experimental.stateless_shuffle(tf.range(count), seed)
    numbers: list[int] = order.numpy().tolist()
    return numbers


@contextlib.contextmanager
def _opened(file: RecordFile, start: int, reads_all: bool) -> Iterator[Reader]:
    """Yields a function that reads the records of a file from record `start` on.

    Args:
        file: the file.
        start: number of records to leave out.
        reads_all: whether all records will be read, which is faster without finding them first.
    """
    with contextlib.ExitStack() as stack:
        if reads_all or not records.has_places(file.path):
            contents = records.read_records(file.path, start)
            stack.callback(contents.close)

            def read(is_chosen: Sequence[bool]) -> list[bytes]:
                following = itertools.islice(contents, len(is_chosen))
                return list(itertools.compress(following, is_chosen))
        else:
            places = records.find_places(file.path, start)
            stack.callback(places.close)

            def read(is_chosen: Sequence[bool]) -> list[bytes]:
                following = itertools.islice(places, len(is_chosen))
                chosen = list(itertools.compress(following, is_chosen))
                return records.read_places(file.path, chosen)

        yield read


def _interleave(lengths: Iterable[int]) -> Iterator[int]:
    """Yields which file each record comes from: one of each, in turn, until all are exhausted.

    Args:
        lengths: number of records in each file.
    """
    waiting = collections.deque(enumerate(lengths))
    while waiting:
        file, left = waiting.popleft()
        if left:
            yield file
            waiting.append((file, left - 1))


def evaluation_dataset(
    files: Sequence[RecordFile],
    features: Features,
    batch_size: int,
    masking: DynamicMasking | None = None,
) -> tf.data.Dataset:
    """Returns a dataset with each record once, in order; the last batch may be smaller.

    Args:
        files: the record files.
        features: name → shape and type of each feature.
        batch_size: B.
        masking: as in `training_dataset`. The masks of a record are always the same.
    """
    if masking is not None:
        masking = masking.for_evaluation()

    def blocks() -> Iterator[list[bytes]]:
        contents = itertools.chain.from_iterable(records.read_records(f.path) for f in files)
        while block := list(itertools.islice(contents, batch_size)):
            yield block

    return _parsed(_dataset_of(blocks), features, masking, 0, batch_size)


def first_batch(file: RecordFile, features: Features, batch_size: int) -> dict[str, tf.Tensor]:
    """Returns the first records of a file, or all if there are fewer.

    Raises:
        ValueError: see `damage_named`.
    """
    with damage_named([file]):
        return parse_first(file.path, features, batch_size)


@contextlib.contextmanager
def damage_named(files: Sequence[RecordFile]) -> Iterator[None]:
    """Converts TensorFlow's error about a corrupt record into one line that names the file.

    Args:
        files: the files of a dataset of this module.

    Raises:
        ValueError: a record is corrupt, which names the file and the record, or it has not the
            expected features or values, which names the files.
    """
    try:
        yield
    except (*UNPARSABLE, tf.errors.UnknownError) as error:
        if found := re.search("ValueError: (.*)", str(error)):  # of the reader
            raise ValueError(found[1]) from None
        if isinstance(error, tf.errors.UnknownError):
            raise
        raise ValueError(
            f"{name_files([file.path for file in files])}: a record is not a tf.train.Example with "
            "the expected features, has no tokens, or has values out of the ranges of this model"
        ) from None


def batches(dataset: tf.data.Dataset, files: Sequence[RecordFile]) -> Iterator[Any]:
    """Yields the batches of a dataset.

    Args:
        dataset: a dataset of this module.
        files: the files that it reads.

    Raises:
        ValueError: see `damage_named`.
    """
    iterator = iter(dataset)
    while True:
        with damage_named(files):
            batch = next(iterator, None)
        if batch is None:
            return
        yield batch

"""Reading records for training and evaluation.

The order of training records is a pure function of the files, their lengths, the seed and the
position, so that a run that stops at record n goes on with record n, whatever the shuffling:

* every epoch puts the files in a new order and reads `FILES_AT_ONCE` of them in turns, one record
  each, so that files of different origin mix;
* every block of `SHUFFLE_BLOCK` records read so is shuffled, with a seed of its own.

Damaged records can be left out: `scan_record_files` finds them before training, and those that are
left are counted as if the others had never been there. So the order stays such a function.

Google's program shuffles 100 records at a time over files read in parallel, in no repeatable order.

Letters: B batch, S sequence, P masked positions.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging
from tqdm import tqdm

from albert_tf.data import records
from albert_tf.pretraining.record_parsing import (
    Features,
    count_if_sound,
    misfit,
    open_records,
    parse,
    parses,
)

FILES_AT_ONCE = 4
SHUFFLE_BLOCK = 1024  # records held in memory, some 10 kB each at S = 512

_MOST_NUMBERS = 20  # in one line of the log
_NO_RECORD = "{}: holds no record that can be used. Leave it out, or make it anew."

Reader = Callable[[tf.Tensor, tf.Tensor], tf.data.Dataset]  # of path and is_gzip


@dataclasses.dataclass(frozen=True)
class RecordFile:
    """A TFRecord file.

    Attributes:
        path: where it is.
        num_records: how many can be used.
        is_gzip: whether it is compressed.
        damaged: numbers, from 0, of records that are left out, in a file that may be unreadable
            after its last usable record; None where every record can be used.
    """

    path: str
    num_records: int
    is_gzip: bool = False
    damaged: tuple[int, ...] | None = None


@dataclasses.dataclass(frozen=True)
class Turn:
    """Some files of an epoch that are read in turns, from the block `first_block` on.

    Attributes:
        paths, is_gzip: the files, beginning with the one whose turn it is.
        skips: records of each that lie before the position.
        seed: of the shuffling of its blocks, together with their numbers.
        first_block: number of the first block that is read.
        drop: records of that block that lie before the position.
    """

    paths: list[str]
    is_gzip: list[bool]
    skips: list[int]
    seed: int
    first_block: int
    drop: int


def find_record_files(paths: Sequence[str]) -> list[RecordFile]:
    """Looks up or counts the records of each file.

    Raises:
        ValueError: a file is empty, truncated or no TFRecord file; names it.
    """
    paths = record_paths(paths)
    known = records.read_metadata(paths)
    found = []
    for path in paths:
        count = known[path].instances if path in known else records.count_records(path)
        if not count:
            raise ValueError(_NO_RECORD.format(path))
        found.append(RecordFile(path, count, records.is_gzip(path)))
    return found


def record_paths(paths: Sequence[str]) -> list[str]:
    """Those that are no metadata, which a glob such as `data/*` finds beside the records."""
    return [path for path in paths if not path.endswith(records.METADATA_SUFFIX)]


def identity(record_files: Sequence[RecordFile]) -> list[Any]:
    """Returns what tells record files from others of the same names: their sizes and times."""
    found = []
    for file in record_files:
        stat = tf.io.gfile.stat(file.path)
        found.append((dataclasses.astuple(file), stat.length, stat.mtime_nsec))
    return found


def scan_record_files(paths: Sequence[str], features: Features) -> list[RecordFile]:
    """Reads every record, and finds those that must be left out; says in the log which.

    These are records whose content is not what its checksum says, or is no `tf.train.Example` with
    the given features. After a record with a damaged length nothing can be read of a file.

    Args:
        paths: the files.
        features: name → shape and type of each feature.

    Raises:
        ValueError: no record of a file can be used; names it.
    """
    paths = record_paths(paths)
    known = records.read_metadata(paths)
    found = []
    for path in tqdm(paths, desc="checking records", unit="file", disable=None):
        is_gzip = records.is_gzip(path)
        count = count_if_sound(path, is_gzip, features)
        if count:
            found.append(RecordFile(path, count, is_gzip))
            continue
        total, damages, end = _scan(path, features)
        if total == len(damages):
            reason = end or next(iter(damages.values()), "")
            raise ValueError(f"{_NO_RECORD.format(path)} {reason}".strip())
        found.append(RecordFile(path, total - len(damages), is_gzip, tuple(damages)))
        if damages:
            numbers = ", ".join(str(number + 1) for number in [*damages][:_MOST_NUMBERS])
            more = ", …" if len(damages) > _MOST_NUMBERS else ""
            text = "%s: %d of %d records are damaged and left out: %s%s"
            logging.warning(text, path, len(damages), total, numbers, more)
        if end:
            lost = known[path].instances - total if path in known else "an unknown number"
            logging.warning("%s: the records after %d are lost, %s. %s", path, total, lost, end)
    return found


def _scan(path: str, features: Features | None) -> tuple[int, dict[int, str], str]:
    """Reads a file that is known to be damaged.

    Returns:
        how many records can be reached; the numbers of those that are damaged, from 0, and why;
        and why there are no more, "" where the file is at its end.
    """
    total = 0
    damages: dict[int, str] = {}
    try:
        for block in records.read_checked_blocks(path):
            sound = [content for content in block if content is not None]
            is_sound = parses(sound, features)
            for number, content in enumerate(block, total):
                if content is None:
                    damages[number] = "its content is not what its checksum says"
                elif not (is_sound or parses([content], features)):
                    damages[number] = "it is no tf.train.Example with the expected features"
            total += len(block)
    except ValueError as error:
        return total, damages, str(error)
    return total, damages, ""


def training_turns(
    files: Sequence[RecordFile], seed: int, start: int, is_shuffled: bool = True
) -> Iterator[Turn]:
    """What to read from record number `start` on, for ever.

    Args:
        files: what to read.
        seed: of all shuffling.
        start: records read before, over all epochs.
        is_shuffled: whether to shuffle; without it files are read one after the other.
    """
    epoch, position = divmod(start, sum(file.num_records for file in files))
    while True:
        order = np.arange(len(files))
        if is_shuffled:
            order = np.random.default_rng((seed, epoch)).permutation(len(files))
        at_once = FILES_AT_ONCE if is_shuffled else 1
        for turn, first in enumerate(range(0, len(files), at_once)):
            group = [files[i] for i in order[first : first + at_once]]
            length = sum(file.num_records for file in group)
            if position < length:
                own_seed = np.random.SeedSequence((seed, epoch, turn)).generate_state(1)[0] >> 1
                yield _turn_at(group, position, int(own_seed))
            position = max(0, position - length)
        epoch += 1


def _turn_at(group: list[RecordFile], position: int, seed: int) -> Turn:
    block, drop = divmod(position, SHUFFLE_BLOCK)
    skips, first = _read_in_turns([file.num_records for file in group], block * SHUFFLE_BLOCK)
    rotated = [i % len(group) for i in range(first, first + len(group))]
    rest = [i for i in rotated if skips[i] < group[i].num_records]
    return Turn(
        paths=[group[i].path for i in rest],
        is_gzip=[group[i].is_gzip for i in rest],
        skips=[skips[i] for i in rest],
        seed=seed,
        first_block=block,
        drop=drop,
    )


def _read_in_turns(lengths: list[int], count: int) -> tuple[list[int], int]:
    """How many of `count` records come from each file read in turns, and whose turn is next."""
    # After r full rounds, min(r, length) have come from each: find the last full round.
    low, high = 0, max(lengths)
    while low < high:
        middle = (low + high + 1) // 2
        if sum(min(middle, length) for length in lengths) <= count:
            low = middle
        else:
            high = middle - 1
    taken = [min(low, length) for length in lengths]
    for i, length in enumerate(lengths):
        if sum(taken) == count:
            return taken, i
        taken[i] += length > low
    return taken, 0


def check_batch_size(files: Sequence[RecordFile], batch_size: int) -> None:
    """Raises ValueError when there are fewer records than a batch takes."""
    total = sum(file.num_records for file in files)
    if total < batch_size:
        raise ValueError(
            f"--train_batch_size={batch_size} is larger than the data: {total} records in "
            f"{len(files)} file(s). Make it smaller, or make more data (a larger --dupe_factor)."
        )


def training_dataset(
    files: Sequence[RecordFile],
    features: Features,
    batch_size: int,
    seed: int,
    start: int = 0,
    is_shuffled: bool = True,
    rows: slice | None = None,
) -> tf.data.Dataset:
    """Batches of parsed records, for ever.

    Args:
        files: what to read.
        features: name → shape and type of each feature.
        batch_size: B.
        seed: of the shuffling.
        start: records read before; the first batch begins with record number `start`.
        is_shuffled: whether to shuffle.
        rows: which rows of each batch this process computes, where several share it; None for
            all. The others are read, but not parsed.

    Returns:
        a dataset of dicts of tensors [B, …], or of `rows` alone, integers as int32.
    """
    read = _reader(files)
    part = slice(None) if rows is None else rows

    def turns() -> Iterator[dict[str, Any]]:
        return map(dataclasses.asdict, training_turns(files, seed, start, is_shuffled))

    types = {"paths": tf.string, "is_gzip": tf.bool, "skips": tf.int64}
    signature = {name: tf.TensorSpec((None,), dtype) for name, dtype in types.items()} | {
        name: tf.TensorSpec((), tf.int64) for name in ("seed", "first_block", "drop")
    }
    dataset = tf.data.Dataset.from_generator(turns, output_signature=signature)
    dataset = dataset.flat_map(lambda turn: _read_turn(turn, read, is_shuffled))
    dataset = dataset.batch(batch_size, drop_remainder=True)
    return dataset.map(lambda batch: parse(batch[part], features), tf.data.AUTOTUNE).prefetch(2)


def _read_turn(turn: dict[str, tf.Tensor], read: Reader, is_shuffled: bool) -> tf.data.Dataset:
    def shuffle(number: tf.Tensor, block: tf.Tensor) -> tf.data.Dataset:
        order = tf.random.experimental.stateless_shuffle(
            tf.range(tf.shape(block)[0]), seed=tf.stack([turn["seed"], number])
        )
        return tf.data.Dataset.from_tensor_slices(tf.gather(block, order) if is_shuffled else block)

    dataset = tf.data.Dataset.from_tensor_slices((turn["paths"], turn["is_gzip"], turn["skips"]))
    dataset = dataset.interleave(
        lambda path, is_gzip, skip: read(path, is_gzip).skip(skip),
        cycle_length=FILES_AT_ONCE,
        block_length=1,
    )
    dataset = dataset.batch(SHUFFLE_BLOCK).enumerate(turn["first_block"]).flat_map(shuffle)
    return dataset.skip(turn["drop"])


def _reader(files: Sequence[RecordFile]) -> Reader:
    """What opens one of `files`, without its damaged records."""
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
    """Every record once, in order, parsed in batches; the last batch may be smaller."""
    paths = [file.path for file in files], [file.is_gzip for file in files]
    dataset = tf.data.Dataset.from_tensor_slices(paths).flat_map(_reader(files)).batch(batch_size)
    return dataset.map(lambda batch: parse(batch, features), tf.data.AUTOTUNE).prefetch(2)


def batches(
    dataset: tf.data.Dataset, files: Sequence[RecordFile], features: Features | None = None
) -> Iterator[Any]:
    """The batches of a dataset over `files`.

    Args:
        dataset: of this module.
        files: what it reads.
        features: what it parses; if given, an error names records that do not parse as well.

    Raises:
        ValueError: a record is damaged; names the file and the record.
    """
    iterator = iter(dataset)
    while True:
        try:
            batch = next(iterator, None)
        except (tf.errors.DataLossError, tf.errors.InvalidArgumentError) as error:
            raise ValueError(_find_damage(files, features) or error.message) from None
        if batch is None:
            return
        yield batch


def _find_damage(files: Sequence[RecordFile], features: Features | None) -> str:
    for file in files:
        is_new = file.damaged is None
        if is_new and count_if_sound(file.path, file.is_gzip, features) is None:
            _, damages, end = _scan(file.path, features)
            for number, reason in damages.items():
                return (
                    f"{file.path}, record {number + 1}: damaged: {reason}. Make the file anew, or "
                    "leave such records out with --skip_bad_records."
                )
            return end
    return ""


def check_features(path: str, features: Features, flag_of: dict[str, str]) -> None:
    """Holds the first records of a file against the features that will be read from it.

    One that fits is enough: damaged ones are found later.

    Args:
        path: the file.
        features: name → shape and type.
        flag_of: feature name → the flag that sets its length, for the error.

    Raises:
        ValueError: a feature is missing or has another length; names both numbers.
    """
    obstacles = []
    for content in next(records.read_checked_blocks(path), []):
        if content is not None:
            obstacle = misfit(content, features, flag_of)
            if not obstacle:
                return
            obstacles.append(obstacle)
    if obstacles:
        raise ValueError(f"{path}: {obstacles[0]}")

"""Reading records for training and evaluation.

The order of training records is a pure function of the files, their lengths, the seed and the
position, so that a run that stops at record n goes on with record n, whatever the shuffling:

* every epoch puts the files in a new order and reads `FILES_AT_ONCE` of them in turns, one record
  each, so that files of different origin mix;
* every block of `SHUFFLE_BLOCK` records read so is shuffled, with a seed of its own.

Google's program shuffles 100 records at a time over files read in parallel, in no repeatable order.

Letters: B batch, S sequence, P masked positions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf import records

FILES_AT_ONCE = 4
SHUFFLE_BLOCK = 1024  # records held in memory, some 10 kB each at S = 512

Features = dict[str, tf.io.FixedLenFeature]


@dataclasses.dataclass(frozen=True)
class RecordFile:
    """A TFRecord file.

    Attributes:
        path: where it is.
        num_records: how many it holds.
        is_gzip: whether it is compressed.
    """

    path: str
    num_records: int
    is_gzip: bool = False


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
    known = records.read_metadata(paths)
    found = []
    for path in paths:
        if path.endswith(records.METADATA_SUFFIX):
            continue  # a glob such as `data/*` finds it beside the records
        count = known[path].instances if path in known else records.count_records(path)
        if not count:
            raise ValueError(f"{path}: holds no record. Leave it out, or make it anew.")
        found.append(RecordFile(path, count, records.is_gzip(path)))
    return found


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
) -> tf.data.Dataset:
    """Batches of parsed records, for ever.

    Args:
        files: what to read.
        features: name → shape and type of each feature.
        batch_size: B.
        seed: of the shuffling.
        start: records read before; the first batch begins with record number `start`.
        is_shuffled: whether to shuffle.

    Returns:
        a dataset of dicts of tensors [B, …], integers as int32.
    """

    def turns() -> Iterator[dict[str, Any]]:
        return map(dataclasses.asdict, training_turns(files, seed, start, is_shuffled))

    types = {"paths": tf.string, "is_gzip": tf.bool, "skips": tf.int64}
    signature = {name: tf.TensorSpec((None,), dtype) for name, dtype in types.items()} | {
        name: tf.TensorSpec((), tf.int64) for name in ("seed", "first_block", "drop")
    }
    dataset = tf.data.Dataset.from_generator(turns, output_signature=signature)
    dataset = dataset.flat_map(lambda turn: _read_turn(turn, is_shuffled))
    dataset = dataset.batch(batch_size, drop_remainder=True)
    return dataset.map(lambda batch: parse(batch, features), tf.data.AUTOTUNE).prefetch(2)


def _read_turn(turn: dict[str, tf.Tensor], is_shuffled: bool) -> tf.data.Dataset:
    def shuffle(number: tf.Tensor, block: tf.Tensor) -> tf.data.Dataset:
        order = tf.random.experimental.stateless_shuffle(
            tf.range(tf.shape(block)[0]), seed=tf.stack([turn["seed"], number])
        )
        return tf.data.Dataset.from_tensor_slices(tf.gather(block, order) if is_shuffled else block)

    dataset = tf.data.Dataset.from_tensor_slices((turn["paths"], turn["is_gzip"], turn["skips"]))
    dataset = dataset.interleave(
        lambda path, is_gzip, skip: _open(path, is_gzip).skip(skip),
        cycle_length=FILES_AT_ONCE,
        block_length=1,
    )
    dataset = dataset.batch(SHUFFLE_BLOCK).enumerate(turn["first_block"]).flat_map(shuffle)
    return dataset.skip(turn["drop"])


def _open(path: tf.Tensor, is_gzip: tf.Tensor) -> tf.data.TFRecordDataset:
    return tf.data.TFRecordDataset(path, compression_type=tf.where(is_gzip, "GZIP", ""))


def evaluation_dataset(
    files: Sequence[RecordFile], features: Features, batch_size: int
) -> tf.data.Dataset:
    """Every record once, in order, parsed in batches; the last batch may be smaller."""
    paths = [file.path for file in files], [file.is_gzip for file in files]
    dataset = tf.data.Dataset.from_tensor_slices(paths).flat_map(_open).batch(batch_size)
    return dataset.map(lambda batch: parse(batch, features), tf.data.AUTOTUNE).prefetch(2)


def batches(dataset: tf.data.Dataset, files: Sequence[RecordFile]) -> Iterator[Any]:
    """The batches of a dataset over `files`.

    Raises:
        ValueError: a record is damaged; names the file and the record.
    """
    iterator = iter(dataset)
    while True:
        try:
            batch = next(iterator, None)
        except (tf.errors.DataLossError, tf.errors.InvalidArgumentError) as error:
            raise ValueError(_find_damage(files) or error.message) from None
        if batch is None:
            return
        yield batch


def _find_damage(files: Sequence[RecordFile]) -> str:
    for file in files:
        number = 0
        try:
            for _ in _open(file.path, file.is_gzip):
                number += 1
        except tf.errors.OpError as error:
            return f"{file.path}, record {number + 1}: damaged ({error.message}). Make it anew."
    return ""


def parse(serialized: tf.Tensor, features: Features) -> dict[str, tf.Tensor]:
    """Parses serialized `tf.train.Example`s, string [B], into tensors [B, …], int64 as int32."""
    batch = tf.io.parse_example(serialized, features)
    return {
        name: tf.cast(value, tf.int32) if value.dtype == tf.int64 else value
        for name, value in batch.items()
    }


def check_features(path: str, features: Features, flag_of: dict[str, str]) -> None:
    """Holds the first record of a file against the features that will be read from it.

    Args:
        path: the file.
        features: name → shape and type.
        flag_of: feature name → the flag that sets its length, for the error.

    Raises:
        ValueError: a feature is missing or has another length; names both numbers.
    """
    example = tf.train.Example.FromString(next(records.read_records(path)))
    for name, feature in features.items():
        found = example.features.feature.get(name)
        if found is None:
            raise ValueError(
                f"{path}: its records have no feature {name!r}, but "
                f"{', '.join(sorted(example.features.feature))}. Was it made by "
                "create_pretraining_data.py?"
            )
        values = found.float_list.value or found.int64_list.value
        expected = int(np.prod(feature.shape))
        if len(values) != expected:
            flag = flag_of.get(name, name)
            raise ValueError(
                f"{path}: {name} has {len(values)} values, --{flag}={expected} was given. "
                f"Pass --{flag}={len(values)}, or make the records anew with --{flag}={expected}."
            )

"""Input pipeline: reads, shuffles and batches pre-training records.

The order of training records is a pure function of the files, the seed and the position, so that a
run that was stopped at record n resumes at record n. Epoch e is the N records of the order from
e * N on, which are all records, each once. Many files are read in streams, of which each worker
reads its own (`record_streams`). The order for few files:

* Each epoch shuffles the files and interleaves `FILES_AT_ONCE` of them, one record each, to mix
  files of different origin.
* Each block of `SHUFFLE_BLOCK` records of an epoch is shuffled.
* To resume, the records of the current epoch before the position are read and dropped. Each of
  several processes that share a batch reads all records, and parses those of its own rows.

`tf.data.Dataset.shuffle` is not used, because its order depends on `tf.random.set_seed` as well.

Google's program uses a shuffle buffer of 100 records over files read in parallel, in an order that
is not reproducible.

Shapes: B batch size, S sequence length, P masked positions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import tensorflow as tf

from albert_tf.pretraining.dynamic_masking import DynamicMasking
from albert_tf.pretraining.features import Features
from albert_tf.pretraining.record_files import RecordFile, damage_named, parse
from albert_tf.pretraining.record_streams import SHUFFLE_BLOCK, StreamPlan, streams_of_rows
from albert_tf.training.task import Batch, prefetch

FILES_AT_ONCE = 4
STREAMS_AT_ONCE = 4  # read by threads; more cost a tenth of the CPU time of an epoch
REMOTE_STREAMS_AT_ONCE = 16  # because object stores answer slowly
PARSED_AT_ONCE = 2  # batches, more are not faster

stateless_shuffle = tf.random.experimental.stateless_shuffle


def training_dataset(
    files: Sequence[RecordFile],
    features: Features,
    batch_size: int,
    seed: int,
    start: int = 0,
    rows: slice | None = None,
    masking: DynamicMasking | None = None,
    plan: StreamPlan | None = None,
) -> tf.data.Dataset:
    """Returns an infinite dataset of batches of parsed records.

    Args:
        files: the record files.
        features: name → shape and type of each feature.
        batch_size: B.
        seed: random seed of the shuffling.
        start: number of records read before; the first batch starts at this record.
        rows: the rows of each batch that this process trains on, if several processes share it;
            None for all.
        masking: masks the batches; None if the records contain masked tokens.
        plan: how streams read the files from this start on; None for the order for few files.

    Returns:
        A dataset of feature name → tensor [B, …] (only `rows` of it, if given); integers are int32.
    """
    rows = rows or slice(0, batch_size)
    if plan is None:
        records = _shuffled_epochs(files, seed, start)
        batches = records.batch(batch_size, drop_remainder=True).map(lambda batch: batch[rows])
    else:
        batches = _streamed_rows(plan, batch_size, seed, rows)
    return _parsed(batches, features, masking, start, batch_size, rows.start)


def _shuffled_epochs(files: Sequence[RecordFile], seed: int, start: int) -> tf.data.Dataset:
    """Returns a dataset of serialized records, string scalars, in the order for few files.

    Args:
        files: the record files.
        seed: random seed.
        start: number of records read before.
    """
    first_epoch, position = divmod(start, sum(file.num_records for file in files))
    blocks_before, records_before = divmod(position, SHUFFLE_BLOCK)

    def shuffled_epoch(epoch: tf.Tensor) -> tf.data.Dataset:
        epoch_seed = tf.stack([tf.constant(seed, tf.int64), epoch])
        # Skipping whole blocks is twice as fast as shuffling them and skipping their records.
        first_block = tf.where(epoch == first_epoch, tf.constant(blocks_before, tf.int64), 0)
        order = stateless_shuffle(tf.range(len(files)), epoch_seed)
        blocks = _read(files, order, FILES_AT_ONCE).batch(SHUFFLE_BLOCK).skip(first_block)
        return _shuffled_blocks(blocks, epoch_seed, first_block)

    epochs = tf.data.Dataset.range(first_epoch, tf.int64.max)
    return epochs.flat_map(shuffled_epoch).skip(records_before)


def _shuffled_blocks(
    blocks: tf.data.Dataset, seed: tf.Tensor, first_block: tf.Tensor
) -> tf.data.Dataset:
    """Returns a dataset of string scalars, of which each block was shuffled.

    Args:
        blocks: a dataset of string [block].
        seed: seed of all blocks, int64 [2].
        first_block: number of the first block, int64.
    """

    def shuffle(block: tf.Tensor, contents: tf.Tensor) -> tf.Tensor:
        return stateless_shuffle(contents, tf.random.fold_in(seed, block))

    return blocks.enumerate(first_block).map(shuffle).unbatch()


def _streamed_rows(plan: StreamPlan, batch_size: int, seed: int, rows: slice) -> tf.data.Dataset:
    """Returns a dataset of the serialized rows of batches, string [rows], by a plan.

    Only the streams that these rows are from are read.

    Args:
        plan: which files the streams read.
        batch_size: B.
        seed: random seed.
        rows: the rows of each batch.
    """
    each = batch_size // plan.num_streams  # rows of a stream
    streams = streams_of_rows(rows, batch_size, plan.num_streams)
    count, before = len(streams), streams.start * each
    kept = slice(rows.start - before, rows.stop - before)
    at_once = REMOTE_STREAMS_AT_ONCE if plan.is_remote else STREAMS_AT_ONCE

    def read_stream(stream: tf.Tensor) -> tf.data.Dataset:
        stream_seed = tf.stack([tf.constant(seed, tf.int64), stream])
        first_blocks, dropped = (tf.constant(a)[stream] for a in (plan.first_blocks, plan.dropped))

        def read_epoch(epoch: tf.Tensor) -> tf.data.Dataset:
            columns = tf.numpy_function(plan.parts, [stream, epoch], [tf.int64] * 4)
            parts = tf.data.Dataset.from_tensor_slices(
                tuple(tf.ensure_shape(column, [None]) for column in columns)
            )
            blocks = parts.flat_map(read_part).batch(plan.block)
            first_block = tf.where(epoch == plan.first_epoch, first_blocks, 0)
            return _shuffled_blocks(blocks, tf.random.fold_in(stream_seed, epoch), first_block)

        epochs = tf.data.Dataset.range(plan.first_epoch, tf.int64.max).flat_map(read_epoch)
        return epochs.skip(dropped).batch(each, drop_remainder=True)

    def read_part(
        _: tf.Tensor, file: tf.Tensor, skipped: tf.Tensor, count: tf.Tensor
    ) -> tf.data.Dataset:
        path = tf.numpy_function(plan.open_file, [file], tf.string)
        return tf.data.TFRecordDataset(tf.ensure_shape(path, [])).skip(skipped).take(count)

    parts = tf.data.Dataset.range(streams.start, streams.stop).interleave(
        read_stream,
        cycle_length=count,
        num_parallel_calls=min(count, at_once),
        deterministic=True,
    )
    whole = parts.batch(count, drop_remainder=True)  # [streams, B / V]
    return whole.map(lambda batch: tf.reshape(batch, [count * each])[kept])


def _read(files: Sequence[RecordFile], order: tf.Tensor, files_at_once: int) -> tf.data.Dataset:
    """Returns a dataset of serialized records, string scalars.

    Args:
        files: the record files.
        order: indices of the files, int32 [number of files].
        files_at_once: number of files that are interleaved, one record each.
    """
    paths = tf.gather([file.path for file in files], order)
    return tf.data.Dataset.from_tensor_slices(paths).interleave(
        tf.data.TFRecordDataset, cycle_length=files_at_once
    )


def _parsed(
    batches: tf.data.Dataset,
    features: Features,
    masking: DynamicMasking | None,
    first: int,
    batch_size: int,
    first_row: int = 0,
) -> tf.data.Dataset:
    """Returns a dataset of parsed batches.

    Args:
        batches: a dataset of serialized rows of batches, string [rows].
        features: name → shape and type of each feature.
        masking: masks the batches; None to leave them as they are.
        first: number of the first record.
        batch_size: B.
        first_row: number of the first of the rows in a batch.
    """

    def parse_batch(index: tf.Tensor, serialized: tf.Tensor) -> Batch:
        batch = parse(serialized, features)
        first_instance = first + index * batch_size + first_row
        return masking.mask(batch, first_instance) if masking else batch

    plain = tf.autograph.experimental.do_not_convert(parse_batch)  # not needed, and takes time
    return prefetch(batches.enumerate().map(plain, num_parallel_calls=PARSED_AT_ONCE))


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
    batches = _read(files, tf.range(len(files)), files_at_once=1).batch(batch_size)
    return _parsed(batches, features, masking, 0, batch_size)


def batches(dataset: tf.data.Dataset, files: Iterable[RecordFile]) -> Iterator[Batch]:
    """Yields the batches of a dataset.

    Args:
        dataset: a dataset of this module.
        files: the files that it reads, or the list of those that it has opened so far.

    Raises:
        ValueError, OSError, InterruptedRunError: see `damage_named`.
    """
    iterator = iter(dataset)
    while True:
        with damage_named(files):
            batch = next(iterator, None)
        if batch is None:
            return
        yield batch

"""Input pipeline: reads, shuffles and batches pre-training records.

The order of training records is a pure function of the files, the seed and the position, so that a
run that was stopped at record n resumes at record n:

* Each epoch shuffles the files and interleaves `FILES_AT_ONCE` of them, one record each, to mix
  files of different origin.
* Each block of `SHUFFLE_BLOCK` records of an epoch is shuffled.

`tf.data.Dataset.shuffle` is not used, because its order depends on `tf.random.set_seed` as well.

To resume, the records of the current epoch before the position are read and dropped. Each of
several processes that share a batch reads all records, and parses those of its own rows.

Google's program uses a shuffle buffer of 100 records over files read in parallel, in an order that
is not reproducible.

Shapes: B batch size, S sequence length, P masked positions.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import math
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from albert_tf import files
from albert_tf.checkpoints import finding, run_record
from albert_tf.checkpoints.run_record import FileRecord, RunRecord
from albert_tf.data import records
from albert_tf.data.masking import PerInstanceStream, mask_batch, num_to_predict
from albert_tf.data.records import FoundRecords, RecordFileInfo
from albert_tf.data.settings import MaskingSettings
from albert_tf.model import huggingface_tokenizer
from albert_tf.training.task import prefetch

# Finds pre-training record files, and counts, checks and parses their records.
#
# Shapes: B batch size.


class Feature(NamedTuple):
    """The expected values of a feature.

    Attributes:
        shape: shape of the values.
        dtype: dtype of the values, tf.int64 or tf.float32.
        limit: the integers of the first record must be in [0, limit); 0 for no limit.
        limit_hint: where the limit comes from, for error messages.
    """

    shape: tuple[int, ...]
    dtype: tf.DType
    limit: int = 0
    limit_hint: str = ""


Features = dict[str, Feature]  # by name

# What TensorFlow raises for records that cannot be parsed. Its message includes their bytes, which
# may not be valid text.
UNPARSABLE = (tf.errors.InvalidArgumentError, UnicodeDecodeError)

# Feature → flag that sets its length.
_FLAG_OF_FEATURE = {
    name: width for name, (_, width) in records.FEATURES.items() if isinstance(width, str)
}
_CREATED = "Was it created by create_pretraining_data.py?"


@dataclasses.dataclass(frozen=True)
class RecordFile:
    """A TFRecord file.

    Attributes:
        path: path of the file.
        num_records: number of records.
        checksum: SHA-256 of what determines the records, in hexadecimal: the metadata and the first
            record, or all records of a file without metadata. It does not depend on the folder.
        metadata: what the metadata file beside it says, if one lists the file.
    """

    path: str
    num_records: int
    checksum: str
    metadata: RecordFileInfo | None = None


def check_files(found: FoundRecords, features: Features) -> list[RecordFile]:
    """Returns the files with their numbers of records, from the metadata or else counted.

    Args:
        found: the files, with their metadata.
        features: what the first record of each is expected to contain: name → shape and type.

    Raises:
        ValueError: a file is empty or not a TFRecord file, its first record is damaged or has not
            the features or other lengths or values, or any record is damaged of a file without
            metadata. The message names the file, and what was expected and found.
    """
    return [_read_file(path, info, features) for path, info in found.items()]


def _read_file(path: str, info: RecordFileInfo | None, features: Features) -> RecordFile:
    with contextlib.closing(records.read_records(path)) as contents:
        first = next(contents, None)
        if first is None:
            raise ValueError(f"{path}: contains no record. Omit the file, or create it again.")
        _check_first_record(path, first, features)
        checksum = hashlib.sha256(first)
        if info is not None:
            checksum.update(info.checksum.encode())
            return RecordFile(path, info.instances, checksum.hexdigest(), info)
        logging.info("%s: no metadata beside it, so all records are read once", path)
        num_records = 1
        for content in contents:
            num_records += 1
            checksum.update(content)
    return RecordFile(path, num_records, checksum.hexdigest())


def _check_first_record(path: str, record: bytes, features: Features) -> None:
    """Checks that a record has the expected features.

    Raises:
        ValueError: a feature is missing, or has a different length, or values of another vocabulary
            or objective. The message names what was expected and found.
    """
    try:
        stored = tf.train.Example.FromString(record).features.feature
    except DecodeError:
        raise ValueError(f"{path}: its records are not tf.train.Examples. {_CREATED}") from None
    for name, feature in features.items():
        if name not in stored:
            found = ", ".join(sorted(stored))
            raise ValueError(
                f"{path}: its records have no feature {name!r}, only {found}. {_CREATED}"
            )
        values = stored[name].float_list.value or stored[name].int64_list.value
        expected = math.prod(feature.shape)
        if len(values) != expected:
            flag = _FLAG_OF_FEATURE.get(name, name)
            raise ValueError(
                f"{path}: {name} has {len(values)} values, but --{flag}={expected}. Pass "
                f"--{flag}={len(values)}, or create the records again with --{flag}={expected}."
            )
        wrong = [value for value in values if feature.limit and not 0 <= value < feature.limit]
        if wrong:
            limits = f"expected 0 to {feature.limit - 1} ({feature.limit_hint})"
            raise ValueError(f"{path}: {name} contains {wrong[0]}, {limits}")
    if "masked_lm_weights" in features and not any(stored["masked_lm_weights"].float_list.value):
        logging.warning(
            "%s: the first record has no masked tokens (created with --masked_lm_prob=0?): the "
            "model learns only the sentence objective from such records. Set --dynamic_masking to "
            "mask tokens during training.",
            path,
        )


def name_files(files: Sequence[RecordFile]) -> str:
    """Returns the path of the first file and the number of the others."""
    others = len(files) - 1
    return files[0].path + (f" and {others} more" if others else "")


def checksum_of(record_files: Sequence[RecordFile]) -> str:
    """Returns a SHA-256 of the records in hexadecimal, independent of where the files are."""
    return hashlib.sha256(" ".join(file.checksum for file in record_files).encode()).hexdigest()


def find_vocabulary(record_files: Sequence[RecordFile]) -> RunRecord:
    """Returns the record of the vocabulary of records, if their metadata contains it.

    Raises:
        ValueError: the records have different vocabularies; the message names two.
    """
    metadata = [file.metadata for file in record_files if file.metadata]
    for info in metadata:
        if info.vocabulary["checksum"] != metadata[0].vocabulary["checksum"]:
            raise ValueError(
                "the record files were created with different vocabularies: "
                f"{_name_vocabulary(metadata[0])} and {_name_vocabulary(info)}"
            )
    if not metadata:
        logging.info("The vocabulary of the records is unknown: no metadata file lists them")
        return RunRecord()
    vocabulary = metadata[0].vocabulary
    known = FileRecord.of_vocabulary(
        vocabulary["size"], vocabulary["checksum"], _name_vocabulary(metadata[0])
    )
    case = {name: vocabulary[name] for name in (run_record.LOWER_CASE,) if name in vocabulary}
    return RunRecord(settings=case, files={run_record.VOCABULARY: known})


def keep_vocabulary(
    record_files: Sequence[RecordFile], folder: str, model_folder: str | None = None
) -> None:
    """Copies the vocabulary of records into the folder of a run, if it is found.

    The metadata contains its file name and checksum, but not its folder. It is looked for beside
    the metadata, and in the folder of the initial weights.
    """
    of_model = finding.list_tokenizers(model_folder) if model_folder else []
    for info in (file.metadata for file in record_files if file.metadata):
        beside = os.path.join(os.path.dirname(info.metadata_file), info.vocabulary["file"])
        for path in filter(files.is_file, (beside, *of_model)):
            if huggingface_tokenizer.checksum_of(path) == info.vocabulary["checksum"]:
                finding.keep_vocabulary(path, path.endswith(".model"), folder)
                return


def _name_vocabulary(info: RecordFileInfo) -> str:
    return f"{info.vocabulary['file']} (according to {run_record.absolute(info.metadata_file)})"


def parse(serialized: Any, features: Features) -> dict[str, tf.Tensor]:
    """Parses serialized `tf.train.Example`s, string [B], to name → tensor [B, …]; int64 as int32.

    Raises:
        tf.errors.InvalidArgumentError: a record is not such an Example.
    """
    wanted = {name: tf.io.FixedLenFeature(f.shape, f.dtype) for name, f in features.items()}
    batch = tf.io.parse_example(serialized, wanted)
    return {
        name: tf.cast(value, tf.int32) if value.dtype == tf.int64 else value
        for name, value in batch.items()
    }


# Dynamic masking: masks that are drawn during training, anew in every epoch.
#
# `create_pretraining_data.py --masked_lm_prob=0` writes records without masked tokens. With
# `--dynamic_masking`, the input pipeline masks each batch by the same algorithm that the data
# program uses (`data.masking`): n-grams of whole words, Chinese words too, since the records mark
# where words start.
#
# The masks of an instance are a function of the seed and of its number in the order of training,
# which counts on from epoch to epoch. They do not depend on the batch size, on the number of
# workers, or on where a run was interrupted. For evaluation, the seed is a constant, and the number
# is that of the record.
#
# Shapes: B batch size, S sequence length, P prediction slots.
# Source: RoBERTa (arXiv 1907.11692), section 4.1.

TOKEN_BOUNDARY = "token_boundary"  # Google's name of the feature that marks where words start
MADE_BY_MASKING = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")
EVALUATION_SEED = 20  # any constant: the masks of an evaluation are the same in all runs
# Mixed into the seed, so that masks have a random stream separate from that of the shuffle.
_MASKS = 4

Batch = dict[str, tf.Tensor]


@dataclasses.dataclass(frozen=True)
class DynamicMasking:
    """Masks batches of parsed records.

    Attributes:
        settings: how tokens are chosen.
        mask_id: id of [MASK].
        vocab_size: number of entries of the vocabulary, from which random tokens are drawn.
        seed: random seed.
    """

    settings: MaskingSettings
    mask_id: int
    vocab_size: int
    seed: int

    def for_evaluation(self) -> DynamicMasking:
        """Returns the same masking with a seed that is equal in all runs."""
        return dataclasses.replace(self, seed=EVALUATION_SEED)

    def mask(self, batch: Batch, first: tf.Tensor) -> Batch:
        """Returns a batch with masked tokens and their labels.

        Args:
            batch: `input_ids`, `input_mask` and `token_boundary`, int32 [B, S], and other features,
                which stay as they are.
            first: number of the first instance of the batch, an int64 scalar.
        """
        others = dict(batch)
        arguments = [others.pop("input_ids"), batch["input_mask"], others.pop(TOKEN_BOUNDARY)]
        names = ("input_ids", *MADE_BY_MASKING)

        def mask_arrays(*arrays: Any) -> list[NDArray[Any]]:
            masked = self.mask_arrays(*arrays)
            return [masked[name] for name in names]

        dtypes = [tf.int32, tf.int32, tf.int32, tf.float32]
        tensors = tf.numpy_function(mask_arrays, [*arguments, first], dtypes, stateful=False)
        shape = arguments[0].shape
        shapes = [shape, *[(shape[0], self.settings.prediction_slots)] * len(MADE_BY_MASKING)]
        return others | dict(zip(names, map(tf.ensure_shape, tensors, shapes), strict=True))

    def mask_arrays(
        self,
        input_ids: NDArray[np.int32],
        input_mask: NDArray[np.int32],
        token_boundary: NDArray[np.int32],
        first: int,
    ) -> dict[str, NDArray[Any]]:
        """Returns what `mask_batch` returns for some instances.

        Args:
            input_ids: int32 [B, S].
            input_mask: int32 [B, S].
            token_boundary: int32 [B, S].
            first: number of the first instance; the others follow it.
        """
        lengths = input_mask.sum(axis=1)  # [B]
        # [CLS] is the first token of an instance and [SEP] the last one. As in the data program,
        # no token with one of their ids is masked.
        special = input_ids[:, :1], np.take_along_axis(input_ids, lengths[:, None] - 1, axis=1)
        is_special = (input_ids == special[0]) | (input_ids == special[1])  # [B, S]
        count, seq_length = input_ids.shape
        seed = (self.seed, _MASKS)
        stream = PerInstanceStream(seed, int(first), count, self.settings, seq_length)
        return mask_batch(
            input_ids,
            token_boundary > 0,
            (input_mask > 0) & ~is_special,
            num_to_predict(lengths, self.settings),
            self.settings,
            self.mask_id,
            self.vocab_size,
            stream,
        )


def for_records(found: FoundRecords, settings: MaskingSettings, seed: int) -> DynamicMasking | None:
    """Returns how to mask records, or None if they contain masked tokens already.

    Args:
        found: the record files, with their metadata.
        settings: how tokens are chosen.
        seed: random seed.

    Raises:
        ValueError: only some of the files contain masked tokens, or their labels depend on how
            albert_zh masks words.
    """
    unmasked = {
        path: info
        for path, info in found.items()
        if info and info.settings.get("masked_lm_prob") == 0
    }
    if not unmasked:
        return None
    for path, info in unmasked.items():
        if info.settings.get("albert_zh_compat"):
            raise ValueError(
                f"{path} was created with albert_zh_compat, whose labels depend on the masked "
                "words. Create the records with --segment_chinese_words instead."
            )
    if masked := found.keys() - unmasked.keys():
        raise ValueError(
            f"{min(masked)} contains masked tokens, but {min(unmasked)} does not: expected records "
            "that were all created with --masked_lm_prob=0"
        )
    fields = (field.name for field in dataclasses.fields(MaskingSettings))
    only = MaskingSettings(**{name: getattr(settings, name) for name in fields})
    return DynamicMasking(only, info.mask_id, info.vocabulary["size"], seed)


FILES_AT_ONCE = 4
SHUFFLE_BLOCK = 10_000  # records in memory, about 3 kB each at S = 512
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

    Returns:
        A dataset of feature name → tensor [B, …] (only `rows` of it, if given); integers are int32.
    """
    first_epoch, position = divmod(start, sum(file.num_records for file in files))
    blocks_before, records_before = divmod(position, SHUFFLE_BLOCK)

    def shuffled_epoch(epoch: tf.Tensor) -> tf.data.Dataset:
        epoch_seed = tf.stack([tf.constant(seed, tf.int64), epoch])
        # Skipping whole blocks is twice as fast as shuffling them and skipping their records.
        first_block = tf.where(epoch == first_epoch, tf.constant(blocks_before, tf.int64), 0)

        def shuffle(block: tf.Tensor, contents: tf.Tensor) -> tf.Tensor:
            return stateless_shuffle(contents, tf.random.fold_in(epoch_seed, block))

        order = stateless_shuffle(tf.range(len(files)), epoch_seed)
        blocks = _read(files, order, FILES_AT_ONCE).batch(SHUFFLE_BLOCK)
        return blocks.skip(first_block).enumerate(first_block).map(shuffle).unbatch()

    epochs = tf.data.Dataset.range(first_epoch, tf.int64.max)
    shuffled = epochs.flat_map(shuffled_epoch).skip(records_before)
    batches = shuffled.batch(batch_size, drop_remainder=True)
    return _parsed(batches, features, masking, start, batch_size, rows or slice(0, batch_size))


def _read(files: Sequence[RecordFile], order: Any, files_at_once: int) -> tf.data.Dataset:
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
    rows: slice,
) -> tf.data.Dataset:
    """Returns a dataset of parsed batches.

    Args:
        batches: a dataset of serialized records, string [B].
        features: name → shape and type of each feature.
        masking: masks the batches; None to leave them as they are.
        first: number of the first record.
        batch_size: B.
        rows: the rows of each batch to parse.
    """

    @tf.autograph.experimental.do_not_convert  # not needed, and takes time
    def parse_batch(index: tf.Tensor, serialized: tf.Tensor) -> dict[str, tf.Tensor]:
        batch = parse(serialized[rows], features)
        first_row = first + index * batch_size + rows.start
        return masking.mask(batch, first_row) if masking else batch

    return prefetch(batches.enumerate().map(parse_batch, num_parallel_calls=PARSED_AT_ONCE))


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
    return _parsed(batches, features, masking, 0, batch_size, slice(0, batch_size))


@contextlib.contextmanager
def damage_named(files: Sequence[RecordFile]) -> Iterator[None]:
    """Converts TensorFlow's error about a corrupt record into one line that names the file.

    Args:
        files: the files of a dataset of this module.

    Raises:
        ValueError: a record is corrupt, which names the file and the record, or it has not the
            expected features, which names the files.
    """
    try:
        yield
    except tf.errors.DataLossError:  # which does not say in which file
        for file in files:
            records.count_records(file.path)
        raise
    except UNPARSABLE:
        raise ValueError(
            f"{name_files(files)}: a record is not a tf.train.Example with the expected features"
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

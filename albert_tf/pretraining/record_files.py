"""Finds pre-training record files, and counts, checks and parses their records.

Shapes: B batch size.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import os
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from absl import logging
from google.protobuf.message import DecodeError

from albert_tf import files
from albert_tf.checkpoints import finding, run_record
from albert_tf.checkpoints.run_record import FileRecord, RunRecord
from albert_tf.data import records
from albert_tf.model import huggingface_tokenizer
from albert_tf.model.objectives import OBJECTIVES, SOP


class Feature(NamedTuple):
    """The expected values of a feature.

    Attributes:
        shape: shape of the values.
        dtype: dtype of the values, tf.int64 or tf.float32.
        limit: integers must be in [0, limit); 0 for no limit.
        limit_hint: where the limit comes from, for error messages.
        is_mask: whether this is the attention mask, so that all 0 means an empty record, which is
            rejected.
    """

    shape: tuple[int, ...]
    dtype: tf.DType
    limit: int = 0
    limit_hint: str = ""
    is_mask: bool = False


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
        is_gzip: whether the file is gzip-compressed.
    """

    path: str
    num_records: int
    checksum: str
    is_gzip: bool


def list_paths(patterns: str, flag: str) -> list[str]:
    """Returns the record files that match some patterns.

    Args:
        patterns: paths and glob patterns, separated by commas.
        flag: the setting that they come from, for error messages.

    Raises:
        ValueError: no file matches, or TensorFlow cannot read from this kind of store.
    """
    paths = records.exclude_metadata(files.expand_patterns(patterns, f"--{flag}"))
    if not paths:
        raise ValueError(f"--{flag}={patterns}: matches no record file")
    for path in filter(files.is_remote, paths):
        if path.partition("://")[0] not in tf.io.gfile.get_registered_schemes():
            raise ValueError(
                f"--{flag}: {path}: TensorFlow reads records from gs:// and from local folders. "
                "Copy these, and the metadata beside them, to a local folder first"
            )
    return paths


def find_record_files(paths: Iterable[str], features: Features) -> list[RecordFile]:
    """Returns the files with their numbers of records, from the metadata or else counted.

    Args:
        paths: the files.
        features: what the first record of each is expected to contain: name → shape and type.

    Raises:
        ValueError: a file is empty or not a TFRecord file, its first record is damaged or has not
            the features or other lengths or values, or any record is damaged of a file without
            metadata. The message names the file, and what was expected and found.
    """
    paths = list(paths)
    metadata = records.read_metadata(paths)
    return [_read_file(path, metadata.get(path), features) for path in paths]


def _read_file(path: str, info: records.RecordFileInfo | None, features: Features) -> RecordFile:
    with records.open_records(path) as (contents, is_gzip):
        first = next(contents, None)
        if first is None:
            raise ValueError(f"{path}: contains no record. Omit the file, or create it again.")
        _check_first_record(path, first, features)
        checksum = hashlib.sha256(first)
        if info is not None:
            checksum.update(info.checksum.encode())
            return RecordFile(path, info.instances, checksum.hexdigest(), is_gzip)
        logging.info("%s: no metadata beside it, so all records are read once", path)
        num_records = 1
        for content in contents:
            num_records += 1
            checksum.update(content)
    return RecordFile(path, num_records, checksum.hexdigest(), is_gzip)


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


def name_files(paths: list[str]) -> str:
    """Returns the first path and the number of the others."""
    others = len(paths) - 1
    return paths[0] + (f" and {others} more" if others else "")


def check_batch_size(files: Sequence[RecordFile], batch_size: int) -> None:
    """Raises a ValueError if there are fewer records than the batch size."""
    total = sum(file.num_records for file in files)
    if total < batch_size:
        raise ValueError(
            f"--train_batch_size={batch_size} is larger than the data: {total} records in "
            f"{len(files)} file(s). Reduce it, or create more data (a larger --dupe_factor)."
        )


def find_objective(patterns: str) -> str:
    """Returns the sentence objective that records were created for; `sop` if it is not known.

    Args:
        patterns: `--input_file`.

    Raises:
        ValueError: it is not registered here. The message names the metadata file.
    """
    for info in records.read_metadata(list_paths(patterns, "input_file")).values():
        name: str = info.settings.get("sentence_objective", SOP)
        if name not in OBJECTIVES:
            raise ValueError(
                f"{info.metadata_file}: the records were created for sentence_objective={name!r}, "
                f"expected one of {', '.join(OBJECTIVES)}, or register it before training"
            )
        logging.info("Sentence objective of the records: %s", name)
        return name
    return SOP


def checksum_of(record_files: Sequence[RecordFile]) -> str:
    """Returns a SHA-256 of the records in hexadecimal, independent of where the files are."""
    return hashlib.sha256(" ".join(file.checksum for file in record_files).encode()).hexdigest()


def find_vocabulary(record_files: Sequence[RecordFile]) -> RunRecord:
    """Returns the record of the vocabulary of records, if their metadata contains it.

    Raises:
        ValueError: the records have different vocabularies; the message names two.
    """
    metadata = list(records.read_metadata([file.path for file in record_files]).values())
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
    for info in records.read_metadata([file.path for file in record_files]).values():
        if path := _find_vocabulary_file(info, model_folder):
            finding.keep_vocabulary(path, path.endswith(".model"), folder)
            return


def check_mask_id(record_files: Sequence[RecordFile], model_folder: str | None) -> None:
    """Compares the id of [MASK] in the metadata with the vocabulary, if that is found.

    Raises:
        ValueError: they differ.
    """
    for info in records.read_metadata([file.path for file in record_files]).values():
        path = _find_vocabulary_file(info, model_folder)
        if not path:
            continue
        names = (None, path) if path.endswith(".model") else (path, None)
        expected = huggingface_tokenizer.load_tokenizer(names[0], None, names[1]).mask_id
        if info.mask_id != expected:
            raise ValueError(
                f"{info.metadata_file}: mask_id is {info.mask_id}, but [MASK] has the id "
                f"{expected} in {path}. Create the records again"
            )
        return  # the vocabulary of all records is the same


def _find_vocabulary_file(info: records.RecordFileInfo, model_folder: str | None) -> str | None:
    """Returns the vocabulary of records, from beside them or from a model's folder, or None."""
    of_model = finding.list_tokenizers(model_folder) if model_folder else []
    beside = os.path.join(os.path.dirname(info.metadata_file), info.vocabulary["file"])
    for path in filter(files.is_file, (beside, *of_model)):
        if huggingface_tokenizer.checksum_of(path) == info.vocabulary["checksum"]:
            return path
    return None


def _name_vocabulary(info: records.RecordFileInfo) -> str:
    return f"{info.vocabulary['file']} (according to {run_record.absolute(info.metadata_file)})"


def parse(serialized: Any, features: Features) -> dict[str, tf.Tensor]:
    """Parses serialized `tf.train.Example`s, string [B], to name → tensor [B, …]; int64 as int32.

    Raises:
        tf.errors.InvalidArgumentError: a record is not such an Example, or has values out of range.
    """
    wanted = {name: tf.io.FixedLenFeature(f.shape, f.dtype) for name, f in features.items()}
    batch = tf.io.parse_example(serialized, wanted)
    tf.debugging.Assert(_is_in_range(batch, features), ["a record has values out of range"])
    return {
        name: tf.cast(value, tf.int32) if value.dtype == tf.int64 else value
        for name, value in batch.items()
    }


def _is_in_range(batch: dict[str, tf.Tensor], features: Features) -> tf.Tensor:
    """Returns whether all values of a batch are in the ranges of their features; bool scalar."""
    is_good = [tf.constant(True)]
    limited = {name: feature for name, feature in features.items() if feature.limit}
    largest = []
    for name, feature in limited.items():
        # Negative integers are huge when read as unsigned, so that one comparison is sufficient.
        values = tf.bitcast(batch[name], tf.uint64)  # [B, …]
        if feature.is_mask:
            values = tf.reduce_max(values, axis=-1)  # [B]
            is_good.append(tf.reduce_all(values > 0))
        largest.append(tf.reduce_max(values))
    if limited:
        limits = tf.constant([feature.limit for feature in limited.values()], tf.uint64)
        is_good.append(tf.reduce_all(tf.stack(largest) < limits))
    return tf.reduce_all(is_good)

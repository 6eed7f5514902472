"""Finds pre-training record files, and counts, checks and parses their records.

Shapes: B batch size.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging
from google.protobuf.message import DecodeError

from albert_tf import files, huggingface_tokenizer
from albert_tf.checkpoints import finding, run_record
from albert_tf.checkpoints.run_record import FileRecord, RunRecord
from albert_tf.data import record_checksums, record_index, records
from albert_tf.sentence_objectives import OBJECTIVES, SOP


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

CHECKSUMS_FILE = "record_checksums.json"  # in the folder of a run
FILES = "files"  # its key
_READERS = 8  # files read at once for their checksums
_NO_RECORD = "{}: contains no record. Omit the file, or create it again."


@dataclasses.dataclass(frozen=True)
class RecordFile:
    """A TFRecord file.

    Attributes:
        path: path of the file.
        num_records: number of records.
        is_gzip: whether the file is gzip-compressed.
    """

    path: str
    num_records: int
    is_gzip: bool = False


def list_paths(patterns: str, flag: str) -> list[str]:
    """Returns the record files that match some patterns.

    Args:
        patterns: paths and glob patterns, separated by commas.
        flag: the setting that they come from, for error messages.

    Raises:
        ValueError: no file matches.
    """
    paths = records.exclude_own_files(files.expand_patterns(patterns, f"--{flag}"))
    if not paths:
        raise ValueError(f"--{flag}={patterns}: matches no record file")
    return paths


def find_record_files(paths: Sequence[str]) -> list[RecordFile]:
    """Returns the files with their numbers of records, from the metadata or else counted.

    Raises:
        ValueError: a file is empty, truncated or not a TFRecord file, or has another number of
            records than its metadata says; the message names it.
    """
    metadata = records.read_metadata(paths)
    record_files = []
    for path in paths:
        if path in metadata:
            count = _checked_count(path, metadata[path])
        else:
            count = records.count_records(path)
        if not count:
            raise ValueError(_NO_RECORD.format(path))
        record_files.append(RecordFile(path, count, records.is_gzip(path)))
    return record_files


def _checked_count(path: str, info: records.RecordFileInfo) -> int:
    """Returns the number of records of the metadata, compared with the index if there is one."""
    index = record_index.find(path)
    if index is not None and index.num_records != info.instances:
        raise ValueError(
            f"{info.metadata_file} says that {path} has {info.instances} records, but it has "
            f"{index.num_records}: one of them was changed. Create the records again"
        )
    return info.instances


def check_first_record(path: str, features: Features, flag_of: dict[str, str]) -> None:
    """Checks that the first record of a file has the expected features.

    Args:
        path: the file.
        features: name → shape and type of each feature.
        flag_of: feature name → the flag that sets its length, for the error message.

    Raises:
        ValueError: the record is damaged, or a feature is missing or has a different length; the
            message names both lengths.
    """
    created = "Was it created by create_pretraining_data.py?"
    try:
        example = tf.train.Example.FromString(next(records.read_records(path), b""))
    except DecodeError:
        raise ValueError(f"{path}: its records are not tf.train.Examples. {created}") from None
    stored = example.features.feature
    for name, feature in features.items() if stored else ():
        if name not in stored:
            found = ", ".join(sorted(stored))
            raise ValueError(
                f"{path}: its records have no feature {name!r}, only {found}. {created}"
            )
        length = len(stored[name].float_list.value or stored[name].int64_list.value)
        expected = int(np.prod(feature.shape))
        if length != expected:
            flag = flag_of.get(name, name)
            raise ValueError(
                f"{path}: {name} has {length} values, but --{flag}={expected}. Pass "
                f"--{flag}={length}, or create the records again with --{flag}={expected}."
            )


def warn_of_repeated_reading(record_files: Sequence[RecordFile]) -> None:
    """Logs which files every process of a cluster has to read whole, and what changes that."""
    compressed = [file.path for file in record_files if file.is_gzip]
    if compressed:
        logging.warning(
            "%s: compressed with gzip, so every process reads and decompresses all of it, instead "
            "of the records of its own rows. Use uncompressed records: `gzip -dc FILE > NEW_FILE`, "
            "or create_pretraining_data.py without --compression.",
            name_files(compressed),
        )
    others = [file.path for file in record_files if not file.is_gzip]
    if without := [path for path in others if not records.has_places(path)]:
        logging.warning(
            "%s: remote and without an index in %s, so every process reads all of it, instead of "
            "the records of its own rows. create_pretraining_data.py writes indexes: copy the "
            "folder with the records, or run albert inspect-records --write_index.",
            name_files(without),
            os.path.dirname(record_index.path_of(without[0])),
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


class Checksums:
    """The checksums of record files, each of which is computed once from all bytes.

    A checksum that the data program stored beside the records is used if it is valid for the file
    (see `record_checksums`). Other files, such as those of Google's program and copies with a new
    modification time, are read; a file in the folder of the run keeps their checksums, so that they
    are not read again when the run is resumed.

    Args:
        output_dir: folder of the run.

    Raises:
        ValueError: the file in the folder is damaged.
    """

    def __init__(self, output_dir: str) -> None:
        self._path = os.path.join(output_dir, CHECKSUMS_FILE)
        self._kept: dict[str, dict[str, Any]] = {}  # absolute path → entry
        if files.exists(self._path):
            self._kept = files.read_json(self._path, {FILES: dict[str, dict]})[FILES]
        self._found: dict[str, str] = {}  # path → checksum

    def of(self, record_files: Sequence[RecordFile]) -> str:
        """Returns a SHA-256 of the records in hexadecimal, independent of where the files are."""
        paths = [file.path for file in record_files if file.path not in self._found]
        with ThreadPoolExecutor(_READERS) as pool:  # hashing releases the lock of the interpreter
            self._found |= zip(paths, pool.map(self._find, paths), strict=True)
            missing = [path for path in paths if not self._found[path]]
            if missing:
                logging.info("%s: reading all bytes once for a checksum", name_files(missing))
            for path, checksum in zip(
                missing, pool.map(record_checksums.compute, missing), strict=True
            ):
                self._found[path] = checksum
                self._kept[run_record.absolute(path)] = record_checksums.describe(path, checksum)
        listed = " ".join(self._found[file.path] for file in record_files)
        return hashlib.sha256(listed.encode()).hexdigest()

    def _find(self, path: str) -> str:
        """Returns the checksum of a file if it is known, or else ""."""
        recorded = self._kept.get(run_record.absolute(path))
        kept = record_checksums.valid(path, recorded) if recorded else None
        return kept or record_checksums.find(path) or ""

    def keep(self) -> None:
        """Writes the checksums of the files that had to be read to the folder of the run."""
        if self._kept:
            files.write_json(self._path, {FILES: self._kept})


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
    batch = _parse_example(serialized, features)
    tf.debugging.Assert(_is_in_range(batch, features), ["a record has values out of range"])
    return {
        name: tf.cast(value, tf.int32) if value.dtype == tf.int64 else value
        for name, value in batch.items()
    }


def parse_first(path: str, features: Features, count: int) -> dict[str, tf.Tensor]:
    """Returns the first records of a file, parsed, or all if there are fewer.

    Raises:
        ValueError: a record is damaged or has values out of range: of another vocabulary, for
            example. The message names the file and the value.
        tf.errors.InvalidArgumentError: a record has not the features.
    """
    serialized = list(itertools.islice(records.read_records(path), count))
    values = _parse_example(serialized, features)
    for name, feature in features.items():
        found = values[name].numpy()
        wrong = found[(found < 0) | (found >= feature.limit)] if feature.limit else found[:0]
        if wrong.size:
            expected = f"expected 0 to {feature.limit - 1} ({feature.limit_hint})"
            raise ValueError(f"{path}: {name} contains {wrong.flat[0]}, {expected}")
    return parse(serialized, features)


def _parse_example(serialized: Any, features: Features) -> dict[str, tf.Tensor]:
    wanted = {name: tf.io.FixedLenFeature(f.shape, f.dtype) for name, f in features.items()}
    batch: dict[str, tf.Tensor] = tf.io.parse_example(serialized, wanted)
    return batch


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

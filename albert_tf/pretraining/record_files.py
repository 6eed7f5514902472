"""Finds pre-training record files, and counts, checks and parses their records.

Shapes: B batch size.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging
from google.protobuf.message import DecodeError
from tqdm import tqdm

from albert_tf import files, huggingface_tokenizer
from albert_tf.checkpoints import finding, run_record
from albert_tf.checkpoints.run_record import TrainedWith
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
_MAX_LOGGED_NUMBERS = 20  # record numbers in a log message
_NO_RECORD = "{}: contains no usable record. Omit the file, or create it again."


@dataclasses.dataclass(frozen=True)
class RecordFile:
    """A TFRecord file.

    Attributes:
        path: path of the file.
        num_records: number of usable records.
        is_gzip: whether the file is gzip-compressed.
        damaged: indices, starting at 0, of corrupt records to skip, if the file was scanned and is
            damaged; it may be unreadable after its last usable record. None if all records are
            expected to be usable.
    """

    path: str
    num_records: int
    is_gzip: bool = False
    damaged: tuple[int, ...] | None = None


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


def scan_record_files(paths: Sequence[str], features: Features) -> list[RecordFile]:
    """Reads all records, and returns the files with the corrupt records to skip.

    A record is skipped if its content does not match its checksum, is not a `tf.train.Example` with
    the given features, or has values out of range or no tokens. Records after one with a corrupt
    length cannot be read. All of this is logged.

    Args:
        paths: the files.
        features: name → shape and type of each feature.

    Raises:
        ValueError: a file has no usable record; the message names it.
    """
    metadata = records.read_metadata(paths)
    record_files = []
    for path in tqdm(paths, desc="checking records", unit="file", disable=None):
        total, damages, end = _scan(path, features)
        if total == len(damages):
            reason = end or next(iter(damages.values()), "")
            raise ValueError(f"{_NO_RECORD.format(path)} {reason}".strip())
        skipped = tuple(damages) if damages or end else None
        record_files.append(RecordFile(path, total - len(damages), records.is_gzip(path), skipped))
        if damages:
            numbers = ", ".join(str(number + 1) for number in [*damages][:_MAX_LOGGED_NUMBERS])
            more = ", …" if len(damages) > _MAX_LOGGED_NUMBERS else ""
            first, reason = next(iter(damages.items()))
            text = "%s: %d of %d records are damaged and skipped: %s%s. Record %d: %s."
            arguments = len(damages), total, numbers, more, first + 1, reason
            logging.warning(text, path, *arguments)
        if end:
            lost = metadata[path].instances - total if path in metadata else "an unknown number"
            logging.warning("%s: the records after %d are lost (%s). %s", path, total, lost, end)
    return record_files


def _scan(path: str, features: Features) -> tuple[int, dict[int, str], str]:
    """Reads and checks all records of a file.

    Returns:
        The number of records that can be read; record index, starting at 0, → reason for each
        corrupt record; and why reading stopped, or "" at the end of the file.
    """
    total = 0
    damages: dict[int, str] = {}
    try:
        for block in records.read_checked_blocks(path):
            sound = [content for content in block if content is not None]
            is_sound = parses(sound, features)
            for number, content in enumerate(block, total):
                if content is None:
                    damages[number] = "its content does not match its checksum"
                elif not is_sound and (reason := _damage_of(content, features)):
                    damages[number] = reason
            total += len(block)
    except ValueError as error:
        return total, damages, str(error)
    return total, damages, ""


def parses(contents: list[bytes], features: Features) -> bool:
    """Returns whether all records are Examples with these features and values in range."""
    try:
        if contents:
            parse(contents, features)
    except UNPARSABLE:
        return False
    return True


def _damage_of(content: bytes, features: Features) -> str:
    """Returns why a record is unusable, or "" if it is usable."""
    try:
        values = _parse_example([content], features)
    except UNPARSABLE:
        return "it is not a tf.train.Example with the expected features"
    for name, feature in features.items():
        row = values[name].numpy()
        wrong = row[(row < 0) | (row >= feature.limit)] if feature.limit else row[:0]
        if wrong.size:
            hint = f" ({feature.limit_hint})" if feature.limit_hint else ""
            return f"{name} contains {wrong.flat[0]}, expected 0 to {feature.limit - 1}{hint}"
        if feature.is_mask and not row.any():
            return f"it has no tokens ({name} is all 0)"
    return ""


def find_damage(files: Sequence[RecordFile], features: Features) -> str:
    """Returns a message about the first corrupt record of the files, or "" if there is none."""
    for file in files:
        if file.damaged is None:
            _, damages, end = _scan(file.path, features)
            for number, reason in damages.items():
                return (
                    f"{file.path}, record {number + 1}: damaged: {reason}. Create the file again, "
                    "or skip damaged records with --skip_bad_records."
                )
            if end:
                return end
    return ""


def check_features(path: str, features: Features, flag_of: dict[str, str]) -> None:
    """Checks that one of the first records of a file has the expected features.

    A single valid record is sufficient, because corrupt records are found later.

    Args:
        path: the file.
        features: name → shape and type of each feature.
        flag_of: feature name → the flag that sets its length, for the error message.

    Raises:
        ValueError: a feature is missing or has a different length; the message names both lengths.
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


def misfit(content: bytes, features: Features, flag_of: dict[str, str]) -> str:
    """Returns why a record does not have these features, or "" if it does."""
    try:
        example = tf.train.Example.FromString(content)
    except DecodeError:
        return (
            "its records are not tf.train.Examples. Was it created by create_pretraining_data.py?"
        )
    for name, feature in features.items():
        stored = example.features.feature.get(name)
        if stored is None:
            return (
                f"its records have no feature {name!r}, only "
                f"{', '.join(sorted(example.features.feature))}. Was it created by "
                "create_pretraining_data.py?"
            )
        values = stored.float_list.value or stored.int64_list.value
        expected = int(np.prod(feature.shape))
        if len(values) != expected:
            flag = flag_of.get(name, name)
            return (
                f"{name} has {len(values)} values, but --{flag}={expected}. Pass "
                f"--{flag}={len(values)}, or create the records again with --{flag}={expected}."
            )
    return ""


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


def find_vocabulary(record_files: Sequence[RecordFile]) -> TrainedWith:
    """Returns the fingerprint of the vocabulary of records, if their metadata contains it.

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
        return TrainedWith({})
    vocabulary = metadata[0].vocabulary
    text = run_record.describe_vocabulary(vocabulary["size"], vocabulary["checksum"])
    identity = {run_record.VOCABULARY: text}
    if run_record.LOWER_CASE in vocabulary:
        identity[run_record.LOWER_CASE] = str(vocabulary[run_record.LOWER_CASE])
    return TrainedWith(identity, {run_record.VOCABULARY: _name_vocabulary(metadata[0])})


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

"""Pre-training record files: counts, checks and parses their records, and names the damaged one.

Shapes: B batch size.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import tensorflow as tf
from absl import logging
from google.protobuf.message import DecodeError

from albert_tf import files
from albert_tf.data import records
from albert_tf.data.record_metadata import FoundRecords, RecordFileInfo
from albert_tf.pretraining.features import Features
from albert_tf.pretraining.metadata_checks import naming_store, unanswered
from albert_tf.training.task import Batch

# What TensorFlow raises for records that cannot be parsed. Its message includes their bytes, which
# may not be valid text.
UNPARSABLE = (tf.errors.InvalidArgumentError, UnicodeDecodeError)
# What it raises when a store does not answer, after it has asked again for minutes.
UNANSWERED = (tf.errors.UnavailableError, tf.errors.DeadlineExceededError, tf.errors.AbortedError)

# Feature → flag that sets its length.
_FLAG_OF_FEATURE = {
    name: width for name, (_, width) in records.FEATURES.items() if isinstance(width, str)
}
CHECKED_AT_ONCE = 16  # files, because object stores answer slowly
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
        is_masked: whether its first record has masked tokens, if the model needs them.
    """

    path: str
    num_records: int
    checksum: str
    metadata: RecordFileInfo | None = None
    is_masked: bool = True


def check_files(
    found: FoundRecords, features: Features, only_first: bool = False
) -> list[RecordFile]:
    """Returns the files with their numbers of records, from the metadata or else counted.

    Files without records are left out, with a warning: the outputs of a short text, or marks such
    as Hadoop's `_SUCCESS`. Google's program reads them as well.

    Args:
        found: the files, with their metadata.
        features: what the first record of each is expected to contain: name → shape and type.
        only_first: whether of the files with metadata only the first one is opened. The checksums
            of the others are then those of their metadata.

    Raises:
        ValueError: no file has a record; or one is not a TFRecord file, its first record is damaged
            or has not the features or other lengths or values, or any record is damaged of a file
            without metadata. The message names the file, and what was expected and found.
        InterruptedRunError: the store with the files does not answer.
    """
    known = {path: info for path, info in found.items() if info and info.instances}
    opened = [path for path in found if found[path] is None]
    if opened:
        logging.info("%s: no metadata next to it, so all records are read once", name_paths(opened))
    opened += list(known)[:1] if only_first else known
    with ThreadPoolExecutor(CHECKED_AT_ONCE) as pool:
        files_read = pool.map(lambda path: _read_file(path, found[path], features), opened)
        checked = dict(zip(opened, files_read, strict=True))
    for path, info in known.items():
        if path not in checked:
            checked[path] = RecordFile(path, info.instances, info.checksum, info)
    with_records = [file for path in found if (file := checked.get(path))]
    empty = [path for path in found if not checked.get(path)]
    if not with_records:
        raise ValueError(f"{empty[0]}: contains no record. Create the records again.")
    if empty:
        logging.warning("%s: contains no record, and is left out", name_paths(empty))
    if unmasked := [file.path for file in with_records if not file.is_masked]:
        logging.warning(
            "%s: the first record has no masked tokens (created with --masked_lm_prob=0?): the "
            "model learns only the sentence objective from such records. Set --dynamic_masking to "
            "mask tokens during training.",
            name_paths(unmasked),
        )
    return with_records


def _read_file(path: str, info: RecordFileInfo | None, features: Features) -> RecordFile | None:
    """Returns a file whose first record fits; None if it is empty."""
    with naming_store(path):
        if info is None:
            return _read_whole_file(path, features)
        first = records.read_first_record(path)
    if first is None:
        return None
    is_masked = _check_first_record(path, first, features)
    checksum = hashlib.sha256(first + info.checksum.encode()).hexdigest()
    return RecordFile(path, info.instances, checksum, info, is_masked)


def _read_whole_file(path: str, features: Features) -> RecordFile | None:
    with contextlib.closing(records.read_records(path)) as contents:
        first = next(contents, None)
        if first is None:
            return None
        is_masked = _check_first_record(path, first, features)
        checksum = hashlib.sha256(first)
        num_records = 1
        for content in contents:
            num_records += 1
            checksum.update(content)
    return RecordFile(path, num_records, checksum.hexdigest(), is_masked=is_masked)


def _check_first_record(path: str, record: bytes, features: Features) -> bool:
    """Checks that a record has the expected features; returns `RecordFile.is_masked`.

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
    weights = "masked_lm_weights"
    return weights not in features or any(stored[weights].float_list.value)


def name_paths(paths: Sequence[str]) -> str:
    """Returns the first path and the number of the others."""
    others = len(paths) - 1
    return paths[0] + (f" and {others} more" if others else "")


def name_files(files: Sequence[RecordFile]) -> str:
    """Returns the path of the first file and the number of the others."""
    return name_paths([file.path for file in files])


def checksum_of(record_files: Sequence[RecordFile]) -> str:
    """Returns a SHA-256 of the records in hexadecimal, independent of where the files are."""
    return hashlib.sha256(" ".join(file.checksum for file in record_files).encode()).hexdigest()


def metadata_checksum(record_files: Sequence[RecordFile]) -> str:
    """Returns a SHA-256 of what is known of the records without opening files with metadata."""
    known = (
        f"{file.num_records} {file.metadata.checksum if file.metadata else file.checksum}"
        for file in record_files
    )
    return hashlib.sha256("\n".join(known).encode()).hexdigest()


def parse(serialized: tf.Tensor, features: Features) -> Batch:
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


@contextlib.contextmanager
def damage_named(record_files: Iterable[RecordFile]) -> Iterator[None]:
    """Converts TensorFlow's errors about records into one line that names the file.

    Args:
        record_files: the files of a dataset of this module, or those that it has opened so far.

    Raises:
        ValueError: a record is corrupt, which names the file and the record, or it has not the
            expected features, which names the files.
        FileNotFoundError: a file was removed meanwhile.
        InterruptedRunError: the store with the files does not answer.
    """
    try:
        yield
    except tf.errors.DataLossError:  # which does not say in which file
        for path in _last_first(record_files):
            records.count_records(path)
        raise
    except UNPARSABLE:
        raise ValueError(
            f"{name_files(list(record_files))}: a record is not a tf.train.Example with the "
            "expected features"
        ) from None
    except tf.errors.NotFoundError:
        missing = [path for path in _last_first(record_files) if not files.is_file(path)]
        if not missing:
            raise
        raise FileNotFoundError(
            f"{missing[0]}: this record file was removed or renamed since the run was started. Put "
            "it back and run the same command again: the run resumes from its last checkpoint."
        ) from None
    except UNANSWERED as error:
        raise unanswered(name_files(list(record_files)), error) from None


def _last_first(record_files: Iterable[RecordFile]) -> list[str]:
    """Returns the paths of files without duplicates, those that were opened last first."""
    return list(dict.fromkeys(file.path for file in reversed(list(record_files))))

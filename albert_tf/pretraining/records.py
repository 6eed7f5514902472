"""The records of a run: their files, what is read from them, how they are masked, and their record.

`run.json` has the vocabulary that they were created with, as far as their metadata tell it, and a
checksum of their contents, which finds what their metadata do not tell: metadata, size and first
record of a file stay as they are when somebody exchanges records behind the first one. So the bytes
are compared as well: all of them up to `READ_BYTES`, and of more data evenly spaced blocks, because
a start must not read terabytes.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from absl import logging

from albert_tf import files
from albert_tf.checkpoints import model_folder, run_record
from albert_tf.checkpoints.model_folder import ModelFolder
from albert_tf.checkpoints.run_record import FileRecord, RunRecord
from albert_tf.data.record_metadata import FoundRecords, RecordFileInfo
from albert_tf.data.settings import MaskingSettings
from albert_tf.model.tokenization import checksum_of
from albert_tf.pretraining import dynamic_masking, record_files
from albert_tf.pretraining.dynamic_masking import DynamicMasking
from albert_tf.pretraining.features import Features, without_masks
from albert_tf.pretraining.record_files import RecordFile

BLOCK_BYTES = 1 << 20
READ_BYTES = 512 * BLOCK_BYTES  # half a second to a second


class Records(NamedTuple):
    """The records to train or to evaluate on.

    Attributes:
        files: the record files.
        features: what to read from them.
        masking: masks the batches; None if the records contain masked tokens.
    """

    files: Sequence[RecordFile]
    features: Features
    masking: DynamicMasking | None = None

    @property
    def counts(self) -> list[int]:
        """The number of records of each file."""
        return [file.num_records for file in self.files]

    @property
    def num_records(self) -> int:
        """The number of records."""
        return sum(self.counts)


def records_with_masks(
    found: FoundRecords, features: Features, only_first: bool = False
) -> Records:
    """Returns records that contain masked tokens, after checking them.

    Args:
        found: the record files.
        features: what the first record of each is expected to contain.
        only_first: whether only the first file is opened; see `check_files`.

    Raises:
        ValueError: a file is damaged, or its records have other lengths or values.
    """
    return Records(record_files.check_files(found, features, only_first), features)


def records_to_mask(
    found: FoundRecords,
    features: Features,
    settings: MaskingSettings,
    seed: int,
    is_trained_on: bool = False,
    only_first: bool = False,
) -> Records:
    """Returns records that are masked when they are read, after checking them.

    Args:
        found: the record files.
        features: what records with masks are expected to contain.
        settings: how tokens are chosen.
        seed: random seed.
        is_trained_on: whether the records must have no masks; records that are only evaluated may
            have them, and are then evaluated as they are.
        only_first: whether only the first file is opened; see `check_files`.

    Raises:
        ValueError: see `records_with_masks`; or the records contain masked tokens.
    """
    masking = dynamic_masking.for_records(found, settings, seed)
    if masking is not None:
        features = without_masks(features)
    elif is_trained_on:
        raise ValueError(
            "--dynamic_masking: expected records that create_pretraining_data.py wrote with "
            "--masked_lm_prob=0, and a metadata file next to them that says so, but "
            f"{next(iter(found))} contains masked tokens or has no metadata"
        )
    return Records(record_files.check_files(found, features, only_first), features, masking)


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


def keep_vocabulary(record_files: Sequence[RecordFile], folder: str, weights: str) -> None:
    """Copies the vocabulary of records into the folder of a run, if it is found.

    The metadata contains its file name and checksum, but not its folder. It is looked for beside
    the metadata, and in the folder of the initial weights.

    Args:
        record_files: the records.
        folder: the folder of the run.
        weights: the folder of the initial weights.
    """
    of_model = ModelFolder(weights).tokenizers
    for info in (file.metadata for file in record_files if file.metadata):
        folder_of_records, name = os.path.dirname(info.metadata_file), info.vocabulary["file"]
        beside = files.inside(folder_of_records, name, info.metadata_file, is_name=True)
        for path in filter(files.is_file, (beside, *of_model)):
            if checksum_of(path) == info.vocabulary["checksum"]:
                model_folder.keep_vocabulary(path, path.endswith(".model"), folder)
                return


def _name_vocabulary(info: RecordFileInfo) -> str:
    return f"{info.vocabulary['file']} (according to {run_record.absolute(info.metadata_file)})"


def describe_contents(paths: Sequence[str]) -> dict[str, FileRecord]:
    """Returns the entry of a run's record for the contents of its record files.

    The digest depends on their bytes and their order, not on their folder. There is no entry for
    remote files, of which each block would be a request.

    Args:
        paths: the record files.
    """
    if any(map(files.is_remote, paths)):
        return {}
    sizes = list(map(files.file_size, paths))
    share = min(1.0, READ_BYTES / max(sum(sizes), 1))  # of each file
    # At least two blocks of a file are read, so that of thousands of files only some are.
    every = 1 if share == 1 else math.ceil(2 * len(paths) * BLOCK_BYTES / READ_BYTES)
    contents = hashlib.sha256()
    for number, (path, size) in enumerate(zip(paths, sizes, strict=True)):
        contents.update(f"{size} ".encode())
        if number % every:
            continue
        for block in _blocks(path, size, share):
            contents.update(block)
    what = "whole" if share == 1 else f"{share:.2%} of the bytes"
    return {run_record.RECORD_CONTENTS: FileRecord(f"{what}, sha256 {contents.hexdigest()[:16]}")}


def _blocks(path: str, size: int, share: float) -> Iterator[bytes]:
    """Yields a share of a file's blocks, evenly spaced from the first to the last one."""
    last = max(math.ceil(size / BLOCK_BYTES) - 1, 0)
    steps = max(math.ceil(last * share), 1)
    with files.open_binary(path) as stream:
        for step in range(steps + 1 if last else 1):
            stream.seek(last * step // steps * BLOCK_BYTES)
            yield stream.read(BLOCK_BYTES)

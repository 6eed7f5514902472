"""The vocabulary that records were created with, as far as their metadata tells it."""

from __future__ import annotations

import os
from collections.abc import Sequence

from absl import logging

from albert_tf import files
from albert_tf.checkpoints import model_folder, run_record
from albert_tf.checkpoints.model_folder import ModelFolder
from albert_tf.checkpoints.run_record import FileRecord, RunRecord
from albert_tf.data.record_metadata import RecordFileInfo
from albert_tf.model.tokenization import checksum_of
from albert_tf.pretraining.record_files import RecordFile


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

"""Finds record files, and checks what their metadata say, before TensorFlow is imported.

A store that does not answer is named in one way, also where its records are read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from absl import logging

from albert_tf import files
from albert_tf.data.record_metadata import FoundRecords, find_records
from albert_tf.data.records import refuse_other_kinds
from albert_tf.model.config import AlbertConfig
from albert_tf.model.objectives import OBJECTIVES, SOP
from albert_tf.training.interruption import InterruptedRunError

# Those that are the same when the command is run again: of what is read, of access, of this code.
_LASTING = (FileNotFoundError, PermissionError, ValueError, LookupError, TypeError, AttributeError)


def find_record_files(patterns: str, flag: str) -> FoundRecords:
    """Returns the record files of a flag, with their metadata.

    Raises:
        ValueError: no file matches, TensorFlow cannot read from this kind of store, or the first
            local file without metadata is of another kind.
        InterruptedRunError: the store does not answer.
    """
    with naming_store(patterns):
        found = find_records(patterns, flag)
    for path in filter(files.is_remote, found):
        if not path.startswith("gs://"):
            raise ValueError(
                f"{flag}: {path}: TensorFlow reads records from gs:// and from local folders. "
                "Copy these, and their metadata, to a local folder first"
            )
    unknown = [path for path, info in found.items() if info is None and not files.is_remote(path)]
    for path in unknown[:1]:  # all are read once TensorFlow has been imported
        refuse_other_kinds(path)
    return found


def find_objective(found: FoundRecords) -> str:
    """Returns the sentence objective that records were created for; `sop` if it is not known.

    Raises:
        ValueError: it is not registered here. The message names the metadata file.
    """
    for info in filter(None, found.values()):
        name: str = info.settings.get("sentence_objective", SOP)
        if name not in OBJECTIVES:
            raise ValueError(
                f"{info.metadata_file}: the records were created for sentence_objective={name!r}, "
                f"expected one of {', '.join(OBJECTIVES)}, or register it before training"
            )
        logging.info("Sentence objective of the records: %s", name)
        return name
    return SOP


def check_records(found: FoundRecords, objective: str, config: AlbertConfig) -> None:
    """Checks vocabulary and sentence objective of the records that have metadata.

    Args:
        found: the records.
        objective: abbreviation of the sentence objective to train.
        config: the model's config.

    Raises:
        ValueError: they do not fit the model. The message names the file.
    """
    for path, info in found.items():
        if info is None:
            continue
        theirs = info.settings.get("sentence_objective", objective)
        if theirs != objective:
            raise ValueError(
                f"{path} was created for sentence_objective={theirs}, but the model is one of "
                f"sentence_objective={objective}. Pass --sentence_objective={theirs}, or create "
                f"the records again with --sentence_objective={objective}."
            )
        size = info.vocabulary["size"]
        if size > config.vocab_size:
            raise ValueError(
                f"{path} was created with a vocabulary of {size} entries, but the model has "
                f"vocab_size={config.vocab_size}: ids would be out of range. Use the config that "
                f"belongs to {info.vocabulary['file']}."
            )
        if not 0 <= info.mask_id < size:
            raise ValueError(
                f"{info.metadata_file}: mask_id is {info.mask_id}, expected 0 to {size - 1}, an id "
                "of the vocabulary. Create the records again"
            )


def unanswered(what: str, error: Exception) -> InterruptedRunError:
    """Returns the error that ends a run because a store does not answer.

    Args:
        what: the record files.
        error: what the client of the store raised, after the retries that are its own.
    """
    first_line = (str(error).strip().splitlines() or [""])[0]
    reason = ": ".join(filter(None, (type(error).__name__, first_line[:300])))
    return InterruptedRunError(
        f"{what}: the store does not answer ({reason}). "
        "Run the same command again: a run that has begun resumes from its last checkpoint."
    )


@contextlib.contextmanager
def naming_store(path: str) -> Iterator[None]:
    """Converts the errors with which the client of a remote path gives up.

    Raises:
        InterruptedRunError: the store does not answer. Errors that a retry does not change, such as
            that of a missing file, are those of the client.
    """
    try:
        yield
    except _LASTING:
        raise
    except Exception as error:  # the client of each store has its own
        if not files.is_remote(path):
            raise
        raise unanswered(path, error) from error

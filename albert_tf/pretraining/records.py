"""The records of a run: their files, what is read from them, and how they are masked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from albert_tf.data.record_metadata import FoundRecords
from albert_tf.data.settings import MaskingSettings
from albert_tf.pretraining import dynamic_masking, record_files
from albert_tf.pretraining.dynamic_masking import DynamicMasking
from albert_tf.pretraining.features import Features, without_masks
from albert_tf.pretraining.record_files import RecordFile


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

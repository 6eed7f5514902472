"""Compares pre-training records with the model by their metadata, without TensorFlow."""

from __future__ import annotations

import dataclasses

from absl import logging

from albert_tf import files
from albert_tf.data import records
from albert_tf.data.records import RecordFileInfo
from albert_tf.model.config import AlbertConfig
from albert_tf.model.objectives import OBJECTIVES, SOP
from albert_tf.pretraining import Settings


def complete(settings: Settings) -> Settings:
    """Returns completed settings with the sentence objective, after checks of lengths and records.

    Raises:
        ValueError: the model has no positions for `max_seq_length`, or the records were created for
            an unknown or another sentence objective, or with a larger vocabulary than the model's.
    """
    config = AlbertConfig.from_json_file(settings.albert_config_file or "")
    config.check_length(settings.max_seq_length)
    found = read(settings.input_file, "--input_file")
    objective = settings.sentence_objective or find_objective(found)
    if settings.do_eval and settings.eval_input_file:
        found |= read(settings.eval_input_file, "--eval_input_file")
    check(found, objective, config)
    return dataclasses.replace(settings, sentence_objective=objective)


def read(patterns: str, flag: str) -> dict[str, RecordFileInfo]:
    """Returns path → metadata of the record files that match the patterns of a flag."""
    paths = records.exclude_metadata(files.expand_patterns(patterns, flag))
    return records.read_metadata(paths)


def find_objective(metadata: dict[str, RecordFileInfo]) -> str:
    """Returns the sentence objective that records were created for; `sop` if it is not known.

    Args:
        metadata: path → metadata.

    Raises:
        ValueError: it is not registered here. The message names the metadata file.
    """
    for info in metadata.values():
        name: str = info.settings.get("sentence_objective", SOP)
        if name not in OBJECTIVES:
            raise ValueError(
                f"{info.metadata_file}: the records were created for sentence_objective={name!r}, "
                f"expected one of {', '.join(OBJECTIVES)}, or register it before training"
            )
        logging.info("Sentence objective of the records: %s", name)
        return name
    return SOP


def check(metadata: dict[str, RecordFileInfo], objective: str, config: AlbertConfig) -> None:
    """Checks vocabulary and sentence objective of the records that have metadata.

    Args:
        metadata: path → metadata.
        objective: abbreviation of the sentence objective to train.
        config: the model's config.

    Raises:
        ValueError: they do not fit the model. The message names the file.
    """
    for path, info in metadata.items():
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

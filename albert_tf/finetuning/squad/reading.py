"""Reads the questions of each split, from files in SQuAD's format or from rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from albert_tf.finetuning.split_reading import read_splits
from albert_tf.finetuning.split_tables import Layout, MissingSplitError, SplitTables
from albert_tf.finetuning.splits import DEV, TRAIN
from albert_tf.finetuning.squad.question_files import read_squad
from albert_tf.finetuning.squad.question_rows import open_rows, read_rows
from albert_tf.finetuning.squad.questions import SquadData, SquadExample, refuse_duplicate_ids
from albert_tf.finetuning.squad.settings import Settings
from albert_tf.tables import Table
from albert_tf.tables.splits import find_files

_LAYOUT = Layout(configurations=("plain_text", "squad_v2"))  # of SQuAD 1.1 and 2.0 on the Hub


def read_data(settings: Settings, given: Mapping[str, Table] | None = None) -> dict[str, SquadData]:
    """Returns the questions of each split; "dev" and "test" are both `predict_file`.

    With `dev_fraction`, "dev" is a part of the training questions: all those of some contexts. Then
    "test" is the `predict_file` if there is one, which must have no answers.

    Args:
        settings: the files, or their folder.
        given: split → rows that are read instead of files; None to read the files.

    Raises:
        ValueError, OSError: a file is not specified or invalid, or has no answers to evaluate on.
    """
    answered = settings.do_eval or settings.do_predict
    unlabeled: list[SquadData] = []

    def read(split: str) -> SquadData:
        data = _read(settings, split, given)
        if split == DEV and settings.dev_fraction and not data.has_labels:
            unlabeled.append(data)
            raise MissingSplitError(f"{data.path} has no answers")
        return data

    splits = [*([TRAIN] if settings.do_train else []), *([DEV] if answered else [])]
    data = read_splits(splits, settings.dev_fraction, read, group_of=_context_of)
    if answered:
        data[DEV] = _checked_dev(settings, data[DEV])
        data["test"] = unlabeled[0] if unlabeled else data[DEV]
    return data


def _context_of(example: SquadExample) -> str:
    return example.context


def _checked_dev(settings: Settings, questions: SquadData) -> SquadData:
    """Returns the questions to evaluate on, if that is possible."""
    if settings.do_eval and not questions.has_labels:
        raise ValueError(f"--do_eval: {questions.path} has no answers to evaluate on")
    if settings.dev_fraction:  # in training data, ids may occur twice
        refuse_duplicate_ids(questions.path, questions.examples)
    if settings.mixed_segmentation is not None:
        return dataclasses.replace(questions, is_chinese=settings.mixed_segmentation)
    return questions


def _read(settings: Settings, split: str, given: Mapping[str, Table] | None) -> SquadData:
    """Returns the questions of a split.

    Args:
        settings: the files, or their folder.
        split: "train" or "dev".
        given: see `read_data`.
    """
    is_training = split == TRAIN
    if given is not None:
        table, _ = SplitTables(given=given).open(split, _LAYOUT)
        return read_rows(table, is_training)
    flag = "train_file" if is_training else "predict_file"
    named = settings.train_file if is_training else settings.predict_file
    if named:
        paths = find_files(named, f"--{flag}")
    elif settings.data_dir:
        paths, _ = SplitTables(settings.data_dir).find(split, _LAYOUT)
    else:
        phase = "do_train" if is_training else "do_predict" if settings.do_predict else "do_eval"
        raise MissingSplitError(f"--{phase} requires --{flag}, a file of questions, or --data_dir")
    rows = open_rows(paths)
    return read_squad(paths[0], is_training) if rows is None else read_rows(rows, is_training)

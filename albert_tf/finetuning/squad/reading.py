"""Reads the questions of each split, from files in SQuAD's format or from rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.finetuning.split_tables import Layout, SplitTables
from albert_tf.finetuning.squad import Settings
from albert_tf.finetuning.squad.question_files import read_squad
from albert_tf.finetuning.squad.question_rows import open_rows, read_rows
from albert_tf.finetuning.squad.questions import SquadData
from albert_tf.tables import Table
from albert_tf.tables.splits import find_files

_CONFIGURATIONS = ("plain_text", "squad_v2")  # of SQuAD 1.1 and 2.0 on the Hub


def read_data(
    settings: Settings,
    trained: RunFolder | None = None,
    given: Mapping[str, Table] | None = None,
) -> dict[str, SquadData]:
    """Returns the questions of each split; "dev" and "test" are both `predict_file`.

    Args:
        settings: the files, or their folder.
        trained: not used.
        given: split → rows that are read instead of files; None to read the files.

    Raises:
        ValueError, OSError: a file is not specified or invalid, or has no answers to evaluate on.
    """
    data = {}
    if settings.do_train:
        data["train"] = _read(settings, "train", "do_train", given)
    if settings.do_eval or settings.do_predict:
        phase = "do_predict" if settings.do_predict else "do_eval"
        questions = _read(settings, "dev", phase, given)
        if settings.do_eval and not questions.has_labels:
            raise ValueError(f"--do_eval: {questions.path} has no answers to evaluate on")
        if settings.mixed_segmentation is not None:
            questions = dataclasses.replace(questions, is_chinese=settings.mixed_segmentation)
        data["dev"] = data["test"] = questions
    return data


def _read(
    settings: Settings, split: str, phase: str, given: Mapping[str, Table] | None
) -> SquadData:
    """Returns the questions of a split.

    Args:
        settings: the files, or their folder.
        split: "train" or "dev".
        phase: the flag that asks for it.
        given: see `read_data`.
    """
    is_training = split == "train"
    layout = Layout(configurations=_CONFIGURATIONS, has_dev_fraction=False)
    if given is not None:
        table, _ = SplitTables(given=given).open(split, layout)
        return read_rows(table, is_training)
    flag = "train_file" if is_training else "predict_file"
    named = settings.train_file if is_training else settings.predict_file
    if named:
        paths = find_files(named, f"--{flag}")
    elif settings.data_dir:
        paths, _ = SplitTables(settings.data_dir).find(split, layout)
    else:
        raise ValueError(f"--{phase} requires --{flag}, a file of questions, or --data_dir")
    rows = open_rows(paths)
    return read_squad(paths[0], is_training) if rows is None else read_rows(rows, is_training)

"""Reads the examples of classification and regression tasks; see `read_data`."""

from __future__ import annotations

import dataclasses
import itertools
import os

from absl import logging

from albert_tf import files
from albert_tf.checkpoints import run_record
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.finetuning import rows, split_files
from albert_tf.finetuning.cells import check_name
from albert_tf.finetuning.classification import Settings, tasks
from albert_tf.finetuning.classification.columns import find_columns, is_header, refuse_example
from albert_tf.finetuning.classification.custom import labels_of, make_custom_task, recorded_labels
from albert_tf.finetuning.classification.parsing import Example, RowParser
from albert_tf.finetuning.classification.tasks import CUSTOM_TASK, ClassificationTask, Source
from albert_tf.finetuning.examples import Examples
from albert_tf.finetuning.rows import BadRowError
from albert_tf.tables import open_table


def _find_file(task: ClassificationTask, data_dir: str, split: str) -> tuple[Source, str]:
    """Returns the file of a split, in the task's folder in `data_dir` or in `data_dir` itself.

    Raises:
        FileNotFoundError: the file does not exist; the message says where it was looked for.
        ValueError: the task does not have this split, or a custom task has two files.
    """
    sources = task.splits.get(split, ())
    if not sources:
        raise ValueError(f"task {task.name} has no {split} data, only {', '.join(task.splits)}")
    folders = (task.folder, "") if task.folder else ("",)
    of_files = {os.path.join(f, source.file): source for source in sources for f in folders}
    name = split_files.find_name(data_dir, of_files, takes_first=not sources[0].is_custom)
    if name is None:
        tried = ", ".join(os.path.join(data_dir, file) for file in of_files)
        raise FileNotFoundError(
            f"no {split} data of {task.name}: none of {tried} exists. --data_dir must be the "
            f"folder that contains {task.folder or 'the files'}."
        )
    return of_files[name], os.path.join(data_dir, name)


def read_examples(
    task: ClassificationTask, data_dir: str, split: str, quoting: bool = False
) -> Examples[Example]:
    """Reads the examples of a split.

    Args:
        task: a task of the table, or a custom task.
        data_dir: parent of the task's folder, or that folder.
        split: "train", "dev" or "test".
        quoting: see `open_table`.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: there is no example, or a bad row: with too few columns (in custom tasks also
            too many), an unknown label, an empty text, or invalid JSON. The message names the file
            and the lines.
    """
    source, path = _find_file(task, data_dir, split)
    table = open_table(path, quoting=quoting)
    numbered = iter(table)
    first = next(numbered, None)
    if first is None:
        raise ValueError(f"{path}: the file is empty")
    line, row = first
    try:
        if isinstance(row, BadRowError):
            raise row
        has_header = is_header(row, source)
        columns = find_columns(source, row, has_header, split == "test")
        if has_header:
            refuse_example(row, columns, task)
    except BadRowError as error:
        raise ValueError(f"{table.place(line)}: {error}") from None
    if source.is_custom:
        logging.info("%s: the first row is %s; reading %s", path, files.quote_all(row), columns)
    # Only in custom tasks, because Google's program ignores further cells in its tasks.
    width = len(row) if source.is_custom and has_header else None
    parser = RowParser(task, split, source, columns, width, num_rows=int(has_header))
    remaining = numbered if has_header else itertools.chain([first], numbered)
    examples = [
        x for _, found in rows.parse_rows(table.place, remaining, parser.parse) for x in found
    ]
    if parser.num_skipped:
        logging.warning(
            "%s: %d rows are skipped, as in Google's program: too few columns, or no label",
            path,
            parser.num_skipped,
        )
    return Examples(path, examples, all(example.label is not None for example in examples))


def _find_task(settings: Settings, trained: RunFolder | None) -> ClassificationTask:
    """Returns the task of the settings, without labels if only the training data tells them."""
    name = settings.task_name
    if name.strip().lower() != CUSTOM_TASK:
        flags = {"is_regression": settings.is_regression, "is_multi_label": settings.is_multi_label}
        for flag, is_set in flags.items():
            if is_set:
                raise ValueError(f"--{flag} is for --task_name={CUSTOM_TASK}, not for {name}")
        return tasks.find_task(name)
    if settings.is_regression and settings.is_multi_label:
        raise ValueError("--is_regression and --is_multi_label exclude each other: pass one")
    labels = settings.labels
    if not labels and trained is not None and not settings.do_train:
        labels = recorded_labels(trained.record)
    for label in labels:
        check_name(label, f"a label of --labels or {run_record.FILE}")
    return make_custom_task(settings, labels)


def read_data(
    settings: Settings, trained: RunFolder | None = None
) -> tuple[ClassificationTask, dict[str, Examples[Example]]]:
    """Returns the task with the name `--task_name`, and the examples of each split.

    The labels of a custom task are those of the settings, or else those of the trained model unless
    it is trained now, or else those of the training data.

    Args:
        settings: the task, its data and, for a custom task, its columns and labels. The files
            train, dev and test of a custom task end in one of EXTENSIONS.
        trained: the folder of a trained model; None if there is none.

    Raises:
        FileNotFoundError: there is no file of a split, or no training data to read the labels from.
        ValueError: the task does not exist, or a file is invalid; see `read_examples`.
    """
    task = _find_task(settings, trained)
    folder, quoting = settings.data_dir, settings.quoting
    data = {}
    if not (task.labels or task.is_regression):
        try:
            data["train"] = read_examples(task, folder, "train", quoting)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{error} It is needed for the labels.") from None
        task = dataclasses.replace(task, labels=labels_of(data["train"]))
    for split in settings.splits:
        if split not in data:
            data[split] = read_examples(task, folder, split, quoting)
    return task, data

"""Defines custom classification tasks, and records the task of a trained model in a file.

A custom task is a folder with train, dev and test files: tab-separated, comma-separated or JSON
lines. Columns are found by name or index, and labels are read from the training data.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf import files
from albert_tf.checkpoints import huggingface, run_record
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.run_record import CLASSIFICATION, MULTI_LABEL, REGRESSION, RunRecord
from albert_tf.classification import tasks
from albert_tf.classification.reading import Example, is_number, read_examples
from albert_tf.classification.settings import CustomDataSettings
from albert_tf.classification.tasks import (
    ACCURACY,
    CUSTOM_TASK,
    MICRO_F1,
    ClassificationTask,
    Columns,
    Source,
)
from albert_tf.finetuning import rows
from albert_tf.finetuning.examples import Examples
from albert_tf.finetuning.rows import Column

EXTENSIONS = (".tsv", ".csv", ".jsonl", ".json", ".txt")
_CLASSIFIERS = ("", CLASSIFICATION, MULTI_LABEL, REGRESSION)  # "": not recorded


def labels_of(train: Examples[Example]) -> tuple[str, ...]:
    """Returns the labels of training data, in numerical order if they are integers, else sorted.

    Raises:
        ValueError: there are fewer than two labels or too many, or labels are fractions, which
            means a regression task.
    """
    lines = {label: row.line for row in reversed(train.examples) for label in row.labels}
    labels = sorted(lines)
    rows.check_number_of_labels(labels, train.path)
    fraction = next((label for label in labels if is_number(label) and float(label) % 1), None)
    if fraction is not None:
        raise ValueError(
            f"{train.path}, line {lines[fraction]}: label {files.quote(fraction)} is a fraction. "
            "To predict numbers, pass --is_regression; to predict one of these classes, pass "
            f"--labels={','.join(sorted(labels, key=_as_number)[: rows.MAX_NAMED])}. Is "
            "--label_column right?"
        )
    rows.check_case(lines, train.path, "or list both in --labels")
    if all(label.removeprefix("-").isdecimal() for label in labels):
        labels.sort(key=int)
    return tuple(labels)


def _find_splits(data_dir: str, options: CustomDataSettings) -> dict[str, tuple[Source, ...]]:
    columns = Columns(
        _parse_column(options.text_a_column),
        _parse_column(options.text_b_column),
        _parse_label_column(options),
    )
    names = {
        split: rows.existing_files(data_dir, split, EXTENSIONS)
        for split in ("train", "dev", "test")
    }
    if not any(names.values()):
        raise FileNotFoundError(
            f"{data_dir}: contains no train, dev or test file with one of {', '.join(EXTENSIONS)}"
        )
    return {
        split: tuple(
            Source(name, columns, options.has_header, is_custom=True)
            for name in existing or [split + extension for extension in EXTENSIONS]
        )
        for split, existing in names.items()
    }


def _parse_column(text: str | None) -> Column | None:
    if not text:
        return None
    return int(text) if text.removeprefix("-").isdecimal() else text


def _as_number(label: str) -> float:
    return float(label) if is_number(label) else float("inf")


def _parse_label_column(options: CustomDataSettings) -> Column | tuple[Column, ...] | None:
    """Returns the label column, or the columns of the labels of a multi-label task."""
    names = (options.label_column or "").split(",")
    if not options.is_multi_label or len(names) == 1:
        return _parse_column(options.label_column)
    return tuple(filter(None, map(_parse_column, map(str.strip, names))))


def _names_of_columns(options: CustomDataSettings, splits: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the labels that have a column each; () if there are no such columns.

    Raises:
        ValueError: columns are given by number, without names.
    """
    columns = splits["train"][0].columns.label
    if not isinstance(columns, tuple):
        return ()
    if not all(isinstance(column, str) for column in columns):
        raise ValueError(
            f"--label_column={options.label_column}: labels are named by the columns' names, not "
            "by numbers. Add a header line to the files"
        )
    return columns


def _make_task(
    data_dir: str, options: CustomDataSettings, labels: tuple[str, ...]
) -> ClassificationTask:
    """Returns a custom task, without labels if only the training data tells them."""
    splits = _find_splits(data_dir, options)
    columns = _names_of_columns(options, splits)
    if columns and labels and set(columns) != set(labels):
        raise ValueError(
            f"--label_column={options.label_column}: expected the columns of the labels "
            f"{', '.join(labels)}"
        )
    is_unnamed = huggingface.are_default(list(labels))
    aliases = {str(number): label for number, label in enumerate(labels) if is_unnamed}
    metrics: tuple[str, ...] = (ACCURACY, "macro_f1")
    selection_metric = ACCURACY
    if options.is_regression:
        metrics = ("MSE", "pearson", "spearman")
        selection_metric = "pearson"
    elif options.is_multi_label:
        metrics = ()  # all of `multi_label_metrics`
        selection_metric = MICRO_F1
    return ClassificationTask(
        CUSTOM_TASK,
        "",
        splits,
        labels or columns,
        options.is_regression,
        metrics,
        selection_metric,
        label_aliases=aliases,
        is_multi_label=options.is_multi_label,
    )


def find_task(
    name: str,
    data_dir: str,
    options: CustomDataSettings,
    trained: RunFolder | None = None,
    quoting: bool = False,
) -> ClassificationTask:
    """Returns the task with the name `--task_name`, from the table or a custom one.

    The labels of a custom task are those of `options`, or else those of the trained model, or else
    those of the training data.

    Args:
        name: name of a task, or CUSTOM_TASK.
        data_dir: folder of a custom task, with the files train, dev and test ending in one of
            EXTENSIONS; splits may be missing.
        options: columns and labels of a custom task.
        trained: the folder of a trained model; None if there is none.
        quoting: see `read_examples`.

    Raises:
        FileNotFoundError: there are no files, or no training data to read the labels from.
        ValueError: the task does not exist, a split has two files, or the training data is invalid.
    """
    if name.strip().lower() != CUSTOM_TASK:
        for flag in ("is_regression", "is_multi_label"):
            if getattr(options, flag):
                raise ValueError(f"--{flag} is for --task_name={CUSTOM_TASK}, not for {name}")
        return tasks.find_task(name)
    if options.is_regression and options.is_multi_label:
        raise ValueError("--is_regression and --is_multi_label exclude each other: pass one")
    labels = options.labels or (recorded_labels(trained.record) if trained is not None else ())
    for label in labels:
        rows.check_name(label, f"a label of --labels or {run_record.FILE}")
    task = _make_task(data_dir, options, labels)
    if task.is_regression or task.labels:
        return task
    try:  # Not logged, because training reads the file again.
        train = read_examples(task, data_dir, "train", is_logged=False, quoting=quoting)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error} It is needed for the labels.") from None
    return dataclasses.replace(task, labels=labels_of(train))


def recorded_labels(record: RunRecord) -> tuple[str, ...]:
    """Returns the labels that a classifier was trained with; () if none are recorded."""
    return record.labels if record.task_name in _CLASSIFIERS else ()


def details_of(task: ClassificationTask) -> dict[str, Any]:
    """Returns what is recorded of a task besides its labels: its name and folder of the data."""
    return {"task_name": task.name, "folder": task.folder}


def check_task(folder: RunFolder, task: ClassificationTask, is_training: bool) -> None:
    """Compares a task with that of the model in a folder, if it is recorded.

    This prevents that a model is accidentally trained on another task or with other labels. The
    task must be the same only for training: a model may be evaluated on another task with the same
    labels, as MNLI models are on both dev sets.

    Args:
        folder: folder of the checkpoints.
        task: the task, with its labels.
        is_training: whether the model is to be trained.

    Raises:
        ValueError: the model belongs to another task; the message names both.
    """
    record = folder.record
    if "labels" not in record.task or record.task_name not in _CLASSIFIERS:
        return
    is_same = record.labels == task.labels
    is_same &= (record.task_name == REGRESSION) == task.is_regression
    if not is_same or (is_training and record.task.get("folder") != task.folder):
        raise ValueError(
            f"{folder.path} contains a model of the task {record.task.get('task_name')} with the "
            f"labels {_all(record.labels)}, not {task.name} with {_all(task.labels)}. Use another "
            "--output_dir; to start from this model, pass it as --init_checkpoint."
        )


def _all(labels: Sequence[str]) -> str:
    return ", ".join(labels) or "numbers"

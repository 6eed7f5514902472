"""Makes the task of a user's own data, from the settings and the training data.

A custom task is a folder with train, dev and test files: tab-separated, comma-separated or JSON
lines. Columns are found by name or index.
"""

from __future__ import annotations

from albert_tf.checkpoints import tasks
from albert_tf.checkpoints.run_record import RunRecord
from albert_tf.checkpoints.tasks import CLASSIFICATION, MULTI_LABEL, REGRESSION
from albert_tf.finetuning.classification.settings import Settings
from albert_tf.finetuning.classification.tasks import (
    ACCURACY,
    CUSTOM_TASK,
    MICRO_F1,
    ClassificationTask,
    Columns,
    SplitSource,
)
from albert_tf.finetuning.rows import Column

EXTENSIONS = (".tsv", ".csv", ".jsonl", ".json", ".txt")
FIRST_ID = "first_id"  # which a run records of its task
_CLASSIFIERS = ("", CLASSIFICATION, MULTI_LABEL, REGRESSION)  # "": not recorded


def _parse_column(text: str | None) -> Column | None:
    if not text:
        return None
    return int(text) if text.removeprefix("-").isdecimal() else text


def _parse_label_column(settings: Settings) -> Column | tuple[str, ...] | None:
    """Returns the label column, or the columns of the labels of a multi-label task.

    Raises:
        ValueError: columns of labels are given by number, without names.
    """
    given = settings.label_column or ""
    if not settings.is_multi_label or "," not in given:
        return _parse_column(given)
    names = tuple(name.strip() for name in given.split(",") if name.strip())
    if not all(isinstance(_parse_column(name), str) for name in names):
        raise ValueError(
            f"--label_column={given}: labels are named by the columns' names, not by numbers. Add "
            "a header line to the files"
        )
    return names


def columns_in(settings: Settings) -> Columns:
    """Returns the columns in the settings.

    Raises:
        ValueError: columns of labels are given by number, without names.
    """
    return Columns(
        _parse_column(settings.text_a_column),
        _parse_column(settings.text_b_column),
        _parse_label_column(settings),
    )


def make_custom_task(
    settings: Settings, labels: tuple[str, ...], is_multi_label: bool
) -> ClassificationTask:
    """Returns a custom task, without labels if only the training data tells them.

    Args:
        settings: the settings.
        labels: the labels; () to read them from the training data.
        is_multi_label: whether an example has any number of labels.
    """
    columns = columns_in(settings)
    named = tuple(map(str, columns.label)) if isinstance(columns.label, tuple) else ()
    if named and labels and set(named) != set(labels):
        raise ValueError(
            f"--label_column={settings.label_column}: expected the columns of the labels "
            f"{', '.join(labels)}"
        )
    is_unnamed = tasks.are_default(list(labels))
    aliases = {str(number): label for number, label in enumerate(labels) if is_unnamed}
    metrics: tuple[str, ...] = (ACCURACY, "macro_f1")
    selection_metric = ACCURACY
    if settings.is_regression:
        metrics = ("MSE", "pearson", "spearman")
        selection_metric = "pearson"
    elif is_multi_label:
        metrics = ()  # all of `multi_label_metrics`
        selection_metric = MICRO_F1
    splits = {
        split: tuple(
            SplitSource(split + extension, columns, settings.has_header, is_custom=True)
            for extension in EXTENSIONS
        )
        for split in ("train", "dev", "test")
    }
    return ClassificationTask(
        CUSTOM_TASK,
        "",
        splits,
        labels or named,
        settings.is_regression,
        metrics,
        selection_metric,
        label_aliases=aliases,
        is_multi_label=is_multi_label,
    )


def recorded_labels(record: RunRecord) -> tuple[str, ...]:
    """Returns the labels that a classifier was trained with; () if none are recorded."""
    return record.labels if record.task_name in _CLASSIFIERS else ()


def recorded_first_id(record: RunRecord) -> int | None:
    """Returns the first id that the data of a classifier had; see `ClassificationTask.first_id`."""
    first_id = record.task.get(FIRST_ID)
    return first_id if first_id in (0, 1) else None

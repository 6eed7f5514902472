"""Lists of labels: sets of them, or a number for each label of the task, 0 or 1."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from absl import logging

from albert_tf import files
from albert_tf.finetuning.classification.label_columns import LabelColumn, Values
from albert_tf.finetuning.classification.labels import indicator, list_in
from albert_tf.finetuning.classification.tasks import CUSTOM_TASK, MICRO_F1, ClassificationTask
from albert_tf.finetuning.rows import BadRowError, abbreviate


def read_lists(
    columns: Mapping[str, LabelColumn],
    values: Values,
    telling: Collection[str],
    task: ClassificationTask,
) -> ClassificationTask:
    """Reads lists of 0 and 1 as labels, and returns the task, which may be a multi-label one."""
    if task.name != CUSTOM_TASK:
        return task
    if task.is_multi_label:
        for of_split in values.values():
            of_split[:] = map(list_in, of_split)
    lists = [x for split in telling for x in values[split] if isinstance(x, list)]
    declared = [column.names for column in columns.values() if column.names is not None]
    if not lists and not any(names.is_list for names in declared):
        return task
    width = _width_of_indicators(lists, bool(declared))
    if width and task.labels and len(task.labels) != width:
        width = 0
    path = next(iter(columns.values())).path
    if not width:
        logging.info("%s: lists of labels, which may be any number", path)
        return multi_label(task)
    is_single = not task.is_multi_label and all(sum(map(_bit, x)) == 1 for x in lists)
    labels = task.labels or tuple(map(str, range(width)))
    for of_split in values.values():
        for place, value in enumerate(of_split):
            if isinstance(value, list):
                of_split[place] = _of_indicators(value, labels, is_single)
    logging.warning(
        "%s: lists of %d numbers, 0 or 1, are taken as %s: %s. --labels names them in this order",
        *(path, width, "one of the labels" if is_single else "any number of labels"),
        abbreviate(labels),
    )
    task = dataclasses.replace(task, labels=labels)
    return task if is_single else multi_label(task)


def _bit(value: object) -> int:
    return int(bool(indicator(value)))


def _width_of_indicators(lists: Sequence[list[object]], is_declared: bool) -> int:
    """Returns the length of lists of 0 and 1 that say which labels a text has; 0 for sets.

    Of two numbers, [0, 1] and [1, 0] are not the same set in every row, unless the elements are
    declared as class ids; of more, some are equal, which those of a set are not. A single list in
    all rows is none of this.
    """
    widths = {len(value) for value in lists}
    vectors = {tuple(indicator(item) for item in value) for value in lists}
    if len(widths) != 1 or len(vectors) < 2 or any(None in vector for vector in vectors):
        return 0
    (width,) = widths
    are_sets = width < 2 or (is_declared and all(len(set(vector)) == width for vector in vectors))
    return 0 if are_sets else width


def _of_indicators(value: list[object], labels: Sequence[str], is_single: bool) -> object:
    """Returns the labels whose number is 1; one of them, or None, if a text has a single one."""
    found: list[object] = [
        label for label, item in zip(labels, value, strict=False) if indicator(item)
    ]
    if len(value) != len(labels) or not all(indicator(item) is not None for item in value):
        return BadRowError(
            f"the label is {files.quote(value)}, expected {len(labels)} numbers, 0 or 1, as in "
            "other rows"
        )
    if not is_single:
        return found
    return found[0] if len(found) == 1 else None


def multi_label(task: ClassificationTask) -> ClassificationTask:
    """Returns a custom task whose examples have any number of labels."""
    metrics: tuple[str, ...] = ()  # all of `multi_label_metrics`
    return dataclasses.replace(
        task, is_multi_label=True, metrics=metrics, selection_metric=MICRO_F1
    )

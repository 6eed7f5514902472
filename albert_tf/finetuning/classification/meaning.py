"""Decides once what the values in a label column mean, from all distinct values of all splits.

The splits of a run collect their values in a `LabelColumn` each, and `decide` returns what each
distinct value stands for, as all of them together tell:

* lists of 0 and 1 are a class each if exactly one is 1 in all of them, or else any number of
  labels; other lists are sets of labels;
* where names of class ids are declared, by the schema, the repository or `--labels`, values are
  ids or names;
* 1.0 is 1 if the column has integers, or nulls, because of which pandas writes it so;
* the labels of a task of one's own are those of `--labels`, or those that are declared, both in
  their order, or else those of the training data, sorted.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Collection, Mapping, Sequence

from absl import logging

from albert_tf import files
from albert_tf.finetuning.classification.class_ids import find_declarations
from albert_tf.finetuning.classification.indicators import multi_label, read_lists
from albert_tf.finetuning.classification.label_columns import (
    LabelColumn,
    Values,
    elements,
    replace,
)
from albert_tf.finetuning.classification.labels import (
    Label,
    folded,
    indicator,
    is_blank,
    is_integer,
    is_number,
    is_unknown,
    parse_label,
    parse_labels,
    without_point,
)
from albert_tf.finetuning.classification.tasks import ClassificationTask
from albert_tf.finetuning.examples import MAX_LABELS, check_number_of_labels, is_none
from albert_tf.finetuning.rows import BadRowError, abbreviate, check_name
from albert_tf.finetuning.splits import TRAIN

Meaning = Label | BadRowError  # why a value cannot be used


def decide(
    columns: Mapping[str, LabelColumn],
    task: ClassificationTask,
    asked: Sequence[str] = (),
    recorded: Sequence[str] = (),
    finds_labels: bool = True,
) -> tuple[ClassificationTask, dict[str, list[Meaning]]]:
    """Decides what the values of all splits mean.

    Args:
        columns: split → its values.
        task: the task; without labels if the training data tell them.
        asked: the labels in the settings, in the order of their ids; () if there are none.
        recorded: the labels of the run that is continued, which keeps their order if they are all
            that occur; () if there is none.
        finds_labels: whether to find the labels of the task in the training data, unless a value in
            there cannot be used.

    Returns:
        The task with its labels, and split → the meaning of each distinct value: a label, several
        in a multi-label task, None if unknown, or an error.

    Raises:
        ValueError: the values have no common meaning, or there are too few or too many labels.
    """
    values = {split: list(column.values) for split, column in columns.items()}
    # In a test split, there may be anything in place of labels.
    telling = {split for split, column in columns.items() if not column.is_test} or set(columns)
    if not task.is_regression:
        task = read_lists(columns, values, telling, task)
        for declaration in find_declarations(columns, task, asked).values():
            declaration.decode(values, telling)
        _drop_points([split for split in columns if not columns[split].parts], values, telling)

    def meanings_of(split: str) -> list[Meaning]:
        return [_meaning(value, columns[split].parts, task) for value in values[split]]

    if finds_labels and TRAIN in columns and not (task.labels or task.is_regression):
        found = meanings_of(TRAIN)
        if not any(isinstance(meaning, BadRowError) for meaning in found):
            task = dataclasses.replace(task, labels=_labels(columns[TRAIN], found, recorded))
    meanings = {split: meanings_of(split) for split in columns}
    for split, column in columns.items():
        _report_spellings(column.path, values[split], meanings[split])
    return task, meanings


def guess(value: object, column: LabelColumn, task: ClassificationTask) -> Label:
    """Returns what a value seems to mean before the others are known; None if nothing."""
    values = [value]
    (declaration,) = find_declarations({TRAIN: column}, task, ()).values() or [None]
    if declaration is not None:
        replace(values, lambda item: declaration.label(item, 0))
    if isinstance(value, list):
        task = multi_label(task)
    meaning = _meaning(values[0], column.parts, task)
    return None if isinstance(meaning, BadRowError) else meaning


def _meaning(value: object, parts: Sequence[str], task: ClassificationTask) -> Meaning:
    """Returns what a value stands for, once it is known what all of them mean."""
    try:
        items: list[object] = value if isinstance(value, list) else [value]
        for item in items:
            if isinstance(item, BadRowError):
                raise item
        if isinstance(value, tuple):
            if any(is_unknown(cell, task) for cell in value):
                return None
            pairs = zip(parts, value, strict=True)
            return tuple(parse_label(name, task) for name, cell in pairs if _is_set(cell, name))
        if is_unknown(value, task):
            return None
        return parse_labels(value, task) if task.is_multi_label else parse_label(value, task)
    except BadRowError as error:
        return error


def _is_set(value: object, name: str) -> bool:
    """Returns whether the cell of a label is 1."""
    found = indicator(value)
    if found is None:
        raise BadRowError(f"column {name!r} is {files.quote(value)}, expected 0 or 1")
    return found


def _drop_points(splits: Sequence[str], values: Values, telling: Collection[str]) -> None:
    """Replaces 1.0 by 1 if all values are integers, and some have no point or are blank."""
    told = [values[split] for split in splits if split in telling]
    numbers = {str(x).strip() for part in told for x in elements(part)}
    with_point = {number for number in numbers if without_point(number) != number}
    if not with_point or not all(map(is_integer, numbers)):
        return
    has_blank = any(
        any(map(is_blank, part)) and not with_point.isdisjoint(map(str, part)) for part in told
    )
    if has_blank or len(with_point) < len(numbers):
        for split in splits:
            replace(values[split], _without_point)


def _without_point(value: object) -> object:
    text = str(value).strip()
    return without_point(text) if is_integer(text) else value


def _labels(
    train: LabelColumn, meanings: Sequence[Meaning], recorded: Sequence[str]
) -> tuple[str, ...]:
    """Returns the labels of training data: those that are declared, or else those that occur.

    Those that occur are in numerical order if they are integers, else sorted. A run that has begun
    keeps the order of those that it has recorded.

    Raises:
        ValueError: there are fewer than two labels or too many, or labels are fractions, which
            means a regression task.
    """
    rows: dict[str, int] = {}  # label → number of its first row
    for meaning, row in zip(meanings, train.first_rows, strict=True):
        labels_of_row = meaning if isinstance(meaning, tuple) else (meaning,)
        for label in labels_of_row:
            if isinstance(label, str):
                rows.setdefault(label, row)
    if rows and set(recorded) >= rows.keys():
        return tuple(recorded)
    if train.names is not None:
        return _declared_labels(train, rows)
    labels = sorted(rows)
    check_number_of_labels(
        labels, train.path, " If these are the labels, list all of them in --labels"
    )
    fraction = next((x for x in labels if is_number(x) and float(x) % 1), None)
    if fraction is not None:
        raise ValueError(
            f"{train.place(rows[fraction])}: label {files.quote(fraction)} is a fraction. To "
            "predict numbers, pass --is_regression; to predict one of these classes, list all of "
            "them in --labels. Is --label_column right?"
        )
    for label in filter(is_none, labels):
        logging.warning(
            "%s: %s is taken as a label. If it means no label, list the others in --labels; such "
            "rows are then skipped",
            train.place(rows[label]),
            files.quote(label),
        )
    _report_alike(train, labels)
    if all(without_point(label).removeprefix("-").isdecimal() for label in labels):
        labels.sort(key=lambda label: int(without_point(label)))
    return tuple(labels)


def _declared_labels(train: LabelColumn, rows: Mapping[str, int]) -> tuple[str, ...]:
    """Returns the declared names, whose order is that of the ids, and warns of those without rows.

    Raises:
        ValueError: a name cannot be a label, or two are equal.
    """
    names = train.names.names if train.names is not None else ()
    try:
        labels = [check_name(name, "a name of a label") for name in names]
    except BadRowError as error:
        raise ValueError(f"{train.declared_in}: {error}") from None
    if len(set(labels)) < len(labels):
        raise ValueError(f"{train.declared_in}: labels are named alike: {files.quote_all(labels)}")
    check_number_of_labels(labels[:MAX_LABELS], train.declared_in)
    missing = [label for label in labels if label not in rows]
    if missing:
        logging.warning("%s: no row has the label %s", train.path, abbreviate(missing))
    return tuple(labels)


def _report_alike(train: LabelColumn, labels: Sequence[str]) -> None:
    """Warns of labels that may be one label, spelled in several ways."""
    groups = collections.defaultdict(list)
    for label in labels:
        groups[folded(label)].append(label)
    alike = [files.quote_all(group) for group in groups.values() if len(group) > 1]
    if alike:
        logging.warning(
            "%s: labels that differ only in case, spaces or the form of characters are different "
            "classes: %s. If they are the same, write them alike",
            *(train.path, "; ".join(alike)),
        )


def _report_spellings(path: str, values: Sequence[object], meanings: Sequence[Meaning]) -> None:
    """Warns of labels that are spelled otherwise than those of the task.

    Raises:
        ValueError: a label is also spelled as in the task, so that there may be two labels.
    """
    exact: set[str] = set()
    spelled: dict[str, str] = {}
    for value, meaning in zip(values, meanings, strict=True):
        items = value if isinstance(value, list) else [value]
        labels = [meaning] if isinstance(meaning, str) else meaning
        if not isinstance(labels, (list, tuple)) or isinstance(value, tuple):
            continue
        for item, label in zip(items, labels, strict=True):
            spelling = str(item).strip()
            if spelling == label:
                exact.add(label)
            elif not (is_integer(spelling) or isinstance(item, bool)):
                spelled |= {label: spelling} if folded(spelling) == folded(label) else {}
    for label, spelling in spelled.items():
        names = f"{files.quote(spelling)} and {files.quote(label)}"
        if label in exact:
            raise ValueError(
                f"{path}: {names} are both labels here, but the task has only the latter. Use one "
                "spelling, or list all labels in --labels"
            )
        logging.warning("%s: %s are taken as the same label", path, names)

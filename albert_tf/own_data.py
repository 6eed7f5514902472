"""A row of the table of tasks for data of one's own.

Any folder with train, dev and test files will do, tab- or comma-separated or JSON lines: columns
are found by the names in their header, labels are read from the training data.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence

from albert_tf import classification_data, rows
from albert_tf.classification_tasks import ACCURACY, OWN_DATA, ClassificationTask, Columns, Source

EXTENSIONS = (".tsv", ".csv", ".jsonl", ".json", ".txt")
MAX_LABELS = 1000  # more of them are taken for a wrong column
MAX_EXAMPLES_OF_THEIR_OWN = 50  # so many examples may each have a label of their own


def own_labels(train: classification_data.ExampleSet) -> tuple[str, ...]:
    """The labels of own training data: in numerical order if they are integers, else sorted.

    Raises:
        ValueError: fewer than two, too many, or fractions, which belong to a regression.
    """
    lines = {str(example.label): example.line for example in reversed(train.examples)}
    labels = sorted(lines)
    advice = "Is --label_column right?"
    if len(labels) < 2:
        raise ValueError(f"{train.path}: every example has the label {labels[0]!r}. {advice}")
    fractions = [
        label for label in labels if classification_data.is_number(label) and float(label) % 1
    ]
    if fractions:
        raise ValueError(
            f"{train.path}, line {lines[fractions[0]]}: label {fractions[0]!r} is a fraction, "
            f"no class. For numbers pass --is_regression. {advice}"
        )
    if len(labels) > MAX_LABELS or len(labels) == len(train) > MAX_EXAMPLES_OF_THEIR_OWN:
        raise ValueError(
            f"{train.path}: {len(labels)} different labels in {len(train)} examples. {advice}"
        )
    if all(label.removeprefix("-").isdecimal() for label in labels):
        labels.sort(key=int)
    return tuple(labels)


def describe_own_data(
    data_dir: str,
    columns: Columns | None = None,
    has_header: bool | None = None,
    is_regression: bool = False,
    labels: Sequence[str] = (),
    max_bad_rows: int = 0,
) -> ClassificationTask:
    """Makes a row of the table for train, dev and test files of one's own.

    Args:
        data_dir: holds train, dev and test with one of EXTENSIONS; a split may be absent.
        columns: by name or number; what is None is looked up in the header, among
            `classification_data.KNOWN_NAMES`.
        has_header: whether the files have a header; None: look.
        is_regression: labels are numbers to be predicted.
        labels: in the order of their ids; read from the training data where empty.
        max_bad_rows: as in `read_examples`.

    Raises:
        FileNotFoundError: no such file at all, or no training data to read the labels from.
        ValueError: two files for one split, or anything that `read_examples` refuses.
    """
    splits = {}
    for split in ("train", "dev", "test"):
        names = [split + extension for extension in EXTENSIONS]
        found = [name for name in names if rows.is_file(os.path.join(data_dir, name))]
        if len(found) > 1:
            raise ValueError(f"{data_dir} has {' and '.join(found)}: which one? Leave one there.")
        if found:
            splits[split] = (Source(found[0], columns or Columns(), has_header, is_guessed=True),)
    if not splits:
        raise FileNotFoundError(
            f"{data_dir}: neither train, dev nor test with one of {', '.join(EXTENSIONS)} is there"
        )
    task = ClassificationTask(
        OWN_DATA,
        "",
        splits,
        tuple(labels),
        is_regression,
        metrics=("MSE", "pearson", "spearman") if is_regression else (ACCURACY, "macro_f1"),
        selection_metric="pearson" if is_regression else ACCURACY,
    )
    if is_regression or labels:
        return task
    if "train" not in splits:
        raise FileNotFoundError(f"{data_dir} has no train file to read the labels from")
    return dataclasses.replace(
        task,
        labels=own_labels(classification_data.read_examples(task, data_dir, "train", max_bad_rows)),
    )

"""Reads the examples of classification and regression tasks; see `read_data`."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
from collections.abc import Mapping

from absl import logging

from albert_tf import files
from albert_tf.checkpoints import run_record
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.tasks import MULTI_LABEL
from albert_tf.finetuning.classification import tasks
from albert_tf.finetuning.classification.columns import (
    find_columns,
    has_usual_names,
    is_header,
    is_named_otherwise,
    refuse_example,
)
from albert_tf.finetuning.classification.custom import (
    columns_in,
    make_custom_task,
    recorded_first_id,
    recorded_labels,
)
from albert_tf.finetuning.classification.encoding import EncodedTexts, FirstPass
from albert_tf.finetuning.classification.meaning import LabelColumn, decide, guess
from albert_tf.finetuning.classification.parsing import RowParser
from albert_tf.finetuning.classification.settings import Settings
from albert_tf.finetuning.classification.tasks import (
    CUSTOM_TASK,
    ClassificationTask,
    Columns,
    SplitSource,
)
from albert_tf.finetuning.classification.unused_columns import UnusedColumns
from albert_tf.finetuning.rows import BadRowError, Column, Row, ShortRowError, cell, check_name
from albert_tf.finetuning.splits import (
    DEV,
    TRAIN,
    Layout,
    SplitTables,
    needed_for_labels,
    read_splits,
)
from albert_tf.model.tokenization import Tokenizer
from albert_tf.tables import LabelNames, Table


def _open(
    task: ClassificationTask, tables: SplitTables, split: str, asked: Columns, quoting: bool
) -> tuple[SplitSource, Table]:
    """Returns the rows of a split, and where their columns are.

    The file of a split is in the task's folder in the data directory or in the latter itself. In
    files with other names, columns have their usual names.

    Raises:
        MissingSplitError: there is no such file; the message says what there is.
        ValueError: the task does not have this split, or a custom task has two files.
    """
    sources = task.splits.get(split, ())
    if not sources:
        raise ValueError(f"task {task.name} has no {split} data, only {', '.join(task.splits)}")
    folders = (task.folder, "") if task.folder else ("",)
    of_files = {os.path.join(f, source.file): source for source in sources for f in folders}
    layout = Layout(
        list(of_files),
        takes_first=not sources[0].is_custom,
        configurations=tuple(filter(None, (*task.configurations, task.name, task.folder))),
        suffix=task.suffix,
        quoting=quoting,
    )
    table, name = tables.open(split, layout)
    if name:
        return of_files[name], table
    own = sources[0]
    if own.expand is not None or not has_usual_names(own.columns):
        return dataclasses.replace(own, file=""), table
    has_header = own.has_header if own.is_custom else None
    return SplitSource("", asked, has_header, is_custom=True), table


def _read_rows(
    task: ClassificationTask,
    tables: SplitTables,
    split: str,
    asked: Columns,
    quoting: bool,
    encoding: tuple[Tokenizer, int],
) -> FirstPass:
    """Reads the rows of a split.

    Args:
        task: a task of the table, or a custom task.
        tables: where the data are: the parent of the task's folder, that folder, or elsewhere.
        split: "train", "dev" or "test".
        asked: the columns in the settings, for files that may have others than the task knows.
        quoting: see `open_table`.
        encoding: the tokenizer and the maximum number of tokens.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: there are bad rows: with too few columns (in custom tasks also too many), an
            empty text, or invalid JSON. The message names the file and the lines, also of those
            whose values are no labels.
    """
    source, table = _open(task, tables, split, asked, quoting)
    path = table.path
    numbered = iter(table)
    first = next(numbered, None)
    if first is None:
        raise ValueError(f"{path}: the file is empty")
    row = first[1]
    if isinstance(row, BadRowError):
        raise ValueError(f"{table.place(first[0])}: {row}")
    if is_named_otherwise(source, row, split == "test"):
        logging.warning("%s: the columns are read by their names, not as in the archive", path)
        source = SplitSource("", asked, has_header=True, is_custom=True)
    has_header, columns = _find_columns(task, split, source, table.place(first[0]), row)
    if source.is_custom:
        logging.info("%s: the first row is %s; reading %s", path, files.quote_all(row), columns)
    header = row if has_header else None
    parts = source.columns.label if isinstance(source.columns.label, tuple) else ()
    names = _declared_names(table, columns.label, header)
    labels = LabelColumn(table, split == "test", names, tuple(map(str, parts)))
    label_of = functools.partial(guess, column=labels, task=task) if split == TRAIN else None
    parser = RowParser(table, task, split, source, columns, header)
    rows = FirstPass(parser, labels, encoding, label_of)
    unused = UnusedColumns(parser, row if has_header or isinstance(row, dict) else None)
    for block in parser.blocks(numbered if has_header else itertools.chain([first], numbered)):
        unused.add(block, rows.add(block))
    unused.report(path)
    if parser.bad:  # refused along with values that cannot be labels, whatever labels there are
        rows.examples(decide({"": labels}, task)[1][""])
    return rows


def _find_columns(
    task: ClassificationTask, split: str, source: SplitSource, place: str, first: Row
) -> tuple[bool, Columns]:
    """Returns whether the first row is a header, and the columns of the file.

    Raises:
        ValueError: the columns are not there, or the header is an example.
    """
    try:
        has_header = is_header(first, source)
        columns = find_columns(source, first, has_header, split == "test")
        if source.is_custom and not task.splits[split][0].is_custom:
            _check_texts(task.splits[split][0].columns, columns, first)
        if has_header:
            refuse_example(first, columns, task)
    except BadRowError as error:
        raise ValueError(f"{place}: {error}") from None
    return has_header, columns


def _check_texts(known: Columns, found: Columns, first: Row) -> None:
    """Raises BadRowError if a task has pairs of texts and a file has not, or the reverse."""
    if (known.text_b is None) != (found.text_b is None):
        columns = [column for column in (found.text_a, found.text_b) if column is not None]
        names = columns if isinstance(first, dict) else [first[int(column)] for column in columns]
        raise BadRowError(
            f"expected {'two texts' if known.text_b is not None else 'one text'} for this task, "
            f"found {files.quote_all(names)}. Pass --text_a_column, and --text_b_column for pairs"
        )


def _declared_names(
    table: Table, label: Column | tuple[Column, ...] | None, header: Row | None
) -> LabelNames | None:
    """Returns the names of the class ids in the column of the label, if the table has some."""
    name: object = label
    if header is not None and isinstance(label, int):
        try:
            name = cell(header, label)
        except ShortRowError:  # in files of Google's tasks, the header need not fit
            return None
    return table.labels.get(str(name))


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
    is_multi_label = settings.is_multi_label
    first_id = None
    if trained is not None and not settings.do_train:
        recorded = recorded_labels(trained.record)
        if not labels:
            labels = recorded
            is_multi_label |= trained.record.task_name == MULTI_LABEL
        if labels == recorded:
            first_id = recorded_first_id(trained.record)
    for label in labels:
        check_name(label, f"a label of --labels or {run_record.FILE}")
    task = make_custom_task(settings, labels, is_multi_label)
    return dataclasses.replace(task, first_id=first_id)


def read_data(
    settings: Settings,
    tokenizer: Tokenizer,
    trained: RunFolder | None = None,
    given: Mapping[str, Table] | None = None,
) -> tuple[ClassificationTask, dict[str, EncodedTexts]]:
    """Returns the task with the name `--task_name`, and the examples of each split.

    The labels of a custom task are those of the settings, or else those of the trained model unless
    it is trained now, or else those of the training data.

    Args:
        settings: the task, its data and, for a custom task, its columns and labels. The files
            train, dev and test of a custom task end in one of EXTENSIONS.
        tokenizer: what tokenizes the texts, of which only the first ones are kept.
        trained: the folder of a trained model; None if there is none.
        given: split → rows that are read instead of files; None to read the files.

    Raises:
        FileNotFoundError: there is no file of a split, or no training data to read the labels from.
        ValueError: the task does not exist, or a file is invalid; see `_read_rows` and `decide`.
    """
    tables = SplitTables.of(settings, settings.data_dir, given)
    task = _find_task(settings, trained)
    asked = columns_in(settings)
    encoding = tokenizer, settings.max_seq_length
    divides = bool(settings.dev_fraction) and not {TRAIN, DEV}.isdisjoint(settings.splits)
    splits = [split for split in settings.splits if not (divides and split == DEV)]
    needs_labels = not (task.labels or task.is_regression)
    if TRAIN not in splits and (needs_labels or divides):
        splits.insert(0, TRAIN)

    def read(split: str) -> FirstPass:
        try:
            return _read_rows(task, tables, split, asked, settings.quoting, encoding)
        except FileNotFoundError as error:
            if needs_labels and split == TRAIN:
                raise FileNotFoundError(needed_for_labels(error)) from None
            raise

    rows = {split: read(split) for split in splits}
    columns = {split: part.labels for split, part in rows.items()}
    continued = RunFolder(settings.runs()[0].output_dir).current
    recorded = recorded_labels(continued.record) if settings.do_train and needs_labels else ()
    of_ids = settings.labels if task.first_id is None else task.labels
    task, meanings = decide(columns, task, of_ids, recorded)
    examples = {split: part.examples(meanings[split]) for split, part in rows.items()}

    def read_late(split: str) -> EncodedTexts:
        rows = read(split)
        return rows.examples(decide({split: rows.labels}, task)[1][split])

    return task, read_splits(settings.splits, settings.dev_fraction, read_late, examples)

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
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from absl import logging

from albert_tf import files
from albert_tf.checkpoints import tasks
from albert_tf.finetuning.classification.labels import (
    Label,
    folded,
    indicator,
    is_blank,
    is_integer,
    is_number,
    is_unknown,
    list_in,
    parse_label,
    parse_labels,
    without_point,
)
from albert_tf.finetuning.classification.tasks import CUSTOM_TASK, MICRO_F1, ClassificationTask
from albert_tf.finetuning.examples import MAX_LABELS, check_number_of_labels, is_none
from albert_tf.finetuning.rows import BadRowError, abbreviate, check_name
from albert_tf.finetuning.splits import TRAIN
from albert_tf.tables import LabelNames, Table


@dataclasses.dataclass
class LabelColumn:
    """The values of the labels in a split, each distinct one once.

    Attributes:
        table: the rows, for messages and for what it says about its cells.
        is_test: whether the split is for prediction, where other values than labels are unknown.
        names: the names of class ids that are declared for the column; None if there are none.
        parts: the labels of the columns of 0 and 1 whose cells are a value together, a tuple; () if
            a single column has the labels.
        values: the values, in the order in which they occur.
        first_rows: the number of the first row of each.
    """

    table: Table
    is_test: bool
    names: LabelNames | None
    parts: tuple[str, ...]
    values: list[object] = dataclasses.field(default_factory=list)
    first_rows: list[int] = dataclasses.field(default_factory=list)
    _indices: dict[object, int] = dataclasses.field(default_factory=dict)

    def indices(self, values: Iterable[object], rows: Iterable[int]) -> list[int]:
        """Returns the index of each value among the distinct ones, given the numbers of rows."""
        return list(map(self._index, values, rows))

    def _index(self, value: object, row: int) -> int:
        key = value if isinstance(value, str) else (type(value), repr(value))
        found = self._indices.setdefault(key, len(self.values))
        if found == len(self.values):
            self.values.append(value)
            self.first_rows.append(row)
        return found


Values = Mapping[str, list[object]]  # split → its distinct values, which are replaced


def _elements(values: Iterable[object]) -> Iterator[object]:
    """Yields values, and those in lists, that are not blank."""
    for value in values:
        items = value if isinstance(value, list) else [value]
        yield from (item for item in items if not is_none(item))


def _replace(values: list[object], change: Callable[[object], object]) -> None:
    """Replaces values, and those in lists."""
    values[:] = [[*map(change, x)] if isinstance(x, list) else change(x) for x in values]


Meaning = Label | BadRowError  # why a value cannot be used


def decide(
    columns: Mapping[str, LabelColumn],
    task: ClassificationTask,
    asked: Sequence[str] = (),
    recorded: Sequence[str] = (),
) -> tuple[ClassificationTask, dict[str, list[Meaning]]]:
    """Decides what the values of all splits mean.

    Args:
        columns: split → its values.
        task: the task; without labels if the training data tell them, if these are there and each
            value in them can be used.
        asked: the labels in the settings, in the order of their ids; () if there are none.
        recorded: the labels of the run that is continued, which keeps their order if they are all
            that occur; () if there is none.

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
        task = _read_lists(columns, values, telling, task)
        for declaration in _find_declarations(columns, task, asked).values():
            start = declaration.decode(values, telling)
            if declaration.must_be_all and start is not None:
                task = dataclasses.replace(task, first_id=start)
        _drop_points([split for split in columns if not columns[split].parts], values, telling)

    def meanings_of(split: str) -> list[Meaning]:
        return [_meaning(value, columns[split].parts, task) for value in values[split]]

    if TRAIN in columns and not (task.labels or task.is_regression):
        found = meanings_of(TRAIN)
        if not any(isinstance(meaning, BadRowError) for meaning in found):
            task = dataclasses.replace(task, labels=_labels(columns[TRAIN], found, recorded))
    meanings = {split: meanings_of(split) for split in columns}
    for split, column in columns.items():
        _report_spellings(column.table.path, values[split], meanings[split])
    return task, meanings


def guess(value: object, column: LabelColumn, task: ClassificationTask) -> Label:
    """Returns what a value seems to mean before the others are known; None if nothing."""
    values = [value]
    (declaration,) = _find_declarations({TRAIN: column}, task, ()).values() or [None]
    if declaration is not None:
        _replace(values, lambda item: declaration.label(item, 0))
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


# Lists of labels: sets of them, or a number for each label of the task, 0 or 1.


def _read_lists(
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
    path = next(iter(columns.values())).table.path
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


# Class ids whose names are declared: whether values are ids or names, and of which labels.


@dataclasses.dataclass
class Declaration:
    """Names of class ids, and the splits whose labels they are.

    Attributes:
        names: the names, in the order of the ids.
        labels: the label that each id stands for.
        path: what declares them.
        splits: the splits.
        are_cells: whether values are cells of text.
        must_be_all: whether values are ids only if all of them are, and the first or the last one
            shows from where they are counted, unless this is known.
        first_id: from where they are counted, if it is known.
    """

    names: Sequence[str]
    labels: Sequence[str]
    path: str
    splits: list[str]
    are_cells: bool
    must_be_all: bool = False
    first_id: int | None = None

    def decode(self, values: Values, telling: Collection[str]) -> int | None:
        """Replaces ids, where values are ids, by the labels that they stand for.

        Returns from where ids are counted; None if values are names.

        Args:
            values: the values of all splits.
            telling: the splits that tell whether values are ids.
        """
        splits = [split for split in self.splits if split in telling] or self.splits
        in_use = [x for split in splits for x in _elements(values[split])]
        texts = set(filter(None, map(self._text, in_use)))
        start = self._start(texts, all(isinstance(x, str) for x in in_use))
        if start is not None:
            for split in self.splits:
                _replace(values[split], lambda value: self.label(value, start))
        elif not self.must_be_all:
            for split in self.splits:
                _replace(values[split], self._label_of_name)
        return start

    def _text(self, value: object) -> str:
        """Returns the text of what may be an id or a name; "" for anything else."""
        if isinstance(value, bool):
            is_name = {"true", "false"} & {name.lower() for name in self.names}
            return "" if is_name else str(int(value))
        if not isinstance(value, (str, int, float)):
            return ""
        text = str(value).strip()
        return text if text in self.names else without_point(text)

    def _start(self, texts: set[str], are_text: bool) -> int | None:
        """Returns from where ids are counted; None if values are names."""
        if self.must_be_all:
            return self._start_of_all(texts)
        last = len(self.names) - 1
        ids = {text for text in texts if is_integer(text) and 0 <= int(text) <= last}
        named = texts & set(self.names)
        if not ids & named or all(self.names[int(text)] == text for text in ids & named):
            return 0  # no text is both, with two meanings
        if len(ids) == len(named) < len(texts):
            raise ValueError(
                f"{self.path} names the labels {files.quote_all(self.names)}, but "
                f"{files.quote_all(sorted(texts))} are neither all names nor all ids from 0 to "
                f"{last}: write one of them in all files"
            )
        if len(ids) == len(named):  # as `datasets` reads them
            are_ids = self.are_cells or not are_text
            if are_text:
                kind = "ids" if are_ids else "names"
                self._warn("may be ids or names, and are taken as %s", kind)
            return 0 if are_ids else None
        return 0 if len(ids) > len(named) else None

    def _start_of_all(self, texts: set[str]) -> int | None:
        """Returns from where ids are counted if all values are ids, and tell that."""
        names = set(map(folded, self.names))
        if not texts or not all(map(is_integer, texts)) or names & set(map(folded, texts)):
            return None
        if self.first_id is not None:
            return self.first_id
        numbers = set(map(int, texts))
        count = len(self.names)
        for start in (0, 1):
            if numbers <= set(range(start, count + start)) and numbers & {0, count}:
                self._warn("are ids, counted from %d: %d is %s", start, start, self.names[0])
                return start
        return None

    def _warn(self, said: str, *values: object) -> None:
        logging.warning(
            "%s: with the labels %s, the values " + said, self.path, abbreviate(self.names), *values
        )

    def label(self, value: object, start: int) -> object:
        """Returns the label of an id; that of a name which cannot be an id; others unchanged."""
        text = self._text(value)
        if not is_integer(text) or (text in self.names and not self._has_id(text, start)):
            return self._label_of_name(value)
        if text == "-1":
            return None
        if not self._has_id(text, start):
            count = len(self.names)
            expected = f"from 1 to {count}" if start else f"below {count}"
            hint = ""
            if int(text) == count:
                hint = ". If the ids are counted from 1, subtract 1"
            return BadRowError(f"label {text}: expected an id {expected}{hint}")
        return self.labels[int(text) - start]

    def _has_id(self, text: str, start: int) -> bool:
        return 0 <= int(text) - start < len(self.names)

    def _label_of_name(self, value: object) -> object:
        text = self._text(value)
        return self.labels[self.names.index(text)] if text in self.names else value


def _find_declarations(
    columns: Mapping[str, LabelColumn], task: ClassificationTask, asked: Sequence[str]
) -> dict[tuple[str, ...], Declaration]:
    """Returns names → their declaration, for the splits whose class ids have names."""
    found: dict[tuple[str, ...], Declaration] = {}
    for split, column in columns.items():
        names, labels, path = tuple(asked), tuple(asked), "--labels"
        if column.names is not None:
            names, path = column.names.names, column.table.labels_path
            labels = _labels_of_names(names, task, path)
        if not names or column.parts:
            continue
        group = found.setdefault(
            names,
            Declaration(
                names, labels, path, [], column.table.has_cells, column.names is None, task.first_id
            ),
        )
        group.splits.append(split)
        group.are_cells &= column.table.has_cells
    return found


def _labels_of_names(names: Sequence[str], task: ClassificationTask, path: str) -> tuple[str, ...]:
    """Returns the label of the task that each name of a class id stands for.

    Names that are labels of the task are these labels. Other names say what "0", "1" and so on
    mean, if these are the labels of the task, and there are as many: "acceptable" of CoLA is "1".

    Raises:
        ValueError: the names are neither.
    """
    if not task.labels or any(_is_label(name, task) for name in names):
        return tuple(names)
    are_numbers = task.labels == tuple(map(str, range(len(names))))
    if len(task.labels) == len(names) and (are_numbers or tasks.are_default(list(task.labels))):
        return task.labels
    raise ValueError(
        f"{path}: the labels are named {files.quote_all(names)}; expected those of the task, "
        f"{files.quote_all(task.labels)}"
    )


def _is_label(name: str, task: ClassificationTask) -> bool:
    try:
        parse_label(name, task)
    except BadRowError:
        return False
    return True


# Integers with a point.


def _drop_points(splits: Sequence[str], values: Values, telling: Collection[str]) -> None:
    """Replaces 1.0 by 1 if all values are integers, and some have no point or are blank."""
    told = [values[split] for split in splits if split in telling]
    numbers = {str(x).strip() for part in told for x in _elements(part)}
    with_point = {number for number in numbers if without_point(number) != number}
    if not with_point or not all(map(is_integer, numbers)):
        return
    has_blank = any(
        any(map(is_blank, part)) and not with_point.isdisjoint(map(str, part)) for part in told
    )
    if has_blank or len(with_point) < len(numbers):
        for split in splits:
            _replace(values[split], _without_point)


def _without_point(value: object) -> object:
    text = str(value).strip()
    return without_point(text) if is_integer(text) else value


# The labels of training data, and how labels are spelled.


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
        labels, train.table.path, " If these are the labels, list all of them in --labels"
    )
    fraction = next((x for x in labels if is_number(x) and float(x) % 1), None)
    if fraction is not None:
        raise ValueError(
            f"{train.table.place(rows[fraction])}: label {files.quote(fraction)} is a fraction. To "
            "predict numbers, pass --is_regression; to predict one of these classes, list all of "
            "them in --labels. Is --label_column right?"
        )
    for label in filter(is_none, labels):
        logging.warning(
            "%s: %s is taken as a label. If it means no label, list the others in --labels; such "
            "rows are then skipped",
            train.table.place(rows[label]),
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
        raise ValueError(f"{train.table.labels_path}: {error}") from None
    if len(set(labels)) < len(labels):
        raise ValueError(
            f"{train.table.labels_path}: labels are named alike: {files.quote_all(labels)}"
        )
    check_number_of_labels(labels[:MAX_LABELS], train.table.labels_path)
    missing = [label for label in labels if label not in rows]
    if missing:
        logging.warning("%s: no row has the label %s", train.table.path, abbreviate(missing))
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
            *(train.table.path, "; ".join(alike)),
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

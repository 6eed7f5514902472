"""Class ids whose names are declared: whether values are ids or names, and of which labels."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from absl import logging

from albert_tf import files
from albert_tf.checkpoints import tasks
from albert_tf.finetuning.classification.label_columns import (
    LabelColumn,
    Values,
    elements,
    replace,
)
from albert_tf.finetuning.classification.labels import (
    folded,
    is_integer,
    parse_label,
    without_point,
)
from albert_tf.finetuning.classification.tasks import ClassificationTask
from albert_tf.finetuning.rows import BadRowError, abbreviate


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
            shows from where they are counted.
    """

    names: Sequence[str]
    labels: Sequence[str]
    path: str
    splits: list[str]
    are_cells: bool
    must_be_all: bool = False

    def decode(self, values: Values, telling: Collection[str]) -> None:
        """Replaces ids, where values are ids, by the labels that they stand for.

        Args:
            values: the values of all splits.
            telling: the splits that tell whether values are ids.
        """
        splits = [split for split in self.splits if split in telling] or self.splits
        in_use = [x for split in splits for x in elements(values[split])]
        texts = set(filter(None, map(self._text, in_use)))
        start = self._start(texts, all(isinstance(x, str) for x in in_use))
        if start is not None:
            for split in self.splits:
                replace(values[split], lambda value: self.label(value, start))
        elif not self.must_be_all:
            for split in self.splits:
                replace(values[split], self._label_of_name)

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
            hint = ""
            if int(text) == len(self.names):
                hint = ". If the ids are counted from 1, subtract 1"
            return BadRowError(f"label {text}: expected an id below {len(self.names)}{hint}")
        return self.labels[int(text) - start]

    def _has_id(self, text: str, start: int) -> bool:
        return 0 <= int(text) - start < len(self.names)

    def _label_of_name(self, value: object) -> object:
        text = self._text(value)
        return self.labels[self.names.index(text)] if text in self.names else value


def find_declarations(
    columns: Mapping[str, LabelColumn], task: ClassificationTask, asked: Sequence[str]
) -> dict[tuple[str, ...], Declaration]:
    """Returns names → their declaration, for the splits whose class ids have names."""
    found: dict[tuple[str, ...], Declaration] = {}
    for split, column in columns.items():
        names, labels, path = tuple(asked), tuple(asked), "--labels"
        if column.names is not None:
            names, path = column.names.names, column.declared_in
            labels = labels_of_names(names, task, path)
        if not names or column.parts:
            continue
        group = found.setdefault(
            names, Declaration(names, labels, path, [], column.has_cells, column.names is None)
        )
        group.splits.append(split)
        group.are_cells &= column.has_cells
    return found


def labels_of_names(names: Sequence[str], task: ClassificationTask, path: str) -> tuple[str, ...]:
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

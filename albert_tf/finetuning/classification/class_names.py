"""Converts the class ids of a column to labels of a task, by the names that the data have for them.

The order of the names is that of the data, and mostly not that of the task: in MNLI of the Hugging
Face Hub, 0 is entailment, and in Google's checkpoints contradiction.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from albert_tf import files
from albert_tf.checkpoints import huggingface_task
from albert_tf.finetuning.classification.labels import parse_label
from albert_tf.finetuning.classification.tasks import ClassificationTask
from albert_tf.finetuning.rows import BadRowError
from albert_tf.tables import LabelNames

_NUMBER = re.compile(r"-?[0-9]{1,9}")


class ClassNames:
    """The names of the labels of a column, as labels of a task.

    Names that are labels of the task are these labels. Other names say what "0", "1" and so on
    mean, if these are the labels of the task, and there are as many: "acceptable" of CoLA is "1".

    Args:
        names: the names, in the order of the ids.
        task: the task.
        path: the file that has the names, for messages.

    Raises:
        ValueError: the names are neither.
    """

    def __init__(self, names: LabelNames, task: ClassificationTask, path: str) -> None:
        self._names = names
        self._task = task
        self._are_positions = False
        labels = task.labels
        if task.is_regression or any(_is_label(name, task) for name in names.names):
            return
        if len(labels) != len(names.names) or not _are_ids(labels):
            raise ValueError(
                f"{path}: the labels are named {files.quote_all(names.names)}; expected those of "
                f"the task, {files.quote_all(labels)}"
            )
        self._are_positions = True

    def decode(self, value: files.Json) -> files.Json:
        """Returns the labels, or what else can be parsed, for the ids in a cell.

        Raises:
            BadRowError: an id has no name.
        """
        if self._task.is_regression:
            return value
        if isinstance(value, list):
            return [self.decode(item) for item in value]
        if isinstance(value, str):  # in files of cells, ids are text as well
            value = self._id_of(value)
        if not isinstance(value, int) or isinstance(value, bool) or value == -1:
            return None if value == -1 else value
        if not 0 <= value < len(self._names.names):
            raise BadRowError(f"label {value}: expected an id below {len(self._names.names)}")
        return self._task.labels[value] if self._are_positions else self._names.names[value]

    def _id_of(self, text: str) -> int | str:
        """Returns the id that a name, or else a number, means; other texts unchanged."""
        if text in self._names.names:
            return self._names.names.index(text)
        return int(text) if _NUMBER.fullmatch(text.strip()) else text


def _is_label(name: str, task: ClassificationTask) -> bool:
    try:
        parse_label(name, task)
    except BadRowError:
        return False
    return True


def _are_ids(labels: Sequence[str]) -> bool:
    """Returns whether labels are numbers from 0, or the default names of transformers."""
    are_numbers = tuple(labels) == tuple(map(str, range(len(labels))))
    return are_numbers or huggingface_task.are_default(list(labels))

"""Chooses the training examples that a run keeps beside its model, to try it with."""

from __future__ import annotations

import itertools
import json

from albert_tf import files
from albert_tf.finetuning.examples import Examples
from albert_tf.finetuning.task import AnyTask

COUNT = 3
MAX_CHARACTERS = 2000  # of a row
_LOOKED_AT = 100  # examples at the beginning of the data


def choose_examples(task: AnyTask, data: object) -> list[files.JsonObject]:
    """Returns the first examples that are not very long, as rows that `albert predict` reads.

    Args:
        task: the task.
        data: the examples of a split, as the task's `read` returned them.

    Returns:
        Up to `COUNT` rows without labels; [] if the task does not say how to make them.
    """
    if not isinstance(data, Examples):
        return []
    try:
        rows = list(map(task.as_row, data.examples[:_LOOKED_AT]))
    except (AttributeError, TypeError):  # of a user's task, whose examples are of another class
        return []
    short = (
        row for row in rows if row and len(json.dumps(row, ensure_ascii=False)) <= MAX_CHARACTERS
    )
    return list(itertools.islice(short, COUNT))

"""The examples of a split, as the readers of all tasks return them, and those that a run keeps."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from albert_tf import files

ExampleType = TypeVar("ExampleType")

COUNT = 3  # examples that a run keeps
MAX_CHARACTERS = 2000  # of a row
_LOOKED_AT = 100  # examples at the beginning of the data


@dataclasses.dataclass(frozen=True)
class Examples(Generic[ExampleType]):
    """The examples of a split.

    Attributes:
        path: the file or folder, or where else they are from.
        examples: all usable examples, in the order of the file. Their `repr` says everything that a
            model learns from them, and nothing else, such as ids or lines. It is the same in every
            process.
        has_labels: whether the labels of every example are known.

    Raises:
        ValueError: there is no example.
    """

    path: str
    examples: list[ExampleType]
    has_labels: bool = False

    def __post_init__(self) -> None:
        if not self.examples:
            raise ValueError(f"{self.path}: contains no example")

    def __len__(self) -> int:
        return len(self.examples)

    def checksum(self) -> str:
        """Returns the SHA-256 of all examples, in hexadecimal, whatever file they are from."""
        digest = hashlib.sha256()
        for example in self.examples:
            digest.update(repr(example).encode("utf-8"))
        return digest.hexdigest()


def choose_examples(
    as_row: Callable[[Any], files.JsonObject], data: object
) -> list[files.JsonObject]:
    """Returns the first examples that are not very long, as rows that `albert predict` reads.

    A run keeps them beside its model, to try it with.

    Args:
        as_row: `FineTuningTask.as_row` of the task.
        data: the examples of a split, as the task's `read` returned them.

    Returns:
        Up to `COUNT` rows without labels; [] if the task does not say how to make them.
    """
    if not isinstance(data, Examples):
        return []
    try:
        rows = list(map(as_row, data.examples[:_LOOKED_AT]))
    except (AttributeError, TypeError):  # of a user's task, whose examples are of another class
        return []
    short = (
        row for row in rows if row and len(json.dumps(row, ensure_ascii=False)) <= MAX_CHARACTERS
    )
    return list(itertools.islice(short, COUNT))

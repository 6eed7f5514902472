"""The examples of a split, which the readers of all tasks return."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any, Generic, Protocol, TypeVar


class Example(Protocol):
    """What an example of any task tells about itself."""

    @property
    def is_labeled(self) -> bool:
        """Whether its labels are known."""

    @property
    def content(self) -> tuple[Any, ...]:
        """All that a model learns from it, with the same `repr` in every process."""


DataType = TypeVar("DataType", bound=Any)
ExampleType = TypeVar("ExampleType", bound=Example)


@dataclasses.dataclass(frozen=True)
class Examples(Generic[ExampleType]):
    """The examples of a split.

    Attributes:
        path: the file or folder, or where else they are from.
        split: "train", "dev" or "test".
        examples: all usable examples, in the order of the file.
        task: the task, as its reader knows it.
    """

    path: str
    split: str
    examples: list[ExampleType]
    task: Any = None

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def has_labels(self) -> bool:
        """Whether the labels of every example are known."""
        return all(example.is_labeled for example in self.examples)

    def checksum(self) -> str:
        """Returns the SHA-256 of the content of all examples, in hexadecimal."""
        digest = hashlib.sha256()
        for example in self.examples:
            digest.update(repr(example.content).encode("utf-8"))
        return digest.hexdigest()


def first_examples(data: DataType, count: int) -> DataType:
    """Returns the first `count` examples of a split, or all of them if `count` is 0.

    Args:
        data: a dataclass with `examples`. If its `checksum` is a text, that of the file, the number
            of examples is added to it.
        count: number of examples.
    """
    if not 0 < count < len(data.examples):
        return data
    changes: dict[str, Any] = {"examples": data.examples[:count]}
    if isinstance(data.checksum, str):
        changes["checksum"] = f"{data.checksum}, the first {count}"
    return dataclasses.replace(data, **changes)

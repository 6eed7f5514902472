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

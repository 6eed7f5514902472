"""The examples of a split, as the readers of all tasks return them."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Generic, TypeVar

ExampleType = TypeVar("ExampleType")


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

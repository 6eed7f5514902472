"""The examples of a split, checks of their labels, and the examples that a run keeps.

Training data are tokenized while they are read, a block at a time, and their texts are forgotten:
what is left are features, a checksum, and a few examples to show; see `encode_examples`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from absl import logging

from albert_tf import files
from albert_tf.finetuning.batching import Features
from albert_tf.finetuning.rows import abbreviate

if TYPE_CHECKING:
    from typing_extensions import Self

ExampleType = TypeVar("ExampleType")
FeaturesType = TypeVar("FeaturesType", bound=Features)  # as `make_features` of a task returns them

EXAMPLES_AT_ONCE = 1000  # whose texts are in memory
COUNT = 3  # examples that a run keeps
MAX_CHARACTERS = 2000  # of a row
LOOKED_AT = 100  # examples at the beginning of the data


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
    examples: Sequence[ExampleType]
    has_labels: bool = False

    def __post_init__(self) -> None:
        if not self.examples:
            raise ValueError(f"{self.path}: contains no example")

    def __len__(self) -> int:
        return len(self.examples)

    def take(self, places: Sequence[int]) -> Self:
        """Returns some of the examples, given their places in ascending order."""
        return dataclasses.replace(self, examples=[self.examples[place] for place in places])

    def checksum(self) -> str:
        """Returns the SHA-256 of all examples, in hexadecimal, whatever file they are from."""
        digest = hashlib.sha256()
        for example in self.examples:
            digest.update(repr(example).encode("utf-8"))
        return digest.hexdigest()


@dataclasses.dataclass(frozen=True)
class EncodedExamples(Examples[ExampleType], Generic[ExampleType, FeaturesType]):
    """The examples of a split whose features were made while they were read.

    Attributes:
        examples: those that are kept: of training data only the first ones, to show them.
        features: the features of all examples.
        digest: the checksum of all examples.
        count: their number.
    """

    features: FeaturesType = dataclasses.field(kw_only=True)
    digest: str = dataclasses.field(kw_only=True)
    count: int = dataclasses.field(kw_only=True)

    def __len__(self) -> int:
        return self.count

    def checksum(self) -> str:
        """Returns the SHA-256 of all examples, in hexadecimal, whatever file they are from."""
        return self.digest


class _Passing(Generic[ExampleType]):
    """Passes examples on, and keeps the first ones, the number and the checksum of all."""

    def __init__(self) -> None:
        self.first: list[ExampleType] = []
        self.count = 0
        self.digest = hashlib.sha256()

    def through(self, examples: Iterable[ExampleType]) -> Iterator[ExampleType]:
        for block in blocks_of(examples):
            self.first += block[: LOOKED_AT - len(self.first)]
            self.count += len(block)
            self.digest.update("".join(map(repr, block)).encode("utf-8"))
            yield from block


def encode_examples(
    path: str,
    examples: Iterable[ExampleType],
    encode: Callable[[Iterable[ExampleType]], FeaturesType],
) -> EncodedExamples[ExampleType, FeaturesType]:
    """Makes the features of training examples, all of which have labels, and forgets the others.

    Args:
        path: the file.
        examples: the examples, which may be read while this runs.
        encode: makes their features; it holds few examples at a time.

    Raises:
        ValueError: there is no example, or what reading them raises.
    """
    passing = _Passing[ExampleType]()
    features = encode(passing.through(examples))
    return EncodedExamples(
        path,
        passing.first,
        has_labels=True,
        features=features,
        digest=passing.digest.hexdigest(),
        count=passing.count,
    )


def blocks_of(
    examples: Iterable[ExampleType], size: int = EXAMPLES_AT_ONCE
) -> Iterator[list[ExampleType]]:
    """Yields the examples in lists of a size."""
    remaining = iter(examples)
    while block := list(itertools.islice(remaining, size)):
        yield block


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
        rows = list(map(as_row, data.examples[:LOOKED_AT]))
    except (AttributeError, TypeError):  # of a user's task, whose examples are of another class
        return []
    short = (
        row for row in rows if row and len(json.dumps(row, ensure_ascii=False)) <= MAX_CHARACTERS
    )
    return list(itertools.islice(short, COUNT))


MAX_LABELS = 1000  # more indicate a wrong column
_NONE = ("", "-", "-1", "-1.0")  # see `is_none`


def is_none(value: object) -> bool:
    """Returns whether a value is what data sets have in place of a label that is not known.

    This is null or NaN, nothing, -1 (test data of the Hub) or "-" (annotators did not agree). A
    task may have one of them as a label, which is for the caller to know.
    """
    is_nan = isinstance(value, float) and math.isnan(value)
    return value is None or is_nan or str(value).strip() in _NONE


def check_number_of_labels(labels: Sequence[str], path: str, otherwise: str = "") -> None:
    """Raises ValueError if a file has fewer than two labels, or more than MAX_LABELS.

    Args:
        labels: the labels.
        path: the file.
        otherwise: what to do if the label column is right and there are more labels; "" if nothing
            can be done.
    """
    if not 2 <= len(labels) <= MAX_LABELS:
        raise ValueError(
            f"{path}: {len(labels)} different labels ({abbreviate(labels)}), expected 2 to "
            f"{MAX_LABELS}. Is --label_column right?{otherwise if len(labels) > 1 else ''}"
        )


class Unlabeled:
    """The rows, or tokens, of a split whose label is not known.

    In a test split they are predicted; in any other they are left out.

    Args:
        path: the file.
        is_test: whether it is a test split.
    """

    def __init__(self, path: str, is_test: bool) -> None:
        self._path = path
        self._is_test = is_test
        self._count = 0
        self._first = ""

    def __len__(self) -> int:
        return self._count

    def add(self, place: str, count: int = 1) -> None:
        """Adds one, given where it is: the file, and the line or row; or several from there."""
        self._first = self._first or place.removeprefix(f"{self._path}, ")
        self._count += count

    def report(self, num_examples: int) -> None:
        """Logs how many there are, and that a test split is not evaluated because of them.

        Nothing is logged if nothing in a test split has a label, as in most test files.

        Args:
            num_examples: the number of examples, or tokens, that are used.
        """
        if self._is_test and 0 < self._count < num_examples:
            logging.warning(
                "%s: predicted, but not evaluated: %d of %d have no known label; the first is %s",
                *(self._path, self._count, num_examples, self._first),
            )
        elif self._count and not self._is_test:
            logging.warning(
                "%s: %d of %d rows are skipped, because they have no label; the first is %s",
                *(self._path, self._count, num_examples + self._count, self._first),
            )

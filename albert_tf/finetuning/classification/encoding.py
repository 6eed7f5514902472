"""Examples whose texts are tokenized while they are read, a block at a time, and then forgotten.

What is left of an example are its token ids, and its id, line and label as columns. What identifies
the examples, their checksum, is computed in the same pass with what labels seem to mean; if they
turn out to mean something else, the rows are read again for it.
"""

from __future__ import annotations

import array
import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

from albert_tf.finetuning.classification.labels import Label
from albert_tf.finetuning.examples import EncodedExamples
from albert_tf.finetuning.token_sequences import Packer, TokenSequences
from albert_tf.model.tokenization import Tokenizer

_NO_ID = b"\x00"  # in place of an id

# Called with the texts, the second texts, and the indices of the labels of some rows.
Sink = Callable[[Sequence[str], Sequence[str], Sequence[int]], None]


@dataclasses.dataclass(frozen=True, slots=True)
class Example:
    """A text or a pair of texts, with its label.

    Attributes:
        guid: id of the example in submissions: its own, or as in Google's program, which counts the
            header.
        text_a: the first or only text.
        text_b: the second text, or "".
        label: a label of the task, a number in regression, or the labels in a multi-label task;
            None if unknown.
        line: number of the line in the file, or of the row in files without lines, starting at 1.
        row: number of the row in the file, starting at 1. Neither a header nor blank lines count,
            so that it is the same in all formats.
        number: number of the example in the file, starting at 0; None if `guid` is its own id.
    """

    guid: str = dataclasses.field(repr=False)
    text_a: str
    text_b: str = ""
    label: Label = None
    line: int = dataclasses.field(default=0, repr=False)
    row: int = dataclasses.field(default=0, repr=False, compare=False)
    number: int | None = dataclasses.field(default=None, repr=False, compare=False)

    @property
    def id(self) -> str:
        """Its own id, or its split and number: the same in all formats."""
        split = self.guid.rpartition("-")[0]
        return self.guid if self.number is None else f"{split}-{self.number}"

    @property
    def labels(self) -> tuple[str, ...]:
        """The known labels."""
        return self.label if isinstance(self.label, tuple) else tuple(filter(None, [self.label]))


class Guids:
    """The numbers and ids of examples, in the memory of the letters of the latter.

    Args:
        split: the split, whose name and the number of the example are the id of one without an id.
        num_headers: the number of rows of the header, which Google's program counts; 0 or 1.

    Attributes:
        num_parts: the number of examples that each row of the file stands for.
    """

    def __init__(self, split: str, num_headers: int) -> None:
        self._split = split
        self._num_headers = num_headers
        self.num_parts = 1
        self._numbers = array.array("I")
        self._letters = bytearray()
        self._ends = array.array("Q")

    def add(self, number: int, guid: str | None) -> None:
        """Adds the number of an example, and its id; None if it has none."""
        self._numbers.append(number)
        if guid is None and not self._ends:
            return
        missing = len(self._numbers) - 1 - len(self._ends)
        for own in [*[None] * missing, guid]:
            self._letters += _NO_ID if own is None else own.encode("utf-8")
            self._ends.append(len(self._letters))

    def __getitem__(self, place: int) -> tuple[str, int, int | None]:
        """Returns the `guid`, the `row` and the `number` of an example; see `Example`."""
        number = self._numbers[place]
        row = number // self.num_parts + 1
        if self._ends:
            begin = self._ends[place - 1] if place else 0
            own = bytes(self._letters[begin : self._ends[place]])
            if own != _NO_ID:
                return own.decode("utf-8"), row, None
        return f"{self._split}-{number + self._num_headers * self.num_parts}", row, number


class Checksum:
    """The SHA-256 of examples, as `Examples.checksum` computes it, from blocks of rows.

    Args:
        labels: the label of each distinct value; a list that may grow. None leaves a row out.
        is_chosen: whether each row is one of the examples; None for all.
    """

    def __init__(self, labels: Sequence[Label], is_chosen: NDArray[np.bool_] | None = None) -> None:
        self._labels = labels
        self._is_chosen = is_chosen
        self._num_rows = 0
        self._digest = hashlib.sha256()

    def __call__(
        self, firsts: Sequence[str], seconds: Sequence[str], indices: Sequence[int]
    ) -> None:
        """Adds a block."""
        labels = [self._labels[index] for index in indices]
        if self._is_chosen is not None:
            chosen = self._is_chosen[self._num_rows : self._num_rows + len(labels)].tolist()
            rows = zip(firsts, seconds, labels, chosen, strict=True)
            parts = [_text_of(a, b, label) for a, b, label, is_chosen in rows if is_chosen]
        else:
            rows_of_all = zip(firsts, seconds, labels, strict=True)
            parts = [_text_of(a, b, label) for a, b, label in rows_of_all if label is not None]
        self._num_rows += len(labels)
        self._digest.update("".join(parts).encode("utf-8"))

    def hexdigest(self) -> str:
        """Returns the checksum, in hexadecimal."""
        return self._digest.hexdigest()


def _text_of(first: str, second: str, label: Label) -> str:
    """Returns the `repr` of an example, without the example."""
    return f"Example(text_a={first!r}, text_b={second!r}, label={label!r})"


class ExampleColumns(Sequence[Example]):
    """Examples by column, of which only the first ones have texts.

    Args:
        guids: the ids of all rows.
        lines: the lines of all rows.
        indices: the index of the label among `labels`, of all rows.
        labels: the distinct labels.
        texts: the texts of the first rows; those of others are "".
        rows: the rows that are examples, in ascending order.
    """

    def __init__(
        self,
        guids: Guids,
        lines: Sequence[int],
        indices: NDArray[np.int32],
        labels: Sequence[Label],
        texts: Sequence[tuple[str, str]],
        rows: NDArray[np.int64],
    ) -> None:
        self._guids = guids
        self._lines = lines
        self._indices = indices
        self._labels = labels
        self._texts = texts
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, place: int) -> Example: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Example]: ...

    def __getitem__(self, place: int | slice) -> Example | Sequence[Example]:
        if isinstance(place, slice):
            return [self._example(row) for row in self.rows[place].tolist()]
        return self._example(int(self.rows[place]))

    def __iter__(self) -> Iterator[Example]:
        return map(self._example, self.rows)

    def _example(self, row: int) -> Example:
        first, second = self._texts[row] if row < len(self._texts) else ("", "")
        label = self._labels[self._indices[row]]
        guid, number_of_row, number = self._guids[row]
        return Example(guid, first, second, label, self._lines[row], number_of_row, number)

    def take(self, places: NDArray[np.integer]) -> ExampleColumns:
        """Returns some of the examples, given their places in ascending order."""
        return ExampleColumns(
            *(self._guids, self._lines, self._indices, self._labels, self._texts),
            self.rows[places],
        )

    def new_checksum(self) -> Checksum:
        """Returns the checksum of these examples, before any block is added."""
        is_chosen = np.zeros(len(self._indices), bool)
        is_chosen[self.rows] = True
        return Checksum(self._labels, is_chosen)

    @property
    def distinct_labels(self) -> Sequence[Label]:
        """The distinct labels of all rows."""
        return self._labels

    @property
    def label_indices(self) -> NDArray[np.int32]:
        """The index of the label of each example among the distinct ones, int32 [N]."""
        return self._indices[self.rows]


def labels_of(examples: Sequence[Example]) -> tuple[Sequence[Label], NDArray[np.integer]]:
    """Returns distinct labels, or all, and the index of that of each example among them."""
    if isinstance(examples, ExampleColumns):
        return examples.distinct_labels, examples.label_indices
    return [example.label for example in examples], np.arange(len(examples))


@dataclasses.dataclass(frozen=True)
class EncodedTexts(EncodedExamples[Example, TokenSequences]):
    """The examples of a split with their token sequences.

    Attributes:
        examples: all examples; of most, the texts are forgotten.
        features: the token sequences of all examples, without labels.
        digest: the checksum, if it was computed while the rows were read; "" if not.
        read_again: calls what it is given with all rows in blocks, as the first pass did.
    """

    examples: ExampleColumns
    read_again: Callable[[Sink], None] = dataclasses.field(kw_only=True)

    def checksum(self) -> str:
        """Returns the SHA-256 of all examples, in hexadecimal, whatever file they are from."""
        if self.digest:
            return self.digest
        checksum = self.examples.new_checksum()
        self.read_again(checksum)
        return checksum.hexdigest()

    def take(self, places: Sequence[int]) -> EncodedTexts:
        """Returns some of the examples, given their places in ascending order."""
        chosen = np.asarray(places, np.int64)
        return dataclasses.replace(
            self,
            examples=self.examples.take(chosen),
            features=self.features.take(chosen),
            digest="",
            count=len(chosen),
        )


class FirstPass:
    """Tokenizes texts, a block at a time, identically to Google's program.

    Longer pairs are truncated at the end of the longer text.

    Args:
        tokenizer: the tokenizer.
        max_seq_length: maximum number of tokens.
        guess: returns what the distinct value with an index seems to mean; None to compute no
            checksum.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        max_seq_length: int,
        guess: Callable[[int], Label] | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._max_seq_length = max_seq_length
        self._packer = Packer()
        self._guess = guess
        self._guesses: list[Label] = []
        self._checksum = Checksum(self._guesses)

    def __call__(
        self, firsts: Sequence[str], seconds: Sequence[str], indices: Sequence[int]
    ) -> None:
        """Adds a block."""
        self._packer.extend(self._tokenizer.pair_sequences(firsts, seconds, self._max_seq_length))
        if self._guess is not None:
            for index in range(len(self._guesses), max(indices) + 1):
                self._guesses.append(self._guess(index))
            self._checksum(firsts, seconds, indices)

    def features(self) -> TokenSequences:
        """Returns the token sequences of all rows, after the last block, without labels."""
        return self._packer.packed({})

    def examples(
        self,
        path: str,
        columns: ExampleColumns,
        has_labels: bool,
        read_again: Callable[[Sink], None],
    ) -> EncodedTexts:
        """Returns the examples, after the last block; see `EncodedTexts`."""
        features = self.features()
        if len(columns) < len(features):
            features = features.take(columns.rows)
        is_right = self._guess is not None and self._guesses == columns.distinct_labels
        return EncodedTexts(
            path,
            columns,
            has_labels,
            features=features,
            digest=self._checksum.hexdigest() if is_right else "",
            count=len(columns),
            read_again=read_again,
        )

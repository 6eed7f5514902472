"""Examples whose texts are tokenized while they are read, a block at a time, and then forgotten.

What is left of an example are its token ids, and its id, line and label as columns. What identifies
the examples, their checksum, is computed in the same pass with what labels seem to mean; if they
turn out to mean something else, the rows are read again for it.
"""

from __future__ import annotations

import array
import copy
import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, overload

import numpy as np
from absl import logging
from numpy.typing import NDArray

from albert_tf.finetuning.classification.labels import Label
from albert_tf.finetuning.classification.meaning import LabelColumn, Meaning
from albert_tf.finetuning.classification.parsing import Block, RowParser
from albert_tf.finetuning.classification.tasks import CUSTOM_TASK
from albert_tf.finetuning.examples import LOOKED_AT, EncodedExamples, Unlabeled
from albert_tf.finetuning.rows import MAX_BAD, BadRowError, refusal_of
from albert_tf.finetuning.token_sequences import Packer, TokenSequences
from albert_tf.model.tokenization import Tokenizer

if TYPE_CHECKING:
    from typing_extensions import Self

_NO_ID = b"\x00"  # in place of an id


@dataclasses.dataclass(frozen=True, slots=True)
class Example:
    """A text or a pair of texts, with its label.

    Attributes:
        guid: id of the example in submissions: its own, or as in Google's program, which counts the
            header.
        text_a: the first or only text; "" if it is forgotten.
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


class ExampleColumns(Sequence[Example]):
    """Examples by column, of which only the first ones have texts.

    Args:
        split: the split, whose name and the number of the example are the id of one without an id.
        num_headers: the number of rows of the header, which Google's program counts; 0 or 1.

    Attributes:
        lines: the line of each row.
        indices: the index of each label among `labels`.
        labels: the distinct labels.
        rows: the rows that are examples, in ascending order.
    """

    labels: Sequence[Label]
    rows: NDArray[np.int64]

    def __init__(self, split: str, num_headers: int) -> None:
        self._split = split
        self._num_headers = num_headers
        self._num_parts = 1
        self._texts: list[tuple[str, str]] = []
        self.lines = array.array("I")
        self.indices = array.array("i")
        self._numbers = array.array("I")
        self._letters = bytearray()  # of all ids
        self._ends = array.array("Q")  # of each id

    def extend(self, block: Block, indices: Iterable[int]) -> None:
        """Adds rows, with the indices of their labels."""
        rest = max(LOOKED_AT - len(self._texts), 0)
        self._texts += zip(block.firsts[:rest], block.seconds[:rest], strict=True)
        self.lines.extend(block.lines)
        self.indices.extend(indices)
        self._numbers.extend(block.numbers)
        self._num_parts = block.num_parts
        for own in block.guids or ():
            self._letters += _NO_ID if own is None else own.encode("utf-8")
            self._ends.append(len(self._letters))

    def take(self, places: NDArray[np.integer]) -> Self:
        """Returns some of the examples, given their places in ascending order."""
        other = copy.copy(self)
        other.rows = self.rows[places]
        return other

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
        return map(self._example, self.rows.tolist())

    def _example(self, row: int) -> Example:
        number = self._numbers[row]
        counted: int | None = number
        guid = f"{self._split}-{number + self._num_headers * self._num_parts}"
        if self._ends:
            own = self._letters[self._ends[row - 1] if row else 0 : self._ends[row]]
            if own != _NO_ID:
                guid, counted = own.decode("utf-8"), None
        texts = self._texts[row] if row < len(self._texts) else ("", "")
        label = self.labels[self.indices[row]]
        return Example(guid, *texts, label, self.lines[row], number // self._num_parts + 1, counted)

    def label_indices(self) -> NDArray[np.int32]:
        """Returns the index of the label of each example, int32 [N]."""
        return np.array(self.indices, np.int32)[self.rows]


def repr_of_examples(block: Block, labels: Sequence[Label], is_chosen: Sequence[bool]) -> bytes:
    """Returns the `repr` of the chosen examples of a block, without the examples."""
    rows = zip(block.firsts, block.seconds, labels, is_chosen, strict=True)
    parts = [
        f"Example(text_a={a!r}, text_b={b!r}, label={c!r})" for a, b, c, chosen in rows if chosen
    ]
    return "".join(parts).encode("utf-8")


@dataclasses.dataclass(frozen=True)
class EncodedTexts(EncodedExamples[Example, TokenSequences]):
    """The examples of a split with their token sequences.

    Attributes:
        examples: all examples.
        digest: the checksum, if it was computed while the rows were read; "" if not.
        read_again: reads all rows again, in blocks.
    """

    examples: ExampleColumns
    read_again: Callable[[], Iterator[Block]] = dataclasses.field(kw_only=True)

    def checksum(self) -> str:
        """Returns the SHA-256 of all examples, in hexadecimal, whatever file they are from."""
        if self.digest:
            return self.digest
        is_chosen = np.zeros(len(self.examples.indices), bool)
        is_chosen[self.examples.rows] = True
        digest = hashlib.sha256()
        begin = 0
        for block in self.read_again():
            rows = slice(begin, begin + len(block.firsts))
            labels = [self.examples.labels[index] for index in self.examples.indices[rows]]
            digest.update(repr_of_examples(block, labels, is_chosen[rows].tolist()))
            begin = rows.stop
        return digest.hexdigest()

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
    """Tokenizes the texts of a split, and keeps the rest of its rows as columns.

    Texts become token ids as in Google's program: longer pairs are truncated at the end of the
    longer text.

    Args:
        parser: what takes examples from the rows.
        labels: collects the values of the labels.
        encoding: the tokenizer, and the maximum number of tokens.
        guess: returns what a value of a label seems to mean; None to compute no checksum.
    """

    def __init__(
        self,
        parser: RowParser,
        labels: LabelColumn,
        encoding: tuple[Tokenizer, int],
        guess: Callable[[object], Label] | None,
    ) -> None:
        self.parser = parser
        self.labels = labels
        self._tokenizer, self._max_seq_length = encoding
        self._examples = ExampleColumns(parser.split, int(parser.header is not None))
        self._packer = Packer()
        self._guess = guess
        self._guesses: list[Label] = []
        self._digest = hashlib.sha256()

    def add(self, block: Block) -> list[int]:
        """Adds a block, and returns the indices of its labels among the distinct values."""
        indices = self.labels.indices(block.values, block.lines)
        self._examples.extend(block, indices)
        self._packer.extend(
            self._tokenizer.pair_sequences(block.firsts, block.seconds, self._max_seq_length)
        )
        if self._guess is not None:
            self._guesses += map(self._guess, self.labels.values[len(self._guesses) :])
            labels = [self._guesses[index] for index in indices]
            is_known = [label is not None for label in labels]
            self._digest.update(repr_of_examples(block, labels, is_known))
        return indices

    def examples(self, meanings: Sequence[Meaning]) -> EncodedTexts:
        """Returns the examples, after the last block.

        Rows without a label are left out, except in a test split.

        Args:
            meanings: what each distinct value of the labels means.

        Raises:
            ValueError: there are bad rows, or no example.
        """
        parser, examples = self.parser, self._examples
        is_test = parser.split == "test"
        self._refuse_bad(() if is_test else meanings)
        labels: list[Label] = [None if isinstance(x, BadRowError) else x for x in meanings]
        if is_test and parser.task.is_regression and parser.task.name == CUSTOM_TASK:
            labels = _without_placeholders(labels)
        is_known = np.array([label is not None for label in labels], bool)[examples.indices]
        examples.labels = labels
        examples.rows = np.arange(len(is_known))
        if not (is_test or parser.columns.label is None):
            examples.rows = np.flatnonzero(is_known)
        self._report(is_known, meanings)
        features = self._packer.packed({})
        if len(examples) < len(features):
            features = features.take(examples.rows)
        return EncodedTexts(
            self.labels.table.path,
            examples,
            bool(is_known[examples.rows].all()),
            features=features,
            digest=self._digest.hexdigest() if self._guesses == labels else "",
            count=len(examples),
            read_again=parser.read_again,
        )

    def _refuse_bad(self, meanings: Sequence[Meaning]) -> None:
        """Raises ValueError if rows are bad, or their labels are."""
        bad = dict(self.parser.bad)
        errors = {i: str(x) for i, x in enumerate(meanings) if isinstance(x, BadRowError)}
        if errors:
            for index, line in zip(self._examples.indices, self._examples.lines, strict=True):
                if index in errors:
                    bad.setdefault(line, errors[index])
        if bad:
            place = self.labels.table.place
            first = [(place(line), bad[line]) for line in sorted(bad)[:MAX_BAD]]
            has_good = any(line not in bad for line in self._examples.lines)
            raise refusal_of(first, has_good)

    def _report(self, is_known: NDArray[np.bool_], meanings: Sequence[Meaning]) -> None:
        """Logs what is skipped, and why a test split is not evaluated."""
        path, count = self.labels.table.path, len(self._examples)
        if self.parser.num_skipped:
            logging.warning(
                "%s: %d rows are skipped, as in Google's program: too few columns",
                *(path, self.parser.num_skipped),
            )
        unlabeled = Unlabeled(path, self.parser.split == "test")
        if not is_known.all():
            first = self._examples.lines[int(np.argmin(is_known))]
            unlabeled.add(self.labels.table.place(first), int(np.count_nonzero(~is_known)))
        unlabeled.report(count)
        strange = next((x for x in meanings if isinstance(x, BadRowError)), None)
        if strange is not None and len(unlabeled) == count:
            logging.warning("%s: predicted, but not evaluated: %s", path, strange)


def _without_placeholders(labels: list[Label]) -> list[Label]:
    """Returns the scores of a test split, which are not known if all are -1."""
    known = [label for label in labels if label is not None]
    return [None] * len(labels) if all(float(str(label)) == -1 for label in known) else labels

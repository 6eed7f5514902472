"""The questions of a file after checks of them all; training questions are tokenized meanwhile."""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, TypeAlias, TypeVar

from absl import logging

from albert_tf.finetuning.examples import EncodedExamples, encode_examples
from albert_tf.finetuning.rows import abbreviate
from albert_tf.finetuning.squad.questions import MAX_NAMED, SquadData, SquadExample
from albert_tf.finetuning.squad.settings import Settings
from albert_tf.finetuning.squad.windows import SquadFeatures, make_features
from albert_tf.model.tokenization import MarkRemoval, Tokenizer

CHECKED_QUESTIONS = 1000  # for lost marks, evenly spaced among all
_HAN = re.compile("[\u4e00-\u9fff]")

Encode: TypeAlias = Callable[[Iterable[SquadExample]], SquadFeatures]
T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class EncodedSquadData(SquadData, EncodedExamples[SquadExample, SquadFeatures]):
    """The training questions of a file with their features, of which few are kept."""


def make_data(
    path: str,
    questions: Iterable[tuple[SquadExample, bool]],
    declares_version_2: Callable[[], bool],
    is_training: bool,
    encode: Encode | None = None,
) -> SquadData:
    """Returns the questions of a file, after checks of them all.

    Args:
        path: the file.
        questions: the questions, and whether the answers of each are known; they may be read while
            this runs.
        declares_version_2: returns whether the file says that questions may be unanswerable; called
            after the last one.
        is_training: whether every question must have an answer or be marked as `is_impossible`. The
            first answer is used, and questions whose answer is not at its offset are skipped with a
            warning. If False, answers may be missing, and all questions are kept.
        encode: makes the features of training questions, which are then forgotten; None to keep
            them.

    Raises:
        ValueError: there is no question. For training, there is no usable question; otherwise,
            there are duplicate ids.
    """
    checks = _Checks(path, is_training)
    usable = checks.usable(questions)
    if encode is None:
        return checks.described(SquadData(path, list(usable)), declares_version_2())
    once = encode_examples(path, usable, encode)
    return checks.described(EncodedSquadData(**vars(once)), declares_version_2())


def encoded(data: SquadData, encode: Encode) -> SquadData:
    """Returns training questions with their features, of which few are kept."""
    once = encode_examples(data.path, data.examples, encode)
    return EncodedSquadData(**vars(data) | vars(once) | {"has_labels": data.has_labels})


DataType = TypeVar("DataType", bound=SquadData)


class _Checks:
    """What is checked of all questions of a file, one at a time; see `make_data`."""

    def __init__(self, path: str, is_training: bool) -> None:
        self._path = path
        self._is_training = is_training
        self._counts: collections.Counter[str] = collections.Counter()  # of ids
        self._lost: list[str] = []  # ids of those whose answer is not at its offset
        self._has_impossible = False
        self._are_known = True
        self._have_answers = True
        self._chinese: collections.Counter[str] = collections.Counter()  # texts of both kinds

    def usable(self, questions: Iterable[tuple[SquadExample, bool]]) -> Iterator[SquadExample]:
        """Yields the questions that are used; raises ValueError at the end."""
        for example, is_known in questions:
            self._add(example, is_known)
            if not self._is_training or example.is_impossible or example.is_answer_in_place:
                yield example
            else:
                self._lost.append(example.qas_id)
        self._report()

    def _add(self, example: SquadExample, is_known: bool) -> None:
        self._counts[example.qas_id] += 1
        self._has_impossible |= example.is_impossible
        self._are_known &= is_known
        self._have_answers &= bool(example.answers)
        for kind, texts in (("question", [example.question]), ("answer", example.answers)):
            self._chinese[kind] += len(texts)
            self._chinese[f"Chinese {kind}"] += sum(bool(_HAN.search(text)) for text in texts)

    def _report(self) -> None:
        if not self._counts:
            raise ValueError(f"{self._path}: contains no question")
        twice = _twice(self._counts)
        if twice and not self._is_training:
            raise _duplicate_ids(self._path, twice)
        if twice:
            logging.warning("%s: duplicate ids: %s", self._path, _name(twice))
        if self._lost:
            logging.warning(
                "%s: skipped, answer not at answer_start: %s", self._path, _name(self._lost)
            )
        if len(self._lost) == self._counts.total():
            raise ValueError(
                f"{self._path}: no answer occurs at its answer_start (in characters, starting at 0)"
            )

    def described(self, data: DataType, declares_version_2: bool) -> DataType:
        """Returns the questions with what is known of them all."""
        version_2 = self._has_impossible or declares_version_2
        kind = "answer" if self._chinese["answer"] else "question"
        return dataclasses.replace(
            data,
            # In SQuAD 1.1, either all questions have answers or the answers are unknown.
            has_labels=self._are_known and (version_2 or self._have_answers),
            version_2=version_2,
            is_chinese=2 * self._chinese[f"Chinese {kind}"] > self._chinese[kind],
        )


def refuse_duplicate_ids(path: str, examples: Sequence[SquadExample]) -> None:
    """Raises a ValueError if questions to predict have the same id."""
    twice = _twice(collections.Counter(example.qas_id for example in examples))
    if twice:
        raise _duplicate_ids(path, twice)


def _duplicate_ids(path: str, ids: Sequence[str]) -> ValueError:
    return ValueError(
        f"{path}: predictions are stored by id, but {_name(ids)} have duplicate ids. Give each "
        "question a unique id."
    )


def _twice(counts: collections.Counter[str]) -> list[str]:
    return [qas_id for qas_id, count in counts.items() if count > 1]


def _name(ids: Sequence[str]) -> str:
    noun = "question" if len(ids) == 1 else "questions"
    return f"{len(ids)} {noun} ({abbreviate(ids, MAX_NAMED)})"


class TrainingEncoder:
    """Makes the features of training questions, in the order of Google's programs.

    Args:
        tokenizer: the tokenizer.
        settings: how contexts are split, and the number of processes.
    """

    def __init__(self, tokenizer: Tokenizer, settings: Settings) -> None:
        self._tokenizer = tokenizer
        self._settings = settings

    def __call__(self, examples: Iterable[SquadExample]) -> SquadFeatures:
        """Returns the features, and warns of words that lose their marks.

        Raises:
            ValueError: no question has features.
        """
        sample = EvenSample[SquadExample](CHECKED_QUESTIONS)
        settings = self._settings
        features = make_features(
            *(sample.through(examples), self._tokenizer, settings.windows, True),
            settings.num_workers,
        )
        warn_of_lost_marks(sample.examples, self._tokenizer)
        return features.in_training_order(sample.count)


class EvenSample(Generic[T]):
    """Evenly spaced examples of those that pass: up to twice as many as asked for.

    Args:
        size: how many are asked for.

    Attributes:
        examples: these examples.
        count: the number of those that have passed.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._stride = 1
        self.examples: list[T] = []
        self.count = 0

    def through(self, examples: Iterable[T]) -> Iterator[T]:
        """Yields the examples."""
        for example in examples:
            if self.count % self._stride == 0:
                self.examples.append(example)
            if len(self.examples) == 2 * self._size:
                del self.examples[1::2]
                self._stride *= 2
            self.count += 1
            yield example


def evenly_spaced(examples: Iterable[SquadExample]) -> list[SquadExample]:
    """Returns the questions of all that `warn_of_lost_marks` looks at."""
    sample = EvenSample[SquadExample](CHECKED_QUESTIONS)
    collections.deque(sample.through(examples), maxlen=0)
    return sample.examples


def warn_of_lost_marks(checked: Sequence[SquadExample], tokenizer: Tokenizer) -> None:
    """Warns if normalization removes the marks of more than a few of the words of questions."""
    removal = MarkRemoval.of(tokenizer)
    if removal is None:
        return
    parts = {
        "the questions": [example.question for example in checked],
        "the contexts": list(dict.fromkeys(example.context for example in checked)),
        "the answers": [answer for example in checked for answer in example.answers],
    }
    for what, texts in parts.items():
        if problem := removal.count(texts).problem(what):
            logging.warning("%s", problem)

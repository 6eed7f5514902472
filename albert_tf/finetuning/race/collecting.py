"""Collects the questions of a split until it is known what labels mean, or tokenizes them."""

from __future__ import annotations

import array
import dataclasses
import hashlib
from collections.abc import Iterable, Sequence

from albert_tf.finetuning.examples import LOOKED_AT, EncodedExamples, Examples, blocks_of
from albert_tf.finetuning.race.answers import MEANINGS, UNKNOWN, LabelParser, Possible
from albert_tf.finetuning.race.questions import Question
from albert_tf.finetuning.race.sequences import OptionEncoder

LabeledQuestion = tuple[Question, Possible]  # whose label may still mean several options


@dataclasses.dataclass
class QuestionReader:
    """The questions of a split, as they are read.

    Attributes:
        path: the file or folder.
        questions: yields them without labels, and what the label of each may mean, once; then it
            raises ValueError if there is a bad row, whose message names the file and the place.
        labels: tells what the labels mean, when those of all splits have been read.
    """

    path: str
    questions: Iterable[LabeledQuestion]
    labels: LabelParser

    def read_all(self) -> Examples[Question]:
        """Returns all questions of a split whose labels tell alone what they mean.

        Raises:
            ValueError: there is none, or a bad row, or labels may mean several options.
        """
        return QuestionCollector(self).examples()


class QuestionCollector:
    """Reads the questions of a split; of all splits, before it is known what their labels mean.

    Args:
        reader: the questions.
        encoder: makes their features, after which all but the first ones are forgotten; None to
            keep them.
    """

    def __init__(self, reader: QuestionReader, encoder: OptionEncoder | None = None) -> None:
        self._path = reader.path
        self._labels = reader.labels
        self._encoder = encoder
        self._questions: list[Question] = []
        self._possible = array.array("i")  # what the label of each may mean
        self._checksums = [hashlib.sha256()]  # for each meaning, or the same for all
        for block in blocks_of(reader.questions):
            questions = [question for question, _ in block]
            for _, possible in block:
                self._possible.extend(possible)
            if encoder is None:
                self._questions += questions
            else:
                self._questions += questions[: LOOKED_AT - len(self._questions)]
                encoder.add(questions)
                self._add_to_checksums(block)

    def _add_to_checksums(self, block: Sequence[LabeledQuestion]) -> None:
        meanings = list(zip(*(possible for _, possible in block), strict=True))
        if len(self._checksums) == 1 and len(set(meanings)) > 1:
            self._checksums = [self._checksums[0].copy() for _ in meanings]
        for checksum, labels in zip(self._checksums, meanings, strict=False):
            questions = (question for question, _ in block)
            parts = map(_with_label, questions, labels)
            checksum.update("".join(map(repr, parts)).encode("utf-8"))

    def examples(self) -> Examples[Question]:
        """Returns the questions with their labels, when those of all splits have been read.

        Raises:
            ValueError: there is none, or it is unclear which options the labels mean.
        """
        meaning = self._labels.meaning()
        labels = self._possible[meaning :: len(MEANINGS)]
        examples = list(map(_with_label, self._questions, labels))
        has_labels = UNKNOWN not in labels
        if self._encoder is None or not labels:
            return Examples(self._path, examples, has_labels)
        return EncodedExamples(
            *(self._path, examples, has_labels),
            features=self._encoder.features(labels),
            digest=self._checksums[meaning % len(self._checksums)].hexdigest(),
            count=len(labels),
        )


def _with_label(question: Question, label: int) -> Question:
    return dataclasses.replace(question, label=None if label == UNKNOWN else label)


def read_again(data: Examples[Question]) -> QuestionReader:
    """Returns questions with known labels as if they were read."""
    questions = (
        (question, (UNKNOWN if question.label is None else question.label,) * len(MEANINGS))
        for question in data.examples
    )
    return QuestionReader(data.path, questions, LabelParser(data.path))

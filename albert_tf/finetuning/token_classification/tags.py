"""The labels of a model, and their tokens: words or characters, into which text is cut."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from absl import logging

from albert_tf import files
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.tasks import TOKEN_CLASSIFICATION
from albert_tf.finetuning.examples import check_number_of_labels, is_none
from albert_tf.finetuning.token_classification.sentences import Sentence
from albert_tf.finetuning.token_classification.spans import LETTERS, marks_spans
from albert_tf.model.tokenization.characters import find_words, is_cjk, word_kind

WORDS = "words"
CHARACTERS = "characters"


def cut(text: str, units: str) -> list[tuple[str, int]]:
    """Returns the tokens of raw text, and the index of the first character of each."""
    if units == CHARACTERS:
        return [(char, place) for place, char in enumerate(text) if not char.isspace()]
    return find_words(text)


def join_tokens(tokens: Sequence[str], units: str) -> str:
    """Returns the text of tokens: with spaces between words, but not next to Chinese characters.

    >>> join_tokens(["New", "York"], WORDS), join_tokens(["北", "京"], WORDS)
    ('New York', '北京')
    """
    text = ""
    for token in tokens:
        is_spaced = text and units == WORDS and not (is_cjk(text[-1]) or is_cjk(token[:1] or " "))
        text += f" {token}" if is_spaced else token
    return text


@dataclasses.dataclass(frozen=True)
class Tags:
    """The labels of a model, and what they are labels of.

    Attributes:
        labels: the labels, in the order of their ids.
        is_raw: whether each token with a label other than O is a span of its own, because labels do
            not mark the beginning and the inside of spans.
        units: what the tokens of the training data are, and so the tokens of raw text: WORDS as
            those of `find_words`, or CHARACTERS.
    """

    labels: tuple[str, ...]
    is_raw: bool = False
    units: str = WORDS


class TagFinder:
    """Finds the labels of training data, and whether their tokens are words, as they are read."""

    def __init__(self) -> None:
        self._lines: dict[str, int] = {}  # of the first sentence with a label
        self._num_words = 0
        self._num_characters = 0

    def add(self, sentence: Sentence) -> Sentence:
        """Looks at a sentence, and returns it.

        A Chinese character is a token in both units. Evidence of words are tokens of several
        characters; evidence of characters are neighbors of one letter or digit each, such as
        1 9 8 7.
        """
        for label in set(map(str, sentence.labels)).difference(self._lines):
            self._lines[label] = sentence.line
        is_after_letter = False
        for token in sentence.tokens:
            if len(token) > 1:
                self._num_words += 1
                is_after_letter = False
            else:
                is_letter = word_kind(token) == "a"
                self._num_characters += is_letter and is_after_letter
                is_after_letter = is_letter
        return sentence

    @property
    def units(self) -> str:
        """WORDS or CHARACTERS, by what letters and digits next to each other are."""
        return WORDS if self._num_words > self._num_characters else CHARACTERS

    def tags(self, path: str, is_raw: bool = False) -> Tags:
        """Returns the labels, sorted.

        Args:
            path: the file, for messages.
            is_raw: see `Tags`.

        Raises:
            ValueError: there are fewer than two labels or too many, or one does not mark spans; the
                message names it.
        """
        lines = self._lines
        labels = tuple(sorted(lines))
        check_number_of_labels(labels, path)
        strange = [label for label in labels if not marks_spans(label)]
        if strange and not is_raw:
            raise ValueError(
                f"{path}, sentence at line or row {lines[strange[0]]}: label "
                f"{files.quote(strange[0])} is neither O nor one of {', '.join(sorted(LETTERS))} "
                "with a type, such as B-PER. Is --label_column right? If labels do not mark "
                "spans (for example, parts of speech), set --tag_scheme=raw."
            )
        for label in labels:
            if is_none(label) or label == "_":  # which CoNLL-U has where nothing is annotated
                logging.warning(
                    "%s, sentence at line or row %d: %s is taken as a label",
                    *(path, lines[label], files.quote(label)),
                )
        return Tags(labels, is_raw, self.units)


def recorded_tags(folder: RunFolder, is_raw: bool = False) -> Tags | None:
    """Returns the tags that the record of a run has; None if it is not one of this task.

    Labels that transformers saved are raw if they do not mark spans.
    """
    record = folder.record
    if record.task_name != TOKEN_CLASSIFICATION or not record.labels:
        return None
    is_raw = is_raw or not all(map(marks_spans, record.labels))
    return Tags(record.labels, is_raw, record.task.get("token_units", WORDS))

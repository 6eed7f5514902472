"""The labels of a model, and their tokens: words or characters, into which text is cut."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from absl import logging

from albert_tf import files
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.tasks import TOKEN_CLASSIFICATION
from albert_tf.finetuning.examples import Examples, check_number_of_labels, is_none
from albert_tf.finetuning.token_classification.sentences import Sentence
from albert_tf.finetuning.token_classification.spans import LETTERS, marks_spans
from albert_tf.model.tokenization.characters import find_words, is_cjk, word_kind

WORDS = "words"
CHARACTERS = "characters"


def find_units(train: Examples[Sentence]) -> str:
    """Returns WORDS or CHARACTERS, by what letters and digits next to each other are.

    A Chinese character is a token in both. Evidence of words are tokens of several characters;
    evidence of characters are neighbors of one letter or digit each, such as 1 9 8 7.
    """
    num_words = num_characters = 0
    for sentence in train.examples:
        single = [len(token) == 1 for token in sentence.tokens]
        num_words += single.count(False)
        in_word = [
            is_single and word_kind(token) == "a"
            for token, is_single in zip(sentence.tokens, single, strict=True)
        ]
        num_characters += sum(map(bool.__and__, in_word, in_word[1:]))
    return WORDS if num_words > num_characters else CHARACTERS


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


def find_tags(train: Examples[Sentence], is_raw: bool = False) -> Tags:
    """Returns the labels of the training data, sorted.

    Raises:
        ValueError: there are fewer than two labels or too many, or one does not mark spans; the
            message names it.
    """
    lines: dict[str, int] = {}  # of the sentences
    for sentence in train.examples:
        for label in sentence.labels:
            lines.setdefault(str(label), sentence.line)
    labels = tuple(sorted(lines))
    check_number_of_labels(labels, train.path)
    strange = [label for label in labels if not marks_spans(label)]
    if strange and not is_raw:
        raise ValueError(
            f"{train.path}, sentence at line or row {lines[strange[0]]}: label "
            f"{files.quote(strange[0])} is neither O nor one of {', '.join(sorted(LETTERS))} with "
            "a type, such as B-PER. Is --label_column right? If labels do not mark "
            "spans (for example, parts of speech), set --tag_scheme=raw."
        )
    for label in labels:
        if is_none(label) or label == "_":  # which CoNLL-U has where nothing is annotated
            logging.warning(
                "%s, sentence at line or row %d: %s is taken as a label",
                train.path,
                lines[label],
                files.quote(label),
            )
    return Tags(labels, is_raw, find_units(train))


def recorded_tags(folder: RunFolder, is_raw: bool = False) -> Tags | None:
    """Returns the tags that the record of a run has; None if it is not one of this task.

    Labels that transformers saved are raw if they do not mark spans.
    """
    record = folder.record
    if record.task_name != TOKEN_CLASSIFICATION or not record.labels:
        return None
    is_raw = is_raw or not all(map(marks_spans, record.labels))
    return Tags(record.labels, is_raw, record.task.get("token_units", WORDS))

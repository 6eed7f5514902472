"""The training examples that a run keeps beside its model."""

from __future__ import annotations

import pytest

from albert_tf.finetuning.classification.encoding import Example
from albert_tf.finetuning.classification.task import Classifier
from albert_tf.finetuning.examples import MAX_CHARACTERS, Examples, choose_examples

PAIR = Example("1", "The river", "A boat", "yes")
# `{"text": ""}` has 12 characters.
LONG, LONGEST = (Example("2", "x" * (MAX_CHARACTERS - 12 + more)) for more in (1, 0))


@pytest.mark.parametrize(
    ("examples", "expected"),
    [
        ([PAIR], [{"text": "The river", "text_b": "A boat"}]),
        ([LONG, LONGEST], [{"text": LONGEST.text_a}]),
        (
            [Example(str(n), f"text {n}") for n in range(4)],
            [{"text": f"text {n}"} for n in (0, 1, 2)],
        ),
        ([LONG] * 100 + [PAIR], []),
        ([("a user's", "example")], []),  # in a task that inherits `as_row`
    ],
)
def test_the_first_short_examples_are_rows_without_labels(examples, expected):
    def as_row(example):
        return Classifier.as_row(None, example)

    assert choose_examples(as_row, Examples("train.tsv", examples)) == expected
    assert choose_examples(as_row, examples) == []  # a list of a task of the user

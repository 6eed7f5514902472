"""The examples of a split, and the first ones of them."""

from __future__ import annotations

import pytest

from albert_tf.classification.reading import Example
from albert_tf.finetuning.examples import Examples, first_examples
from albert_tf.squad.reading import SquadData


def test_the_first_examples_have_another_checksum():
    rows = [Example(f"{n}", f"text {n}", "", 0) for n in range(5)]
    data = Examples("train.tsv", "train", rows)
    assert first_examples(data, 0) is first_examples(data, 5) is first_examples(data, 9) is data
    assert first_examples(data, 2).examples == rows[:2]
    assert first_examples(data, 2).checksum() != data.checksum()


@pytest.mark.parametrize("count", [1, 2])
def test_questions_of_a_file_too(count):
    data = SquadData("train.json", "abc", ("a", "b", "c"), True, True, False)
    first = first_examples(data, count)
    assert first.examples == ("a", "b", "c")[:count]
    assert first.checksum == f"abc, the first {count}"

"""Which option a label means, by all labels of a file."""

import pytest

from albert_tf.finetuning.race.answers import MANY, UNKNOWN, AnswerForms, LabelParser
from albert_tf.finetuning.rows import BadRowError

NUMBERS = ("2", "1", "3", "0")
WORDS = ("a river", "B", "the sea", "A")
LETTERS = ("A", "B", "C", "D")


def answers(*rows, takes_texts=True):
    parser = LabelParser("train.jsonl", takes_texts)
    found = [
        parser.parse(value, options, *names, place=f"train.jsonl, line {line}")
        for line, (value, options, *names) in enumerate(rows, 1)
    ]
    return indices(found, parser)


def indices(found, parser):
    """What labels mean, when all of them have been parsed."""
    chosen = [possible[parser.meaning()] for possible in found]
    return [None if index == UNKNOWN else index for index in chosen]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        # Another label of the file tells what "2" or "B" is.
        ([("2", NUMBERS), ("0", WORDS)], [2, 0]),
        ([("2", NUMBERS), ("the sea", WORDS)], [0, 2]),
        ([("B", WORDS), ("A", WORDS), ("C", WORDS)], [1, 0, 2]),
        ([("A", WORDS), ("a river", WORDS)], [3, 0]),
        ([("1", NUMBERS), ("A", ("x", "y"))], [1, 0]),  # both are the same option
        ([(2, NUMBERS), (0, NUMBERS)], [2, 0]),  # a number is no text
        ([("2", NUMBERS, NUMBERS), ("0", NUMBERS, NUMBERS)], [0, 3]),
        ([("4", NUMBERS, ("1", "2", "3", "4")), (1, WORDS, ("1", "2", "3", "4"))], [3, 0]),
        ([("B", WORDS, LETTERS), (0, WORDS, LETTERS)], [1, 0]),
        ([(None, WORDS), ("C", WORDS)], [None, 2]),
        ([("b", WORDS), ("C", WORDS)], [1, 2]),
        ([("b", ("b", "a")), ("a", ("x", "a"))], [0, 1]),  # texts, although letters
        # One is the number of options, so that they are counted from 1.
        ([("4", WORDS), ("1", WORDS)], [3, 0]),
        ([(2, ("x", "y")), (1, WORDS), (None, WORDS)], [1, 0, None]),
        ([(4.0, WORDS), (1.0, WORDS)], [3, 0]),
        ([("4", ("2", "4", "6", "8")), ("6", ("2", "4", "6", "8"))], [1, 2]),  # texts
    ],
)
def test_a_label_is_an_index_a_letter_or_a_text(rows, expected):
    assert answers(*rows) == expected


@pytest.mark.parametrize(
    "rows",
    [
        [("2", NUMBERS)],
        [("2", NUMBERS), ("0", NUMBERS)],
        [("B", WORDS), ("A", WORDS)],
        [("0", WORDS), ("the sea", WORDS), ("A", WORDS)],
    ],
)
def test_a_label_that_may_be_two_options_is_refused(rows):
    with pytest.raises(ValueError, match=r"train.jsonl, line \d: the label '.' may mean option \d"):
        answers(*rows)
    assert answers(("B", WORDS), takes_texts=False) == [1]  # RACE has letters


def test_a_label_that_is_none_of_the_options_names_is_refused():
    with pytest.raises(BadRowError, match=r"expected 1, 2, 3, 4$"):
        answers(("0", WORDS, ("1", "2", "3", "4")))


def test_the_text_of_two_options_is_no_label():
    with pytest.raises(BadRowError, match="label 'the sea' for 4 options"):
        answers(("the sea", ("a hill", "the sea", "the sea", "a boat")))


def test_digits_of_which_none_is_0_are_doubted(caplog):
    assert answers(("1", WORDS)) == [1]
    assert answers(("2", WORDS), ("0", WORDS)) == [2, 0]
    assert answers(("B", WORDS), ("C", WORDS)) == [1, 2]
    assert not caplog.messages
    assert answers(("1", WORDS), (3, WORDS)) == [1, 3]
    assert "none of 2 labels is 0" in caplog.text
    with pytest.raises(ValueError, match="none of 20 labels is 0, and labels are counted from 0"):
        answers(*[("3", WORDS)] * MANY)


def test_the_labels_of_a_split_tell_what_those_of_another_mean():
    forms = AnswerForms()
    parsers = {name: LabelParser(name, forms=forms) for name in ("train", "dev", "test")}
    labels = {"dev": "1", "test": None, "train": "4"}
    parsed = {name: [parsers[name].parse(label, WORDS)] for name, label in labels.items()}
    found = {name: indices(parsed[name], parser) for name, parser in parsers.items()}
    assert found == {"train": [3], "dev": [0], "test": [None]}


@pytest.mark.parametrize(
    ("labels", "first_column", "expected"),
    [
        (["1"], 1, [0]),  # the number of option1
        (["1", "2"] * MANY, 1, [0, 1] * MANY),
        (["0", "1"], 1, [0, 1]),  # PIQA counts from 0, although its columns count from 1
        (["1", "1"], 0, [1, 1]),
        ([1] * MANY, 0, [1] * MANY),
    ],
)
def test_columns_with_numbers_tell_what_numbers_mean(caplog, labels, first_column, expected):
    parser = LabelParser("train", forms=AnswerForms(first_column=first_column))
    assert indices([parser.parse(label, ("x", "y")) for label in labels], parser) == expected
    assert not caplog.messages


@pytest.mark.parametrize(
    ("forms", "labels", "said"),
    [
        ({}, ["0", "2"], "row 2: the label is the number of options, .*; one is 0, row 1"),
        ({"first_column": 0}, ["1", "2"], "row 2: .*; so are the columns of the options"),
        ({"are_ids": True}, ["1", "2"], "row 2: .*; they are ids of classes"),
    ],
)
def test_numbers_that_contradict_each_other_are_refused(forms, labels, said):
    parser = LabelParser("train", forms=AnswerForms(**forms))
    for number, label in enumerate(labels, 1):
        parser.parse(label, ("x", "y"), place=f"row {number}")
    with pytest.raises(ValueError, match=said):
        parser.meaning()

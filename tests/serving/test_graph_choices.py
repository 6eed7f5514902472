"""Tests that multiple-choice inputs are the same in a graph as in Python."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.finetuning.examples import Examples
from albert_tf.finetuning.sequences import TokenSequences
from albert_tf.race.reading import Question
from albert_tf.race.task import fill_in, option_sequences
from albert_tf.serving import graph_choices
from albert_tf.serving.graph_tokenizer import GraphTokenizer

QUESTIONS = [
    ("The river  carries the rain.", "The _ carries the _ ?", ("river", "Boat, 1999,")),
    ("", "Who waits?", ("a small boat", "the landing", "nöbody  knows", "ice")),
    ("In winter the landing freezes. " * 9, "", ("_", "what _ had _ changed " * 3, "it")),
    ("A boat", "_", ("the sea", "😀")),
]


def test_choices_are_filled_in_as_in_python():
    rows = [
        (question, choice)
        for question in ("", "_", "a _ b", "_ a__b _", "a b?", " a")
        for choice in ("", "x", "x_y", r"\1 \\")
    ]
    questions, choices = (tf.constant(column) for column in zip(*rows, strict=True))
    found = graph_choices.fill_in(questions, choices).numpy()
    assert [text.decode() for text in found] == [fill_in(*row) for row in rows]


@pytest.mark.parametrize("max_qa_length", [1, 4, 14])
def test_sequences_match_the_program(toy_tokenizer, max_qa_length):
    questions = [Question("", *texts, None) for texts in QUESTIONS]
    data = Examples("questions", "test", questions)
    sequences = option_sequences(data, toy_tokenizer, 17, max_qa_length)
    features = TokenSequences.pack(sequences, {}, 4)
    expected = features.batch(np.arange(4), int(features.lengths.max()))
    contexts, texts, options = zip(*QUESTIONS, strict=True)
    choices = [(*row, "", "", "")[:4] for row in options]
    found = graph_choices.pack(
        GraphTokenizer(toy_tokenizer),
        *map(tf.constant, (contexts, texts, choices)),
        17,
        max_qa_length,
    )
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, name)


def test_a_batch_without_choices_has_one_position(toy_tokenizer):
    found = graph_choices.pack(
        GraphTokenizer(toy_tokenizer),
        *(tf.constant(["a"]), tf.constant(["b"]), tf.constant([["", ""]])),
        max_seq_length=17,
        max_qa_length=4,
    )
    assert found["input_mask"].numpy().tolist() == [[[0], [0]]]

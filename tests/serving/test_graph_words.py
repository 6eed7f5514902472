"""Tests that words and windows are the same in a graph as in Python."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.finetuning.examples import Examples
from albert_tf.serving import graph_words
from albert_tf.serving.graph_tokenizer import GraphTokenizer
from albert_tf.token_classification.task import Sentence, make_features
from albert_tf.tokenization import find_words

TEXTS = [
    "U.N. official Ekeus heads for Baghdad.",
    "",
    " \t\u3000",
    "北京是中国的首都，don't O'Neil-Smith (x)..y",
    ".a.b. a.",
    "The river carries the rain of the mountains down to the sea. " * 3,
    "😀 e\u0301 \u0301 a\0b \U000e0041x",
]


@pytest.fixture(scope="module", name="splitter")
def make_splitter():
    return graph_words.WordSplitter()


def test_words_match_python(splitter):
    words, begins, ends = splitter.split(tf.constant(TEXTS))
    expected = [find_words(text) for text in TEXTS]
    found = [[word.decode() for word in row] for row in words.to_list()]
    assert found == [[word for word, _ in row] for row in expected]
    assert begins.to_list() == [[place for _, place in row] for row in expected]
    assert ends.to_list() == [[place + len(word) for word, place in row] for row in expected]


def test_the_kind_of_every_character_matches_python(splitter):
    texts = [f"a{chr(code)}b" for code in range(0x30000) if not 0xD800 <= code < 0xE000]
    words, _, _ = splitter.split(tf.constant(texts))
    counts = words.row_lengths().numpy().tolist()
    assert counts == [len(find_words(text)) for text in texts]


def test_invalid_bytes_count_as_one_character_each(splitter):
    words, begins, _ = splitter.split(tf.constant([b"a \xff b"]))
    assert words.to_list() == [[b"a", "\ufffd".encode(), b"b"]]
    assert begins.to_list() == [[0, 2, 4]]


@pytest.mark.parametrize("max_seq_length", [3, 7, 17, 200])
def test_windows_match_the_program(splitter, toy_tokenizer, max_seq_length):
    words, _, _ = splitter.split(tf.constant(TEXTS))
    found = graph_words.pack(GraphTokenizer(toy_tokenizer), words, max_seq_length)
    sentences = [
        Sentence(1, tuple(word for word, _ in row), (None,) * len(row))
        for row in map(find_words, TEXTS)
    ]
    windows = make_features(
        Examples("", "test", sentences), "OB", toy_tokenizer, max_seq_length, False
    )
    expected = windows.batch(np.arange(len(windows)), int(windows.lengths.max()))
    firsts = np.argwhere(expected.pop("label_ids") == 0)
    np.testing.assert_array_equal(found.places, firsts)
    for name, values in expected.items():
        np.testing.assert_array_equal(found.batch[name], values, name)


def test_an_empty_batch_has_no_windows(splitter, toy_tokenizer):
    words, _, _ = splitter.split(tf.constant([], tf.string))
    found = graph_words.pack(GraphTokenizer(toy_tokenizer), words, 17)
    assert found.batch["input_ids"].shape[0] == 0
    assert found.places.shape == (0, 2)

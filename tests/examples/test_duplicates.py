"""Sentences that nearly repeat an earlier one."""

from __future__ import annotations

import random

import duplicates

LONG = "The number of rows that are read from the file before the first row with data is returned."


def test_case_punctuation_and_numbers_do_not_distinguish_sentences():
    first = duplicates.normalized("It first appeared in Linux 2.6.39, I think.")
    assert first == duplicates.normalized("it first appeared in LINUX 5.1.2 (I think)")


def test_a_sentence_that_differs_in_a_word_at_its_end_is_a_near_duplicate():
    sentences = ["Another sentence stands before it.", LONG, LONG.replace("returned", "counted")]
    assert duplicates.near_duplicates(sentences) == [-1, -1, 1]


def test_sentences_with_the_same_words_in_another_order_are_kept():
    words = LONG.rstrip(".").split()
    random.Random(1).shuffle(words)
    assert duplicates.near_duplicates([LONG, " ".join(words)]) == [-1, -1]


def test_short_sentences_that_differ_in_one_word_are_kept():
    sentences = ["Returns the width of the image.", "Returns the height of the image."]
    assert duplicates.near_duplicates(sentences) == [-1, -1]


def test_no_sentence_is_no_mistake():
    assert duplicates.near_duplicates([]) == []
    assert duplicates.near_duplicates(["...", "?!"]) == [-1, 0]


def test_what_is_found_is_what_comparing_all_pairs_finds():
    generator = random.Random(2)
    vocabulary = [chr(97 + i) * 3 for i in range(20)]
    sentences = []
    for _ in range(60):
        words = generator.choices(vocabulary, k=30)
        sentences.append(" ".join(words))
        words[generator.randrange(30)] = "other"  # similarity 25/31 or more
        sentences.append(" ".join(words))
        sentences.append(" ".join(generator.choices(vocabulary, k=30)))
    expected = [i - 1 if i % 3 == 1 else -1 for i in range(len(sentences))]
    found = duplicates.near_duplicates(sentences)
    missed = sum(a != b for a, b in zip(found, expected, strict=True))
    assert missed <= 2  # MinHash misses one such pair in two hundred
    assert found == duplicates.near_duplicates(sentences)

"""The report of the data program and its warnings."""

from __future__ import annotations

import collections
import dataclasses

import pytest

from albert_tf.data import report
from albert_tf.data.settings import EncodingSettings
from albert_tf.sentence_objectives import OBJECTIVES

SETTINGS = EncodingSettings(vocab_file="vocab.txt", max_seq_length=100)
GOOD = {
    "documents": 40,
    "sentences": 2000,
    "tokens": 50_000,
    "instances": 1000,
    "positions": 95_000,
    "predictions": 14_000,
    "label_1": 540,
    "unknown": 50,
    "long_sentences": 3,
}
VOCABULARY = {"file": "vocab.txt"}


def problems(changes, **settings):
    counts = collections.Counter(GOOD | changes)
    return report.find_problems(counts, dataclasses.replace(SETTINGS, **settings), "vocab.txt")


def test_well_formed_text_is_reported_without_a_warning(caplog):
    with caplog.at_level("INFO", logger="absl"):
        report.log_counts({"counts": GOOD, "vocabulary": VOCABULARY}, SETTINGS)
    first, second = caplog.messages
    assert first == (
        "40 documents, 2000 sentences, 50000 tokens of text -> 1000 instances of 95.0 tokens on "
        "average; 14.74% of the tokens to predict, 54.00% of the instances labeled 1"
    )
    assert second == (
        "50.0 sentences per document, 25.0 tokens per sentence; 0.15% of the sentences are "
        "longer than a sequence, 0.10% of the tokens are not in the vocabulary"
    )


@pytest.mark.parametrize(
    ("changes", "problem", "flag"),
    [
        ({"unknown": 3600}, "7% of the tokens are not in the vocabulary vocab.txt", "--vocab_file"),
        ({"label_1": 667}, "67% of the instances are labeled 1", "--split_sentences"),
        ({"label_1": 320}, "32% of the instances are labeled 1", "--split_sentences"),
        ({"long_sentences": 101}, "5% of the sentences are longer", "--split_sentences"),
        ({"positions": 24_000}, "instances have 24 tokens on average", "--max_seq_length"),
        ({"predictions": 0}, "no token is masked (masked_lm_prob=0.15)", "--masked_lm_prob"),
    ],
)
def test_each_problem_is_reported_with_the_flag_that_helps(changes, problem, flag, caplog):
    found = problems(changes)
    assert found[0].startswith(problem)
    assert flag in found[-1]
    report.log_counts({"counts": GOOD | changes, "vocabulary": VOCABULARY}, SETTINGS)
    assert [record.getMessage() for record in caplog.records if record.levelno > 20] == found


@pytest.mark.parametrize(
    "changes",
    [
        {"unknown": 3500, "label_1": 666, "long_sentences": 100, "positions": 25_000},
        {"label_1": 334},
        {"instances": 16, "label_1": 16, "positions": 1600},
    ],
)
def test_chance_deviations_are_not_reported(changes):
    assert problems(changes) == []


def test_the_labels_are_judged_by_the_classes_of_the_objective(monkeypatch):
    assert problems({"label_1": 0}, sentence_objective="none") == []
    three = dataclasses.replace(OBJECTIVES["nsp"], classes=("next", "random", "other"))
    monkeypatch.setitem(OBJECTIVES, "nsp", three)
    assert problems({"label_1": 333, "label_2": 333}, sentence_objective="nsp") == []
    found = problems({"label_1": 333, "label_2": 550}, sentence_objective="nsp")
    assert found[0].startswith("55% of the instances are labeled 2 (other)")


def test_a_novel_with_one_paragraph_per_line_is_recognized():
    paragraphs = {"documents": 2000, "label_1": 1000, "positions": 20_000}
    labels, length, advice = problems(paragraphs)
    assert labels.startswith("100% of the instances are labeled 1")
    assert "(1.0 on average)" in labels
    assert length.startswith("instances have 20 tokens on average: with max_seq_length=100 most")
    assert "--split_sentences if lines are paragraphs" in advice
    assert "--input_format=documents if blank lines" in advice

"""What the web page shows of spans."""

from __future__ import annotations

from albert_tf.finetuning.task import mark


def test_spans_are_marked_from_the_first_character_on_and_those_that_are_nowhere_are_not():
    spans = [
        {"type": "PER", "text": "Anna", "begin": 0, "end": 4},
        {"type": "LOC", "text": "Rome", "begin": 14, "end": 18},
        {"type": "answer", "answer": "", "begin": -1, "end": -1},
    ]
    assert mark("Anna lives in Rome", spans) == {
        "text": "Anna lives in Rome",
        "entities": [
            {"entity": "PER", "start": 0, "end": 4},
            {"entity": "LOC", "start": 14, "end": 18},
        ],
    }

"""The warning of questions, contexts and answers whose words lose their marks."""

from __future__ import annotations

import re

from albert_tf.finetuning.squad.data import CHECKED_QUESTIONS, warn_of_lost_marks
from albert_tf.finetuning.squad.questions import SquadExample
from tests.finetuning.squad.word_tokenizer import WordTokenizer


def test_questions_contexts_and_answers_are_counted_by_themselves(toy_tokenizer, caplog):
    example = SquadExample("q", "wer schläft am See heute", "Der Bär und die Frau", ("Bär",), 4)
    plain = SquadExample("q", "who", "the boat waits by the river here " * 6, ("boat",), 4)
    warn_of_lost_marks([example, plain], toy_tokenizer)
    said = re.findall(r"marks of (\d+)% of the words of (the \w+)", caplog.text)
    assert said == [("17", "the questions"), ("50", "the answers")]
    caplog.clear()
    warn_of_lost_marks([example, plain], WordTokenizer())  # with rules of its own
    assert not caplog.text


def test_of_many_questions_evenly_spaced_ones_are_checked(toy_tokenizer, caplog):
    plain, marked = (SquadExample("q", text, "the river") for text in ("who waits", "wer schläft"))
    count = 2 * CHECKED_QUESTIONS
    warn_of_lost_marks([plain] * (count // 2) + [marked] * (count // 2), toy_tokenizer)
    assert "marks of 25% of the words of the questions" in caplog.text

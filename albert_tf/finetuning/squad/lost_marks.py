"""Warns of questions, contexts and answers whose words lose their marks in normalization."""

from __future__ import annotations

from collections.abc import Sequence

from absl import logging

from albert_tf.finetuning.squad.questions import SquadExample
from albert_tf.model.tokenization import MarkRemoval, Tokenizer

CHECKED_QUESTIONS = 1000  # evenly spaced among all


def warn_of_lost_marks(examples: Sequence[SquadExample], tokenizer: Tokenizer) -> None:
    """Warns if normalization changes more than a few of the words of questions.

    Args:
        examples: the questions.
        tokenizer: the tokenizer.
    """
    removal = MarkRemoval.of(tokenizer)
    if removal is None:
        return
    checked = examples[:: len(examples) // CHECKED_QUESTIONS + 1]
    parts = {
        "the questions": [example.question for example in checked],
        "the contexts": list(dict.fromkeys(example.context for example in checked)),
        "the answers": [answer for example in checked for answer in example.answers],
    }
    for what, texts in parts.items():
        if problem := removal.count(texts).problem(what):
            logging.warning("%s", problem)

"""The token sequences of the options of questions.

    [CLS] passage [SEP] question and option [SEP] padding
    [CLS] question [SEP] option [SEP] padding                if there is no passage

Source: `race_utils.py` of google-research/albert.

Shapes: C options.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from albert_tf.finetuning.race.questions import Question, num_choices
from albert_tf.model.tokenization import Tokenizer

BLANK = "_"
SPECIAL_TOKENS = 3


def fill_in(question: str, option: str) -> str:
    """Returns the question with "_" replaced by the option, or with the option appended."""
    return question.replace(BLANK, option) if BLANK in question else f"{question} {option}"


def option_sequences(
    questions: Sequence[Question], tokenizer: Tokenizer, max_seq_length: int, max_qa_length: int
) -> Iterator[tuple[list[int], int]]:
    """Yields C sequences for each question: (token ids, number of ids in segment 0).

    They are identical to those of Google's program, which has passages only.

    Args:
        questions: the questions.
        tokenizer: the tokenizer.
        max_seq_length: S; passages are truncated at their end.
        max_qa_length: maximum number of tokens of question and option together; longer ones are
            truncated at their start. It must fit into `max_seq_length`.
    """
    cls_id = tokenizer.cls_id
    sep_id = tokenizer.sep_id
    count = num_choices(questions)
    passage = ""
    passage_ids = [0]
    for question in questions:
        first, asked = question.passage, question.question
        if not first:
            first, asked = asked, ""
        if first != passage:  # consecutive questions share a passage
            passage = first
            passage_ids = tokenizer.encode(passage)
        text = tokenizer.preprocess(asked)
        for option in question.options:
            # Not `encode`: question and option are normalized separately, and only once.
            tokens = tokenizer.tokenize_preprocessed(fill_in(text, tokenizer.preprocess(option)))
            ending = tokenizer.convert_tokens_to_ids(tokens)[-max_qa_length:]
            kept = passage_ids[: max_seq_length - SPECIAL_TOKENS - len(ending)]
            ids = [cls_id, *kept, sep_id, *ending, sep_id]
            yield ids, len(kept) + 2 if tokenizer.has_segments else len(ids)
        yield from [([], 0)] * (count - len(question.options))

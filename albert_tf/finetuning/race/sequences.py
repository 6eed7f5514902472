"""The token sequences of multiple-choice questions: one for each option, which share a passage.

    [CLS] passage [SEP] question and option [SEP] padding
    [CLS] question [SEP] option [SEP] padding                if there is no passage

A passage is stored once for all options of its consecutive questions. The sequences are identical
to those of `race_utils.py` of google-research/albert, which has passages only.

Shapes: B batch size, N questions, C options, S sequence length.
"""

from __future__ import annotations

import array
import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from albert_tf.finetuning.batching import Batch
from albert_tf.finetuning.race.questions import Question
from albert_tf.finetuning.token_sequences import Packer, check_lengths
from albert_tf.model.tokenization import Tokenizer

BLANK = "_"
SPECIAL_TOKENS = 3


@dataclasses.dataclass(frozen=True)
class OptionSequences:
    """The features of N questions: C sequences each.

    Attributes:
        passage_ids: integers, `[CLS] passage` of all passages, concatenated.
        passage_begins: int64 [N], where that of each question begins.
        passage_lengths: int32 [N, C], how many of its ids are in each sequence; 0 for an option
            that a question does not have.
        ending_ids: integers, `[SEP] question and option [SEP]` of all options, concatenated.
        ending_lengths: int32 [N, C], their number in each sequence; 0 likewise.
        label_ids: int32 [N], the index of the answer; 0 if it is unknown.
        has_segments: whether question and option are in segment 1.
    """

    passage_ids: NDArray[np.integer]
    passage_begins: NDArray[np.int64]
    passage_lengths: NDArray[np.int32]
    ending_ids: NDArray[np.integer]
    ending_lengths: NDArray[np.int32]
    label_ids: NDArray[np.int32]
    has_segments: bool

    def __len__(self) -> int:
        return len(self.label_ids)

    @property
    def sequence_lengths(self) -> NDArray[np.int32]:
        """Number of tokens in each sequence, int32 [N, C]."""
        return self.passage_lengths + self.ending_lengths

    @functools.cached_property
    def lengths(self) -> NDArray[np.int32]:
        """Length of the longest sequence of each question, int32 [N]."""
        return np.asarray(self.sequence_lengths.max(axis=1), np.int32)

    @functools.cached_property
    def _ending_begins(self) -> NDArray[np.int64]:
        """Where the ending of each sequence begins, int64 [N, C]."""
        sizes = self.ending_lengths.ravel()
        return (np.cumsum(sizes, dtype=np.int64) - sizes).reshape(self.ending_lengths.shape)

    def batch(self, rows: NDArray[np.integer], seq_length: int) -> Batch:
        """Returns a padded batch of questions.

        Args:
            rows: int [B], indices of the questions.
            seq_length: S, at least the length of the longest of these questions.

        Returns:
            `input_ids`, `input_mask` and `segment_ids`, int32 [B, C, S], where C is the largest
            number of options among these questions; and `label_ids`, int32 [B].

        Raises:
            ValueError: a sequence is longer than S.
        """
        count = int(np.flatnonzero(self.ending_lengths[rows].any(axis=0))[-1]) + 1
        passages = self.passage_lengths[rows, :count, None]  # [B, C, 1]
        lengths = passages + self.ending_lengths[rows, :count, None]
        check_lengths(lengths, seq_length)
        places = np.arange(seq_length)
        in_passage = places < passages  # [B, C, S]
        mask = places < lengths
        in_ending = mask & ~in_passage
        ids = np.zeros(mask.shape, np.int32)
        begins = np.broadcast_to(self.passage_begins[rows, None, None] + places, mask.shape)
        ids[in_passage] = self.passage_ids[begins[in_passage]]
        begins = self._ending_begins[rows, :count, None] - passages + places
        ids[in_ending] = self.ending_ids[begins[in_ending]]
        segments = mask & (places > passages) if self.has_segments else np.zeros_like(mask)
        return {
            "input_ids": ids,
            "input_mask": mask.astype(np.int32),
            "segment_ids": segments.astype(np.int32),
            "label_ids": self.label_ids[rows],
        }


class OptionEncoder:
    """Makes the token sequences of questions, a block at a time.

    Args:
        tokenizer: the tokenizer.
        max_seq_length: S; passages are truncated at their end.
        max_qa_length: maximum number of tokens of question and option together; longer ones are
            truncated at their start.
    """

    def __init__(self, tokenizer: Tokenizer, max_seq_length: int, max_qa_length: int) -> None:
        self._tokenizer = tokenizer
        self._max_seq_length = max_seq_length
        self._room = max_seq_length - SPECIAL_TOKENS
        self._max_qa_length = min(max_qa_length, self._room)
        self._passages = Packer()
        self._endings = Packer()
        self._numbers: dict[str, int] = {}  # passage of the last block → its number
        self._passage_numbers = array.array("i")  # of each question
        self._counts = array.array("i")  # of its options

    def add(self, questions: Sequence[Question]) -> None:
        """Adds the sequences of questions."""
        passages = [question.passage or question.question for question in questions]
        self._add_passages(passages)
        self._passage_numbers.extend(map(self._numbers.__getitem__, passages))
        self._numbers = {passages[-1]: self._numbers[passages[-1]]}
        self._counts.extend(len(question.options) for question in questions)
        preprocess = self._tokenizer.preprocess
        texts = []
        for question in questions:
            asked = preprocess(question.question if question.passage else "")
            texts += [fill_in(asked, preprocess(option)) for option in question.options]
        # Not `encode_batch`: question and option are normalized separately, and only once.
        sep_id = self._tokenizer.sep_id
        for ids in self._tokenizer.encode_preprocessed(texts):
            self._endings.add([sep_id, *ids[-self._max_qa_length :], sep_id], 0)

    def _add_passages(self, passages: Sequence[str]) -> None:
        """Adds the passages that are not the last one of the block before."""
        new = [passage for passage in dict.fromkeys(passages) if passage not in self._numbers]
        first = len(self._passages)
        self._numbers |= {passage: number for number, passage in enumerate(new, first)}
        for ids in self._tokenizer.encode_batch(new):
            self._passages.add([self._tokenizer.cls_id, *ids[: self._room]], 0)

    def features(self, labels: Sequence[int]) -> OptionSequences:
        """Returns the sequences of all questions, given the index of the answer of each."""
        passages, endings = self._passages.packed({}), self._endings.packed({})
        numbers, counts = (np.array(x, np.int32) for x in (self._passage_numbers, self._counts))
        is_option = np.arange(counts.max()) < counts[:, None]  # [N, C]
        ending_lengths = np.zeros(is_option.shape, np.int32)
        ending_lengths[is_option] = endings.lengths
        whole = passages.lengths[numbers, None]
        passage_lengths = np.minimum(whole, self._max_seq_length - ending_lengths)
        begins = np.cumsum(passages.lengths, dtype=np.int64) - passages.lengths
        return OptionSequences(
            passages.input_ids,
            begins[numbers],
            np.where(is_option, passage_lengths, 0).astype(np.int32),
            endings.input_ids,
            ending_lengths,
            np.array(labels, np.int32),
            self._tokenizer.has_segments,
        )


def fill_in(question: str, option: str) -> str:
    """Returns the question with "_" replaced by the option, or with the option appended."""
    return question.replace(BLANK, option) if BLANK in question else f"{question} {option}"

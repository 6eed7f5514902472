"""Creates the features of questions: sliding windows over the context, each with the question.

    [CLS] question [SEP] window of the context [SEP] padding

A context that is too long for the model is split into overlapping windows. Each window is one
feature, stored as columns. The features are identical to those of `convert_examples_to_features` in
`squad_utils.py` of google-research/albert. They are created by several processes, and each context
is tokenized once for all its questions.

The main function, `make_features`, is at the end.

Shapes: B batch size, N features, S sequence length, T tokens of a context.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from absl import logging
from numpy.typing import NDArray
from tqdm import tqdm

from albert_tf.data import workers
from albert_tf.finetuning.rows import abbreviate
from albert_tf.finetuning.squad.alignment import TokenizedText, tokenize
from albert_tf.finetuning.squad.questions import MAX_NAMED, SquadExample
from albert_tf.finetuning.squad.settings import SPECIAL_TOKENS, WindowSettings
from albert_tf.model.tokenization import Tokenizer

if TYPE_CHECKING:  # what needs TensorFlow
    from albert_tf.finetuning.batching import Batch
    from albert_tf.finetuning.token_sequences import TokenSequences


_LABELS = ("start_positions", "end_positions", "is_impossible")


class Window(NamedTuple):
    """A feature of a question; see `SquadFeatures`."""

    ids: NDArray[np.integer]
    first_length: int
    query_length: int
    first_char: NDArray[np.int32]
    last_char: NDArray[np.int32]
    is_max_context: NDArray[np.bool_]
    labels: tuple[int, int, int]  # start, end, is_impossible


@dataclasses.dataclass(frozen=True, eq=False)
class SquadFeatures:
    """N features, stored as columns. Sequences are concatenated without padding.

    Attributes:
        sequences: the token ids; for training, with the columns `start_positions` and
            `end_positions`, the positions of the answer's first and last token (both 0 if the
            window does not contain the whole answer), and `is_impossible`, 1 if it does not.
        example_index: int32 [N], index of the question.
        query_lengths: int32 [N], number of tokens in the question.
        first_char, last_char: int32 [sum of window lengths], offsets in the context of the first
            and the last character (inclusive) of each token in the window; int32 [0] for training,
            where no answers are decoded.
        is_max_context: bool [sum of window lengths], whether this window has more context around
            the token than any other window; bool [0] for training.
    """

    sequences: TokenSequences
    example_index: NDArray[np.int32]
    query_lengths: NDArray[np.int32]
    first_char: NDArray[np.int32]
    last_char: NDArray[np.int32]
    is_max_context: NDArray[np.bool_]

    @classmethod
    def pack(cls, found: Mapping[int, Sequence[Window]], is_training: bool) -> SquadFeatures:
        """Returns the features of questions, number → windows, in the order of the numbers."""
        # Imported late: it needs TensorFlow, for which the processes do not wait.
        from albert_tf.finetuning.token_sequences import TokenSequences

        numbers = [number for number in sorted(found) for _ in found[number]]
        windows = [window for number in sorted(found) for window in found[number]]
        ids, first_lengths, query_lengths, first_char, last_char, is_max_context, labels = zip(
            *windows, strict=True
        )
        columns = dict(zip(_LABELS, np.array(labels, np.int32).T, strict=True))
        sequences = TokenSequences(
            np.concatenate(ids),
            np.array([len(part) for part in ids], np.int32),
            np.array(first_lengths, np.int32),
            columns if is_training else {},
        )
        return cls(
            sequences,
            np.array(numbers, np.int32),
            np.array(query_lengths, np.int32),
            np.concatenate(first_char),
            np.concatenate(last_char),
            np.concatenate(is_max_context),
        )

    def __len__(self) -> int:
        return len(self.sequences)

    @property
    def lengths(self) -> NDArray[np.int32]:
        """Number of tokens in each feature, including special tokens, int32 [N]."""
        return self.sequences.lengths

    @property
    def window_lengths(self) -> NDArray[np.int32]:
        """Number of context tokens in each feature, int32 [N]."""
        return self.lengths - self.query_lengths - np.int32(SPECIAL_TOKENS)

    @property
    def window_offsets(self) -> NDArray[np.int64]:
        """Index in `first_char` at which each window starts, and its size; int64 [N + 1]."""
        return np.concatenate(([0], np.cumsum(self.window_lengths, dtype=np.int64)))

    def batch(self, rows: NDArray[np.integer], seq_length: int) -> Batch:
        """Returns a batch of features.

        Args:
            rows: int [B], indices of the features.
            seq_length: S, at least the length of the longest of these features.

        Returns:
            `input_ids`, `input_mask`, `segment_ids` and `p_mask` (1 at positions where no answer
            can start or end), int32 [B, S]; and for training `start_positions`, `end_positions`
            and `is_impossible`, int32 [B].
        """
        places = np.arange(seq_length)
        begin = self.query_lengths[rows, None] + 2
        in_window = (places >= begin) & (places < self.lengths[rows, None] - 1)  # [B, S]
        p_mask = (~in_window & (places > 0)).astype(np.int32)
        return self.sequences.batch(rows, seq_length) | {"p_mask": p_mask}


CONTEXT_WEIGHT = 0.01  # weight of the window's length in a token's context; see `_cut`
TASK_CHARS = 50_000  # characters of context in one task of a process
# `first_char`, `last_char` and `is_max_context` of a window for training.
_NO_PLACES = (np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.bool_))


class NoFeaturesError(ValueError):
    """No question has features."""


# Number and text of a question, and the first and the last character of its answer.
_Question = tuple[int, str, tuple[int, int] | None]
_Task = list[tuple[str, list[_Question]]]  # of a process: several contexts with their questions


def _tasks(examples: Sequence[SquadExample], is_training: bool) -> Iterator[_Task]:
    """Yields the questions grouped by context, with several contexts per task."""
    by_context: dict[str, list[_Question]] = collections.defaultdict(list)
    for number, example in enumerate(examples):
        answer = None
        if is_training and example.answers and not example.is_impossible:
            end = example.answer_start + len(example.answers[0])
            answer = (example.answer_start, end - 1)
        by_context[example.context].append((number, example.question, answer))
    task: _Task = []
    size = 0
    for context, questions in by_context.items():
        task.append((context, questions))
        size += len(context)
        if size >= TASK_CHARS:
            yield task
            task = []
            size = 0
    if task:
        yield task


def _answer_span(context: TokenizedText, answer: tuple[int, int]) -> tuple[int, int] | None:
    """Returns the first and last token of an answer, given its first and last character.

    Returns None if the answer is not aligned with any token.
    """
    start = int(context.first_token[answer[0]])
    end = int(context.last_token[answer[1]])
    return (start, end) if start <= end else None


@functools.lru_cache(maxsize=256)
def _cut(num_pieces: int, capacity: int, stride: int) -> list[tuple[int, int, NDArray[np.bool_]]]:
    """Returns the windows over T tokens: start, end, and `is_max_context`, bool [end - start].

    The context of a token in a window is the smaller of the numbers of tokens to its left and to
    its right, plus CONTEXT_WEIGHT times the window's length. A token has its maximum context in the
    window where this is largest; on ties, in the first one.
    """
    spans = []
    begin = end = 0
    while end < num_pieces:
        end = min(begin + capacity, num_pieces)
        spans.append((begin, end))
        begin += min(end - begin, stride)
    best = np.full(num_pieces, -1.0)
    owner = np.zeros(num_pieces, np.int32)
    for number, (begin, end) in enumerate(spans):
        left = np.arange(end - begin)
        score = np.minimum(left, left[::-1]) + CONTEXT_WEIGHT * (end - begin)
        better = score > best[begin:end]
        best[begin:end][better] = score[better]
        owner[begin:end][better] = number
    return [(begin, end, owner[begin:end] == i) for i, (begin, end) in enumerate(spans)]


def _windows(
    query: list[int],
    context: TokenizedText,
    span: tuple[int, int] | None,
    tokenizer: Tokenizer,
    settings: WindowSettings,
    is_training: bool,
) -> Iterator[Window]:
    """Yields the windows of a question.

    Args:
        query: token ids of the question.
        context: the tokenized context.
        span: first and last token of the answer; None if there is none.
        tokenizer: the tokenizer.
        settings: how the context is split.
        is_training: whether no answer will be decoded, for which places in the context are needed.
    """
    query = query[: settings.max_query_length]
    prefix = np.array([tokenizer.cls_id, *query, tokenizer.sep_id], np.int32)
    capacity = settings.max_seq_length - len(query) - SPECIAL_TOKENS
    cuts = _cut(len(context.token_ids), capacity, settings.doc_stride)
    for begin, end, is_max_context in cuts:
        # As in Google's programs, windows without the answer are used for training, even in SQuAD
        # 1.1, with the answer at [CLS].
        labels = (0, 0, 1)
        if span is not None and begin <= span[0] and span[1] < end:
            start, stop = (piece - begin + len(prefix) for piece in span)
            labels = (start, stop, 0)
        ids = np.concatenate([prefix, context.token_ids[begin:end], prefix[-1:]])
        first_length = len(prefix) if tokenizer.has_segments else len(ids)
        ids = ids.astype(np.min_scalar_type(ids.max()))  # all windows are in memory
        places = _NO_PLACES
        if not is_training:
            chars = (context.first_char[begin:end], context.last_char[begin:end])
            places = (*chars, is_max_context)
        yield Window(ids, first_length, len(query), *places, labels)


def _make_work(
    tokenizer: Tokenizer, settings: WindowSettings, is_training: bool
) -> Callable[[_Task], Iterator[dict[int, list[Window]]]]:
    """Returns the work of a process: task → number of each question → windows, [] if skipped."""

    def work(task: _Task) -> Iterator[dict[int, list[Window]]]:
        found: dict[int, list[Window]] = {}
        for text, questions in task:
            context = tokenize(tokenizer, text)
            queries = tokenizer.encode_batch([question for _, question, _ in questions])
            for (number, _, answer), query in zip(questions, queries, strict=True):
                found[number] = []
                if context is None:
                    continue
                span = _answer_span(context, answer) if answer else None
                if span or not answer:
                    found[number] += _windows(
                        query, context, span, tokenizer, settings, is_training
                    )
        yield found

    return work


def make_features(
    examples: Sequence[SquadExample],
    tokenizer: Tokenizer,
    settings: WindowSettings,
    is_training: bool,
    num_workers: int | None = 1,
    shows_progress: bool = True,
) -> SquadFeatures:
    """Returns the features of all questions, in their order.

    Questions without features are skipped with a warning: those whose context is empty or cannot be
    aligned (see `alignment`), and in training those whose answer is not aligned with any token.

    Args:
        examples: the questions; in training, each is impossible or has its answer at its offset.
        tokenizer: the tokenizer of the model.
        settings: how contexts are split.
        is_training: whether to compute the positions of answers.
        num_workers: number of processes; None for one per core.
        shows_progress: whether to show a progress bar, if standard error is a terminal.

    Raises:
        NoFeaturesError: no question has features.
    """
    tasks = list(_tasks(examples, is_training))
    processes = num_workers or workers.available_cores()
    make_work = functools.partial(_make_work, tokenizer, settings, is_training)
    found: dict[int, list[Window]] = {}
    hidden = None if shows_progress else True  # None hides the bar unless on a terminal
    with tqdm(total=len(examples), unit="question", desc="features", disable=hidden) as bar:
        for windows in workers.run(make_work, tasks, processes):
            found |= windows
            bar.update(len(windows))
    skipped = [examples[number].qas_id for number in sorted(found) if not found[number]]
    if skipped:
        logging.warning(
            "%d of %d questions are skipped, because normalization removes their context or "
            "answer: %s",
            len(skipped),
            len(examples),
            abbreviate(skipped, MAX_NAMED),
        )
    if len(skipped) == len(examples):
        raise NoFeaturesError(
            f"none of {len(examples)} questions has features: their contexts are empty, or the "
            "vocabulary belongs to another language"
        )
    return SquadFeatures.pack(found, is_training)

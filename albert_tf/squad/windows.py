"""Creates the features of questions: sliding windows over the context, each with the question.

The features are identical to those of `convert_examples_to_features` in `squad_utils.py` of
google-research/albert. They are created by several processes, and each context is tokenized once
for all its questions.

The main function, `make_features`, is at the end. Shapes: T tokens of a context.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import logging
from numpy.typing import NDArray
from tqdm import tqdm

from albert_tf.data import workers
from albert_tf.finetuning.rows import abbreviate
from albert_tf.model.tokenization import Tokenizer
from albert_tf.squad import alignment
from albert_tf.squad.features import SPECIAL_TOKENS, SquadFeatures, concatenate
from albert_tf.squad.reading import MAX_NAMED, SquadExample

CONTEXT_WEIGHT = 0.01  # weight of the window's length in a token's context; see `_cut`
TASK_CHARS = 50_000  # characters of context in one task of a process


@dataclasses.dataclass(frozen=True)
class WindowSettings:
    """How contexts are split into windows.

    Attributes:
        max_seq_length: S, maximum length of a feature, in tokens.
        doc_stride: number of tokens between the starts of consecutive windows.
        max_query_length: maximum number of tokens of a question; longer ones are truncated.
    """

    max_seq_length: int = 384
    doc_stride: int = 128
    max_query_length: int = 64

    def __post_init__(self) -> None:
        least = self.max_query_length + SPECIAL_TOKENS + 1
        if self.max_seq_length < least:
            raise ValueError(
                f"--max_seq_length={self.max_seq_length} leaves no room for the context after a "
                f"question of --max_query_length={self.max_query_length} and three special "
                f"tokens; expected {least} or more"
            )


class NoFeaturesError(ValueError):
    """No question has features."""


class _Question(NamedTuple):
    """A question for a worker: index, text, and first and last character of the answer."""

    number: int
    text: str
    answer: tuple[int, int] | None


_Task = list[tuple[str, list[_Question]]]


def _tasks(examples: Sequence[SquadExample]) -> Iterator[_Task]:
    """Yields the questions grouped by context, with several contexts per task."""
    by_context: dict[str, list[_Question]] = collections.defaultdict(list)
    for number, example in enumerate(examples):
        answer = None
        if example.answers and not example.is_impossible:
            end = example.answer_start + len(example.answers[0])
            answer = (example.answer_start, end - 1)
        by_context[example.context].append(_Question(number, example.question, answer))
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


def _answer_span(
    context: alignment.TokenizedText, answer: tuple[int, int]
) -> tuple[int, int] | None:
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


class _Builder:
    """Collects windows and returns them as columns."""

    def __init__(self, tokenizer: Tokenizer, settings: WindowSettings):
        self._settings = settings
        self._cls_id = tokenizer.cls_id
        self._sep_id = tokenizer.sep_id
        self._end = np.array([self._sep_id], np.int32)
        self._has_segments = tokenizer.has_segments
        self._numbers: list[tuple[int, ...]] = []
        self._input_ids: list[NDArray[np.int32]] = []
        self._windows: list[tuple[NDArray[Any], ...]] = []

    def add(
        self,
        number: int,
        query: list[int],
        context: alignment.TokenizedText,
        span: tuple[int, int] | None,
        is_training: bool,
    ) -> None:
        """Adds the windows of a question.

        Args:
            number: index of the question.
            query: token ids of the question.
            context: the tokenized context.
            span: first and last token of the answer; None if there is none.
            is_training: whether to label windows.
        """
        query = query[: self._settings.max_query_length]
        prefix = np.array([self._cls_id, *query, self._sep_id], np.int32)
        capacity = self._settings.max_seq_length - len(query) - SPECIAL_TOKENS
        cuts = _cut(len(context.token_ids), capacity, self._settings.doc_stride)
        for window, (begin, end, is_max_context) in enumerate(cuts):
            start = stop = 0
            holds_answer = span is not None and begin <= span[0] and span[1] < end
            if span is not None and holds_answer:
                start, stop = (piece - begin + len(prefix) for piece in span)
            # As in Google's programs, windows without the answer are used for training, even in
            # SQuAD 1.1, with the answer at [CLS].
            is_impossible = is_training and not holds_answer
            length = len(prefix) + end - begin + 1
            first_length = len(prefix) if self._has_segments else length
            place = (number, window, length, len(query), first_length)
            self._numbers.append((*place, start, stop, int(is_impossible)))
            self._input_ids += [prefix, context.token_ids[begin:end], self._end]
            pieces = context.first_char[begin:end], context.last_char[begin:end], is_max_context
            self._windows.append(pieces)

    def finish(self) -> SquadFeatures:
        """Returns the features of all added windows."""
        numbers = np.array(self._numbers, np.int32).reshape(-1, 8).T
        empty = np.zeros(0, np.int32)
        first, last, is_max = zip(*self._windows, strict=True) if self._windows else ((), (), ())
        return SquadFeatures(
            example_index=numbers[0],
            doc_span_index=numbers[1],
            lengths=numbers[2],
            query_lengths=numbers[3],
            input_ids=np.concatenate([empty, *self._input_ids]),
            first_char=np.concatenate([empty, *first]),
            last_char=np.concatenate([empty, *last]),
            is_max_context=np.concatenate([empty.astype(bool), *is_max]),
            first_lengths=numbers[4],
            start_positions=numbers[5],
            end_positions=numbers[6],
            is_impossible=numbers[7],
        )


def _make_work(
    tokenizer: Tokenizer, settings: WindowSettings, is_training: bool
) -> Callable[[_Task], Iterator[tuple[SquadFeatures, list[int], int]]]:
    """Returns the work of a process: task → features, skipped questions, number of questions."""

    def work(task: _Task) -> Iterator[tuple[SquadFeatures, list[int], int]]:
        builder = _Builder(tokenizer, settings)
        skipped: list[int] = []
        for context, questions in task:
            tokenized = alignment.tokenize(tokenizer, context)
            queries = tokenizer.encode_batch([question.text for question in questions])
            for question, query in zip(questions, queries, strict=True):
                answer = question.answer if is_training else None
                span = _answer_span(tokenized, answer) if tokenized and answer else None
                if tokenized is None or (answer and not span):
                    skipped.append(question.number)
                else:
                    builder.add(question.number, query, tokenized, span, is_training)
        yield builder.finish(), skipped, sum(len(questions) for _, questions in task)

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
    tasks = list(_tasks(examples))
    processes = min(num_workers or workers.available_cores(), len(tasks))
    made: list[SquadFeatures] = []
    skipped: list[int] = []
    args = (tokenizer, settings, is_training)
    hidden = None if shows_progress else True  # None hides the bar unless on a terminal
    with tqdm(total=len(examples), unit="question", desc="features", disable=hidden) as bar:
        for features, without, count in workers.run(_make_work, args, tasks, processes):
            made.append(features)
            skipped += without
            bar.update(count)
    if skipped:
        logging.warning(
            "%d of %d questions are skipped, because normalization removes their context or "
            "answer: %s",
            len(skipped),
            len(examples),
            abbreviate([examples[number].qas_id for number in sorted(skipped)], MAX_NAMED),
        )
    if len(skipped) == len(examples):
        raise NoFeaturesError(
            f"none of {len(examples)} questions has features: their contexts are empty, or the "
            "vocabulary belongs to another language"
        )
    features = concatenate(made)
    return features.take(np.argsort(features.example_index, kind="stable"))

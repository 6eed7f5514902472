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

import dataclasses
import functools
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from absl import logging
from numpy.typing import NDArray
from tqdm import tqdm

from albert_tf.data import workers
from albert_tf.finetuning.batching import Array, Batch
from albert_tf.finetuning.rows import abbreviate
from albert_tf.finetuning.squad.alignment import TokenizedText, is_skipped_by_google, tokenize
from albert_tf.finetuning.squad.questions import MAX_NAMED, SquadExample
from albert_tf.finetuning.squad.settings import SPECIAL_TOKENS, WindowSettings
from albert_tf.finetuning.token_sequences import ItemType, Packer, TokenSequences, reordered
from albert_tf.model.tokenization import Tokenizer

_LABELS = ("start_positions", "end_positions", "is_impossible")


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
        has_realigned: whether Google's program cannot align one of the contexts; known of training.
    """

    sequences: TokenSequences
    example_index: NDArray[np.int32]
    query_lengths: NDArray[np.int32]
    first_char: NDArray[np.int32]
    last_char: NDArray[np.int32]
    is_max_context: NDArray[np.bool_]
    has_realigned: bool = False

    @classmethod
    def concatenate(cls, parts: Sequence[SquadFeatures]) -> SquadFeatures:
        """Returns the features of several parts, each in the order of its questions, in theirs."""
        return cls(
            TokenSequences.concatenate([part.sequences for part in parts]),
            np.concatenate([part.example_index for part in parts]),
            np.concatenate([part.query_lengths for part in parts]),
            np.concatenate([part.first_char for part in parts]),
            np.concatenate([part.last_char for part in parts]),
            np.concatenate([part.is_max_context for part in parts]),
            any(part.has_realigned for part in parts),
        )._in_order()

    def in_training_order(self, num_questions: int) -> SquadFeatures:
        """Returns the features in the order in which Google's programs train on questions.

        Args:
            num_questions: number of all questions, also of those without features.
        """
        order = list(range(num_questions))
        random.Random(SHUFFLE_SEED).shuffle(order)
        place_of = np.empty(num_questions, np.int32)
        place_of[order] = np.arange(num_questions)
        shuffled = dataclasses.replace(self, example_index=place_of[self.example_index])
        return shuffled._in_order()

    def _in_order(self) -> SquadFeatures:
        """Returns the features in the order of their questions."""
        if (np.diff(self.example_index) >= 0).all():
            return self
        order = np.argsort(self.example_index, kind="stable")
        sizes = self.window_lengths
        return SquadFeatures(
            self.sequences.reordered(order),
            self.example_index[order],
            self.query_lengths[order],
            _reorder(self.first_char, sizes, order),
            _reorder(self.last_char, sizes, order),
            _reorder(self.is_max_context, sizes, order),
            self.has_realigned,
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


def _reorder(
    places: NDArray[ItemType], lengths: NDArray[np.int32], order: NDArray[np.int64]
) -> NDArray[ItemType]:
    """Returns what features have of each token of their windows; nothing for training."""
    return reordered(places, lengths, order) if len(places) else places


SHUFFLE_SEED = 12345  # as in Google's programs
CONTEXT_WEIGHT = 0.01  # weight of the window's length in a token's context; see `_cut`
TASK_CHARS = 50_000  # characters of context in one task of a process
# Characters of questions and contexts in memory. Those of SQuAD are 21 million: each context is
# tokenized once, even if the questions are in random order.
CHARS_AT_ONCE = 1 << 25


class NoFeaturesError(ValueError):
    """No question has features."""


class _Question(NamedTuple):
    """A question of a task.

    Attributes:
        number: its index.
        qas_id, text: its id and text.
        answer: the first and the last character of its answer; None if there is none.
    """

    number: int
    qas_id: str
    text: str
    answer: tuple[int, int] | None


_Task = list[tuple[str, list[_Question]]]  # of a process: several contexts with their questions


def _tasks(examples: Iterable[SquadExample], is_training: bool) -> Iterator[_Task]:
    """Yields the questions grouped by context, with several contexts per task."""
    by_context: dict[str, list[_Question]] = {}
    size = 0
    for number, example in enumerate(examples):
        answer = None
        if is_training and example.answers and not example.is_impossible:
            end = example.answer_start + len(example.answers[0])
            answer = (example.answer_start, end - 1)
        if example.context not in by_context:
            if size >= CHARS_AT_ONCE:
                yield from _divided(by_context)
                by_context, size = {}, 0
            by_context[example.context] = []
            size += len(example.context)
        size += len(example.question)
        question = _Question(number, example.qas_id, example.question, answer)
        by_context[example.context].append(question)
    yield from _divided(by_context)


def _divided(by_context: Mapping[str, list[_Question]]) -> Iterator[_Task]:
    """Yields contexts with their questions as tasks of about TASK_CHARS."""
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


def _cut(num_pieces: int, capacity: int, stride: int) -> tuple[tuple[int, int], ...]:
    """Returns the windows over T tokens: start and end of each."""
    spans = []
    begin = end = 0
    while end < num_pieces:
        end = min(begin + capacity, num_pieces)
        spans.append((begin, end))
        begin += min(end - begin, stride)
    return tuple(spans)


@functools.lru_cache(maxsize=256)
def _max_contexts(spans: tuple[tuple[int, int], ...]) -> list[NDArray[np.bool_]]:
    """Returns `is_max_context` of each window, bool [end - start].

    The context of a token in a window is the smaller of the numbers of tokens to its left and to
    its right, plus CONTEXT_WEIGHT times the window's length. A token has its maximum context in the
    window where this is largest; on ties, in the first one.
    """
    num_pieces = spans[-1][1]
    best = np.full(num_pieces, -1.0)
    owner = np.zeros(num_pieces, np.int32)
    for number, (begin, end) in enumerate(spans):
        left = np.arange(end - begin)
        score = np.minimum(left, left[::-1]) + CONTEXT_WEIGHT * (end - begin)
        better = score > best[begin:end]
        best[begin:end][better] = score[better]
        owner[begin:end][better] = number
    return [owner[begin:end] == number for number, (begin, end) in enumerate(spans)]


class _Builder:
    """Makes the windows of questions.

    Args:
        tokenizer: the tokenizer.
        settings: how contexts are split.
        is_training: whether no answer will be decoded, for which places in the context are needed.
    """

    def __init__(self, tokenizer: Tokenizer, settings: WindowSettings, is_training: bool) -> None:
        self._tokenizer = tokenizer
        self._settings = settings
        self._is_training = is_training
        self._packer = Packer()
        self._rows: list[tuple[int, ...]] = []  # of each window: question, its length and labels
        self._places: list[tuple[Array, Array, Array]] = []  # of the tokens of each window

    def add(
        self, number: int, query: list[int], context: TokenizedText, span: tuple[int, int] | None
    ) -> None:
        """Adds the windows of a question.

        Args:
            number: its index.
            query: its token ids.
            context: the tokenized context.
            span: first and last token of the answer; None if there is none.
        """
        query = query[: self._settings.max_query_length]
        sep_id = self._tokenizer.sep_id
        prefix = [self._tokenizer.cls_id, *query, sep_id]
        capacity = self._settings.max_seq_length - len(query) - SPECIAL_TOKENS
        spans = _cut(len(context.token_ids), capacity, self._settings.doc_stride)
        for begin, end in spans:
            # As in Google's programs, windows without the answer are used for training, even in
            # SQuAD 1.1, with the answer at [CLS].
            labels = (0, 0, 1)
            if span is not None and begin <= span[0] and span[1] < end:
                start, stop = (piece - begin + len(prefix) for piece in span)
                labels = (start, stop, 0)
            ids = [*prefix, *context.token_ids[begin:end].tolist(), sep_id]
            self._packer.add(ids, len(prefix) if self._tokenizer.has_segments else len(ids))
            self._rows.append((number, len(query), *labels))
        if not self._is_training:
            for (begin, end), is_max_context in zip(spans, _max_contexts(spans), strict=True):
                chars = (context.first_char[begin:end], context.last_char[begin:end])
                self._places.append((*chars, is_max_context))

    def features(self) -> SquadFeatures:
        """Returns the windows so far."""
        number, length, *labels = np.array(self._rows, np.int32).reshape(-1, 5).T
        columns = dict(zip(_LABELS, labels, strict=True)) if self._is_training else {}
        first_char, last_char, is_max_context = (
            np.concatenate([np.zeros(0, dtype), *(window[place] for window in self._places)])
            for place, dtype in enumerate((np.int32, np.int32, np.bool_))
        )
        return SquadFeatures(
            self._packer.packed(columns), number, length, first_char, last_char, is_max_context
        )


class _Done(NamedTuple):
    """What a process makes of a task.

    Attributes:
        num_questions: the number of its questions.
        skipped: ids of questions without features.
        features: the features.
    """

    num_questions: int
    skipped: list[str]
    features: SquadFeatures


def _make_work(
    tokenizer: Tokenizer, settings: WindowSettings, is_training: bool
) -> Callable[[_Task], Iterator[_Done]]:
    """Returns the work of a process."""

    def work(task: _Task) -> Iterator[_Done]:
        builder = _Builder(tokenizer, settings, is_training)
        skipped = []
        for text, questions in task:
            context = tokenize(tokenizer, text)
            queries = tokenizer.encode_batch([question.text for question in questions])
            for question, query in zip(questions, queries, strict=True):
                answer = question.answer
                span = _answer_span(context, answer) if context and answer else None
                if context is None or (answer and span is None):
                    skipped.append(question.qas_id)
                else:
                    builder.add(question.number, query, context, span)
        features = builder.features()
        if is_training and any(is_skipped_by_google(tokenizer, text) for text, _ in task):
            features = dataclasses.replace(features, has_realigned=True)
        yield _Done(sum(len(questions) for _, questions in task), skipped, features)

    return work


def make_features(
    examples: Iterable[SquadExample],
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
        examples: the questions, which may be read while this runs; in training, each is impossible
            or has its answer at its offset.
        tokenizer: the tokenizer of the model.
        settings: how contexts are split.
        is_training: whether to compute the positions of answers.
        num_workers: number of processes; None for one per core.
        shows_progress: whether to show a progress bar, if standard error is a terminal.

    Raises:
        NoFeaturesError: no question has features.
    """
    processes = num_workers or workers.available_cores()
    make_work = functools.partial(_make_work, tokenizer, settings, is_training)
    parts = []
    count, skipped = 0, list[str]()
    hidden = None if shows_progress else True  # None hides the bar unless on a terminal
    with tqdm(unit="question", desc="features", disable=hidden) as bar:
        for done in workers.run(make_work, _tasks(examples, is_training), processes):
            parts.append(done.features)
            count += done.num_questions
            skipped += done.skipped
            bar.update(done.num_questions)
    if skipped:
        logging.warning(
            "%d of %d questions are skipped, because normalization removes their context or "
            "answer: %s",
            *(len(skipped), count, abbreviate(skipped, MAX_NAMED)),
        )
    if len(skipped) == count:
        raise NoFeaturesError(
            f"none of {count} questions has features: their contexts are empty, or the "
            "vocabulary belongs to another language"
        )
    return SquadFeatures.concatenate(parts)

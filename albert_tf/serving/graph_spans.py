"""Answers to questions as spans of their contexts, inside a TensorFlow graph.

Contexts are read in windows and their answers found as in `squad.windows` and `squad.decoding`.

    [CLS] question [SEP] window of the context [SEP] padding

Letters: B batch, T tokens of the batch's contexts, N windows, S sequence length, C candidate spans
of a window, V valid ones of the batch, K answers of a question.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from albert_tf.serving.graph_alignment import AlignedTexts, GraphAligner
from albert_tf.serving.graph_characters import CharacterTable
from albert_tf.serving.graph_tokenizer import GraphTokenizer, keep
from albert_tf.tokenization import FullTokenizer

_SPECIAL_TOKENS = 3
_CONTEXT_WEIGHT = 0.01  # as in `squad.windows`
_NO_WINDOWS_NULL_ODDS = 1_000_000.0  # as in `squad.decoding`


@dataclasses.dataclass(frozen=True)
class SpanSettings:
    """How contexts are read, and how many answers are returned.

    Attributes:
        max_seq_length: the most tokens of a window, question and special symbols included.
        doc_stride: number of tokens between the starts of two windows.
        max_query_length: number of first tokens of a question that are kept.
        n_best_size: K.
        max_answer_length: the most tokens of an answer.
        min_length: the fewest positions of a window, padding included.
        threshold: of the null odds; a question above it has no answer. None for no such odds.
    """

    max_seq_length: int
    doc_stride: int
    max_query_length: int
    n_best_size: int
    max_answer_length: int
    min_length: int = 1
    threshold: float | None = None


@dataclasses.dataclass(frozen=True)
class Candidates:
    """Candidate spans of windows, as `squad.decoding.Candidates`.

    Attributes:
        starts: int32 [N, C], positions in the window.
        ends: int32 [N, C].
        start_scores: float32 [N, C].
        end_scores: float32 [N, C].
        null_scores: float32 [N]; None in SQuAD 1.1.
    """

    starts: tf.Tensor
    ends: tf.Tensor
    start_scores: tf.Tensor
    end_scores: tf.Tensor
    null_scores: tf.Tensor | None = None


@dataclasses.dataclass(frozen=True)
class Windows:
    """The windows of questions, at least one for each.

    Attributes:
        batch: `input_ids`, `input_mask`, `segment_ids` and `p_mask`, int32 [N, S].
        questions: int64 [N], the question of each window.
        prefixes: int64 [N], number of tokens before the context.
        begins: int64 [N], the window's first token, among all T.
        lengths: int64 [N], number of tokens of the context; 0 if it has none.
        numbers: int64 [N], of the window among those of its question.
        owners: int64 [T], the window that has the most context around each token.
    """

    batch: dict[str, tf.Tensor]
    questions: tf.Tensor
    prefixes: tf.Tensor
    begins: tf.Tensor
    lengths: tf.Tensor
    numbers: tf.Tensor
    owners: tf.Tensor


class SpanReader(tf.Module):
    """Makes windows of questions with their contexts, and answers of what a model says of these.

    Args:
        tokenizer: of the model's vocabulary.
        settings: how contexts are read.
    """

    def __init__(self, tokenizer: FullTokenizer, settings: SpanSettings) -> None:
        super().__init__(name="spans")
        self._settings = settings
        self._tokenizer = GraphTokenizer(tokenizer)
        self._aligner = GraphAligner(tokenizer, self._tokenizer)
        self._is_space = CharacterTable(str.isspace)

    def answer(
        self,
        questions: tf.Tensor,
        contexts: tf.Tensor,
        find_candidates: Callable[[dict[str, tf.Tensor]], Candidates],
    ) -> dict[str, tf.Tensor]:
        """Returns the answers to questions.

        Args:
            questions: string [B].
            contexts: string [B].
            find_candidates: the model: returns the candidate spans of a batch of windows.

        Returns:
            `answer` string [B], `score` float32 [B], `begin` and `end` int32 [B], characters of the
            context; the same of the K best, `answers`, `scores`, `begins` and `ends` [B, K]; and
            with a threshold, `null_odds` float32 [B].
        """
        aligned = self._aligner.tokenize(contexts)
        windows = self.make_windows(questions, aligned)
        candidates = find_candidates(windows.batch)
        best = self._best_spans(aligned, windows, candidates, tf.size(questions, tf.int64))
        return self._choose(best, windows, candidates.null_scores)

    def make_windows(self, questions: tf.Tensor, aligned: AlignedTexts) -> Windows:
        """Returns the windows of questions [B] about contexts [B]."""
        settings, tokenizer = self._settings, self._tokenizer
        query = tokenizer.tokenize(questions)  # [B, ragged]
        query = keep(query, tf.minimum(query.row_lengths(), settings.max_query_length))
        sizes = aligned.ids.row_lengths()  # [B]
        room = settings.max_seq_length - _SPECIAL_TOKENS - query.row_lengths()  # [B]
        stride = tf.minimum(room, settings.doc_stride)  # [B]
        counts = 1 + tf.maximum(-((room - sizes) // stride), 0)  # [B]
        rows = tf.repeat(tf.range(tf.size(sizes, tf.int64)), counts)  # [N]
        numbers = tf.ragged.range(counts).flat_values  # [N]
        begins = numbers * tf.gather(stride, rows)  # [N], in the context
        lengths = tf.minimum(tf.gather(room, rows), tf.gather(sizes, rows) - begins)  # [N]
        begins += tf.gather(aligned.ids.row_starts(), rows)
        places = tf.ragged.range(begins, begins + lengths)  # [N, ragged]
        context = places.with_flat_values(tf.gather(aligned.ids.flat_values, places.flat_values))
        query = tf.gather(query, rows)  # [N, ragged]
        cls, sep = (
            tf.fill([tf.size(rows), 1], value) for value in (tokenizer.cls_id, tokenizer.sep_id)
        )
        ids = tf.concat([cls, query, sep, context, sep], axis=1)
        prefixes = query.row_lengths() + 2
        return Windows(
            batch=_dense(ids, prefixes, tokenizer.pad_id, settings.min_length),
            questions=rows,
            prefixes=prefixes,
            begins=begins,
            lengths=lengths,
            numbers=numbers,
            owners=_owners(aligned.ids, room, stride),
        )

    def _best_spans(
        self, aligned: AlignedTexts, windows: Windows, candidates: Candidates, count: tf.Tensor
    ) -> dict[str, tf.RaggedTensor]:
        """Returns the best distinct texts of each question, the best one first.

        Returns:
            `texts`, `scores` (float64, of start and end together), `begins` and `ends`, [B, K or
            fewer].
        """
        row, first, last, scores = _valid_spans(
            windows, candidates, self._settings.max_answer_length
        )
        questions = tf.gather(windows.questions, row)  # [V]
        # By question, the best one first; equal ones in the order of windows and candidates.
        order = tf.argsort(-scores, stable=True)
        order = tf.gather(order, tf.argsort(tf.gather(questions, order), stable=True))
        questions, first, last, scores = (
            tf.gather(x, order) for x in (questions, first, last, scores)
        )
        begins, ends = self._strip(aligned, questions, first, last)
        row_begins = tf.gather(aligned.codes.row_starts(), questions)
        places = tf.ragged.range(begins + row_begins, ends + row_begins)
        codes = places.with_flat_values(tf.gather(aligned.codes.flat_values, places.flat_values))
        texts = tf.strings.unicode_encode(codes, "UTF-8")  # [V]
        # Of places with the same text, the best one.
        _, group = tf.unique(tf.strings.join([tf.strings.as_string(questions), texts], " "))
        number = tf.range(tf.size(texts))
        groups = tf.reduce_max(tf.concat([group, [-1]], 0)) + 1
        kept = tf.math.unsorted_segment_min(number, group, groups)  # rising, as groups do
        questions = tf.gather(questions, kept)
        found = {"texts": texts, "scores": scores, "begins": begins, "ends": ends}
        size = tf.math.bincount(tf.cast(questions, tf.int32), minlength=tf.cast(count, tf.int32))
        limit = tf.minimum(tf.cast(size, tf.int64), self._settings.n_best_size)
        return {
            name: keep(
                tf.RaggedTensor.from_value_rowids(tf.gather(x, kept), questions, count), limit
            )
            for name, x in found.items()
        }

    def _strip(
        self, aligned: AlignedTexts, questions: tf.Tensor, first: tf.Tensor, last: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the characters [begin, end) of spans of tokens, without spaces at their ends."""
        codes = aligned.codes
        is_text = self._is_space.look_up(codes.flat_values) == 0
        # The characters that are no spaces, with one before and one behind all of them.
        count = tf.size(is_text, tf.int64)
        known = tf.boolean_mask(tf.range(count), is_text)
        known = tf.concat([[tf.constant(-1, tf.int64)], known, [count]], 0)
        up_to = tf.cumsum(tf.cast(is_text, tf.int64))
        before = tf.gather(known, up_to)
        after = tf.gather(known, up_to + tf.cast(~is_text, tf.int64))
        row_begins = tf.gather(codes.row_starts(), questions)
        first_char = tf.gather(aligned.first.flat_values, first) + row_begins
        last_char = tf.gather(aligned.last.flat_values, last) + row_begins
        end = tf.gather(before, last_char) + 1
        begin = tf.minimum(tf.gather(after, first_char), last_char + 1)
        return begin - row_begins, tf.maximum(end, begin) - row_begins

    def _choose(
        self,
        best: dict[str, tf.RaggedTensor],
        windows: Windows,
        null_scores: tf.Tensor | None,
    ) -> dict[str, tf.Tensor]:
        """Returns the outputs of `answer`."""
        shape = [None, self._settings.n_best_size]
        sums = best["scores"]  # [B, ragged]
        is_there = tf.ones_like(sums, tf.bool).to_tensor(False, shape=shape)  # [B, K]
        sums = sums.to_tensor(float("-inf"), shape=shape)
        largest = tf.where(is_there[:, :1], sums[:, :1], 0.0)
        weights = tf.exp(sums - largest)  # [B, K]
        total = tf.reduce_sum(weights, axis=1, keepdims=True)
        scores = tf.math.divide_no_nan(weights, total)
        found = {
            "answers": best["texts"].to_tensor("", shape=shape),
            "scores": tf.cast(scores, tf.float32),
            "begins": tf.cast(best["begins"].to_tensor(-1, shape=shape), tf.int32),
            "ends": tf.cast(best["ends"].to_tensor(-1, shape=shape), tf.int32),
        }
        is_answered = is_there[:, 0]  # [B]
        more = {}
        if null_scores is not None:
            odds = _null_odds(windows, null_scores, tf.size(is_answered, tf.int64))
            threshold = tf.constant(self._settings.threshold or 0.0, tf.float64)
            is_above = tf.cast(odds, tf.float64) > threshold
            is_answered &= ~is_above | (found["answers"][:, 0] == "")
            more = {"null_odds": odds}
        nothing = {"answers": "", "scores": 0.0, "begins": -1, "ends": -1}
        chosen = {
            name.removesuffix("s"): tf.where(is_answered, found[name][:, 0], value)
            for name, value in nothing.items()
        }
        return chosen | found | more


def _dense(
    ids: tf.RaggedTensor, prefixes: tf.Tensor, pad_id: int, min_length: int
) -> dict[str, tf.Tensor]:
    """Returns windows [N, ragged] as a batch [N, S]."""
    lengths = ids.row_lengths()[:, None]  # [N, 1]
    size = tf.maximum(tf.reduce_max(lengths), min_length)
    padding = tf.fill([tf.shape(lengths)[0], tf.cast(size, tf.int32)], pad_id)
    padded = ids.to_tensor(pad_id)
    input_ids = tf.concat([padded, padding[:, tf.shape(padded)[1] :]], axis=1)  # [N, S]
    places = tf.range(size)  # [S]
    begin = prefixes[:, None]  # [N, 1]
    is_token = places < lengths
    in_window = (places >= begin) & (places < lengths - 1)
    return {
        "input_ids": input_ids,
        "input_mask": tf.cast(is_token, tf.int32),
        "segment_ids": tf.cast(is_token & (places >= begin), tf.int32),
        "p_mask": tf.cast(~in_window & (places > 0), tf.int32),
    }


def _owners(ids: tf.RaggedTensor, room: tf.Tensor, stride: tf.Tensor) -> tf.Tensor:
    """Returns the window with the most context around each token, int64 [T]; see `squad.windows`.

    Args:
        ids: int32 [B, ragged], the tokens.
        room: int64 [B], the most tokens in a window.
        stride: int64 [B], between two windows.
    """
    rows = ids.value_rowids()  # [T]
    place = tf.ragged.range(ids.row_lengths()).flat_values[:, None]  # [T, 1]
    size, room, stride = (tf.gather(x, rows)[:, None] for x in (ids.row_lengths(), room, stride))
    count = 1 + tf.maximum(-((room - size) // stride), 0)  # [T, 1]
    # The windows that may have the token: some that begin at it or before it.
    most = tf.reduce_max(tf.concat([(room + stride - 1) // stride, [[1]]], 0))
    number = tf.minimum(place // stride, count - 1) - tf.range(most)  # [T, most]
    left = place - number * stride
    length = tf.minimum(room, size - number * stride)
    context = tf.cast(tf.minimum(left, length - 1 - left), tf.float64)
    score = context + _CONTEXT_WEIGHT * tf.cast(length, tf.float64)
    score = tf.where((number >= 0) & (left < length), score, -1.0)
    best = tf.reduce_max(score, axis=1, keepdims=True)
    return tf.reduce_min(tf.where(score == best, number, tf.int64.max), axis=1)


def _valid_spans(
    windows: Windows, candidates: Candidates, max_answer_length: int
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns the candidate spans that may be answers.

    Returns:
        int64 [V], the window, the first and the last token among all T; float64 [V], the score.
    """
    prefixes, sizes = windows.prefixes[:, None], windows.lengths[:, None]  # [N, 1]
    first = tf.cast(candidates.starts, tf.int64) - prefixes  # [N, C], in the window
    last = tf.cast(candidates.ends, tf.int64) - prefixes
    length = last - first + 1
    is_valid = (first >= 0) & (last < sizes) & (length >= 1) & (length <= max_answer_length)
    scores = [tf.cast(x, tf.float64) for x in (candidates.start_scores, candidates.end_scores)]
    begins = windows.begins[:, None]
    places = tf.where(is_valid)  # [V, 2]
    row = places[:, 0]
    first, last, score = (
        tf.gather_nd(x, places) for x in (first + begins, last + begins, scores[0] + scores[1])
    )
    # As in the official programs, only the start must have its maximum context here.
    is_owner = tf.gather(windows.owners, first) == tf.gather(windows.numbers, row)
    row, first, last, score = (tf.boolean_mask(x, is_owner) for x in (row, first, last, score))
    return row, first, last, score


def _null_odds(windows: Windows, null_scores: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Returns the smallest null score of each question's windows, float32 [B]."""
    scores = tf.where(windows.lengths > 0, null_scores, _NO_WINDOWS_NULL_ODDS)
    return tf.math.unsorted_segment_min(scores, windows.questions, count)


def best_pairs(
    start_logits: tf.Tensor, end_logits: tf.Tensor, input_mask: tf.Tensor, n_best_size: int
) -> Candidates:
    """Returns all pairs of the best starts and ends, as `squad.decoding.candidates_v1`.

    Args:
        start_logits: float32 [N, S].
        end_logits: float32 [N, S].
        input_mask: int32 [N, S]; padding is no candidate, so that its width does not count.
        n_best_size: number of starts, and of ends.
    """
    size = tf.minimum(n_best_size, tf.shape(start_logits)[1])
    starts, ends = (
        tf.math.top_k(tf.where(input_mask > 0, logits, logits.dtype.min), size)
        for logits in (start_logits, end_logits)
    )
    return Candidates(
        starts=tf.repeat(starts.indices, size, axis=1),
        ends=tf.tile(ends.indices, [1, size]),
        start_scores=tf.repeat(starts.values, size, axis=1),
        end_scores=tf.tile(ends.values, [1, size]),
    )


def beams(
    start_top_log_probs: tf.Tensor,
    start_top_index: tf.Tensor,
    end_top_log_probs: tf.Tensor,
    end_top_index: tf.Tensor,
    cls_logits: tf.Tensor,
) -> Candidates:
    """Returns the beams of the SQuAD 2.0 head, as `squad.decoding.candidates_v2`."""
    width = end_top_index.shape[1] // start_top_index.shape[1]
    return Candidates(
        starts=tf.repeat(start_top_index, width, axis=1),
        ends=end_top_index,
        start_scores=tf.repeat(start_top_log_probs, width, axis=1),
        end_scores=end_top_log_probs,
        null_scores=cls_logits,
    )

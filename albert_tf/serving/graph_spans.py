"""Answers questions with spans of their contexts, inside a TensorFlow graph.

Contexts are split into windows and decoded as in `squad.windows` and `squad.decoding`.

    [CLS] question [SEP] window of the context [SEP] padding

Letters: B batch size, T context tokens in the batch, N windows, S sequence length, C candidate
spans of a window, V valid spans in the batch, K answers per question.
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
    """Settings of windows and answers.

    Attributes:
        max_seq_length: maximum number of tokens in a window, including question and special tokens.
        doc_stride: number of tokens between the starts of consecutive windows.
        max_query_length: maximum number of tokens in a question; longer ones are truncated.
        n_best_size: K.
        max_answer_length: maximum number of tokens in an answer.
        min_length: minimum number of positions in a window, including padding.
        threshold: null odds above which a question has no answer; None for models without them.
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
    """Candidate spans of windows, the equivalent of `squad.decoding.Candidates`.

    Attributes:
        starts: positions of the first tokens in the window, int32 [N, C].
        ends: positions of the last tokens in the window, int32 [N, C].
        start_scores: float32 [N, C].
        end_scores: float32 [N, C].
        null_scores: scores for no answer, float32 [N]; None in SQuAD 1.1.
    """

    starts: tf.Tensor
    ends: tf.Tensor
    start_scores: tf.Tensor
    end_scores: tf.Tensor
    null_scores: tf.Tensor | None = None


@dataclasses.dataclass(frozen=True)
class Windows:
    """The windows of questions, at least one for each question.

    Attributes:
        batch: `input_ids`, `input_mask`, `segment_ids` and `p_mask`, int32 [N, S].
        questions: index of the question of each window, int64 [N].
        prefixes: number of tokens before the context, int64 [N].
        begins: index of the first context token among all T, int64 [N].
        lengths: number of context tokens, which may be 0, int64 [N].
        numbers: index of the window among those of its question, int64 [N].
        owners: window that has the most context around each token, numbered as in `numbers`,
            int64 [T].
    """

    batch: dict[str, tf.Tensor]
    questions: tf.Tensor
    prefixes: tf.Tensor
    begins: tf.Tensor
    lengths: tf.Tensor
    numbers: tf.Tensor
    owners: tf.Tensor


class SpanReader(tf.Module):
    """Converts questions and contexts to windows, and a model's outputs for these to answers.

    Args:
        tokenizer: the tokenizer of the model.
        settings: settings of windows and answers.
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
            find_candidates: the model, a function from a batch of windows to candidate spans.

        Returns:
            The best answer of each question: `answer`, string [B], `score`, float32 [B], and the
            character offsets `begin` and `end` in the context, int32 [B]. The K best ones:
            `answers`, `scores`, `begins` and `ends`, [B, K]. For models with null scores, also
            `null_odds`, float32 [B].
        """
        aligned = self._aligner.tokenize(contexts)
        windows = self.make_windows(questions, aligned)
        candidates = find_candidates(windows.batch)
        best = self._best_spans(aligned, windows, candidates, tf.size(questions, tf.int64))
        return self._choose(best, windows, candidates.null_scores)

    def make_windows(self, questions: tf.Tensor, aligned: AlignedTexts) -> Windows:
        """Returns the windows of questions, string [B], about tokenized contexts."""
        settings = self._settings
        tokenizer = self._tokenizer
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
        """Returns the best answers with distinct texts for each question, in descending order.

        Returns:
            `texts`, `scores` (float64, sum of start and end), `begins` and `ends`, each [B, up to
            K].
        """
        row, first, last, scores = _valid_spans(
            windows, candidates, self._settings.max_answer_length
        )
        questions = tf.gather(windows.questions, row)  # [V]
        # Sort by question, then by descending score; ties keep the order of windows and candidates.
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
        # Of the spans with the same text, keep the best one.
        _, group = tf.unique(tf.strings.join([tf.strings.as_string(questions), texts], " "))
        number = tf.range(tf.size(texts))
        groups = tf.reduce_max(tf.concat([group, [-1]], 0)) + 1
        kept = tf.math.unsorted_segment_min(number, group, groups)  # ascending, as are groups
        questions = tf.gather(questions, kept)
        answers = {"texts": texts, "scores": scores, "begins": begins, "ends": ends}
        size = tf.math.bincount(tf.cast(questions, tf.int32), minlength=tf.cast(count, tf.int32))
        limit = tf.minimum(tf.cast(size, tf.int64), self._settings.n_best_size)
        return {
            name: keep(
                tf.RaggedTensor.from_value_rowids(tf.gather(x, kept), questions, count), limit
            )
            for name, x in answers.items()
        }

    def _strip(
        self, aligned: AlignedTexts, questions: tf.Tensor, first: tf.Tensor, last: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the character ranges [begin, end) of token spans, stripped of whitespace."""
        codes = aligned.codes
        is_text = self._is_space.look_up(codes.flat_values) == 0
        # Indices of the characters that are not spaces, with a sentinel at either end.
        count = tf.size(is_text, tf.int64)
        positions = tf.boolean_mask(tf.range(count), is_text)
        positions = tf.concat([[tf.constant(-1, tf.int64)], positions, [count]], 0)
        up_to = tf.cumsum(tf.cast(is_text, tf.int64))
        before = tf.gather(positions, up_to)
        after = tf.gather(positions, up_to + tf.cast(~is_text, tf.int64))
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
        answers = {
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
            is_answered &= ~is_above | (answers["answers"][:, 0] == "")
            more = {"null_odds": odds}
        nothing = {"answers": "", "scores": 0.0, "begins": -1, "ends": -1}
        chosen = {
            name.removesuffix("s"): tf.where(is_answered, answers[name][:, 0], value)
            for name, value in nothing.items()
        }
        return chosen | answers | more


def _dense(
    ids: tf.RaggedTensor, prefixes: tf.Tensor, pad_id: int, min_length: int
) -> dict[str, tf.Tensor]:
    """Returns the batch [N, S] for the token ids of windows [N, ragged]."""
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
    """Returns the window with the most context for each token, int64 [T]; see `squad.windows`.

    Args:
        ids: context tokens, int32 [B, ragged].
        room: maximum number of context tokens in a window, int64 [B].
        stride: number of tokens between the starts of consecutive windows, int64 [B].
    """
    rows = ids.value_rowids()  # [T]
    place = tf.ragged.range(ids.row_lengths()).flat_values[:, None]  # [T, 1]
    size, room, stride = (tf.gather(x, rows)[:, None] for x in (ids.row_lengths(), room, stride))
    count = 1 + tf.maximum(-((room - size) // stride), 0)  # [T, 1]
    # The windows that may contain the token are the last few that begin at or before it.
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
        The window, and the indices of the first and last token among all T, int64 [V] each; the
        score, float64 [V].
    """
    prefixes = windows.prefixes[:, None]  # [N, 1]
    sizes = windows.lengths[:, None]  # [N, 1]
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
    # As in the official programs, only the start must have its maximum context in this window.
    is_owner = tf.gather(windows.owners, first) == tf.gather(windows.numbers, row)
    row, first, last, score = (tf.boolean_mask(x, is_owner) for x in (row, first, last, score))
    return row, first, last, score


def _null_odds(windows: Windows, null_scores: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Returns the minimum null score over the windows of each question, float32 [B]."""
    scores = tf.where(windows.lengths > 0, null_scores, _NO_WINDOWS_NULL_ODDS)
    return tf.math.unsorted_segment_min(scores, windows.questions, count)


def best_pairs(
    start_logits: tf.Tensor, end_logits: tf.Tensor, input_mask: tf.Tensor, n_best_size: int
) -> Candidates:
    """Returns all pairs of the best starts and ends; see `squad.decoding.candidates_v1`.

    Args:
        start_logits: float32 [N, S].
        end_logits: float32 [N, S].
        input_mask: int32 [N, S]; padding is excluded, so that its amount does not matter.
        n_best_size: number of starts and number of ends to combine.
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
    """Returns the beams of the SQuAD 2.0 head; see `squad.decoding.candidates_v2`."""
    width = end_top_index.shape[1] // start_top_index.shape[1]
    return Candidates(
        starts=tf.repeat(start_top_index, width, axis=1),
        ends=end_top_index,
        start_scores=tf.repeat(start_top_log_probs, width, axis=1),
        end_scores=end_top_log_probs,
        null_scores=cls_logits,
    )

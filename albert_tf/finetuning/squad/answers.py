"""Decodes model outputs to answers: candidate spans, n-best lists and null odds.

    answers = decode(examples, features, candidates_v1(start_logits, end_logits, n), n, max_length)

The head of SQuAD 1.1 scores every position as the start and as the end of the answer; candidates
are all pairs of the best starts and ends. The head of SQuAD 2.0 runs a beam search: it scores ends
for each of its best starts, and whether the question has an answer at all. `decode` drops invalid
spans, converts the others from tokens to text, and ranks the texts of all windows of a question.

Source: `accumulate_predictions_*` and `write_predictions_*` in `squad_utils.py` of
google-research/albert. Spans, their order (including ties) and the files' bytes are identical.

Shapes: N features, S sequence length, C candidate spans of a feature.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import operator
import os
from collections.abc import Iterator, Sequence
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from albert_tf import files
from albert_tf.finetuning.squad.questions import SquadExample
from albert_tf.finetuning.squad.settings import NBEST, NULL_ODDS, PREDICTIONS
from albert_tf.finetuning.squad.windows import SquadFeatures

# The outputs of the heads of SQuAD 1.1 and 2.0, and their padding values in shorter batches.
NOWHERE = -1e30  # logit of padding positions, where no answer can start or end
OUTPUTS_V1 = {"start_logits": NOWHERE, "end_logits": NOWHERE}
OUTPUTS_V2 = dict.fromkeys(
    ("start_top_log_probs", "start_top_index", "end_top_log_probs", "end_top_index", "cls_logits"),
    0.0,
)
NOTHING_FOUND_V1 = "empty"  # Google's answer to a question without a valid span, in SQuAD 1.1
NO_FEATURES_NULL_ODDS = 1_000_000.0
NO_CANDIDATE_SCORE = -1e6
ROWS_AT_ONCE = 512  # features decoded at a time; each typically has 400 candidates

Span = tuple[float, float, str, int]  # start score, end score, text, offset in the context


@dataclasses.dataclass(frozen=True, eq=False)
class Candidates:
    """Candidate spans of N features and their scores. Ties are resolved in favor of the first.

    Attributes:
        starts, ends: int [N, C], first and last position of each span in the feature.
        start_scores, end_scores: float32 [N, C], logits or log probabilities.
        null_scores: float32 [N], larger if the feature is less likely to contain an answer; None in
            SQuAD 1.1.
    """

    starts: NDArray[np.integer]
    ends: NDArray[np.integer]
    start_scores: NDArray[np.floating]
    end_scores: NDArray[np.floating]
    null_scores: NDArray[np.floating] | None = None


class RankedAnswer(TypedDict):
    """An entry of an n-best list, as in Google's `nbest_predictions.json`.

    Attributes:
        text: the text.
        probability: among the texts of the list.
        start_log_prob, end_log_prob: the scores of the span, logits in SQuAD 1.1.
    """

    text: str
    probability: float
    start_log_prob: float
    end_log_prob: float


@dataclasses.dataclass(frozen=True)
class Answers:
    """The answers to all questions. Each dictionary maps question ids, in their order.

    Attributes:
        best: the best text; "empty" (SQuAD 1.1) or "" (2.0) if there is no valid span.
        nbest: the n-best list, with `text`, `probability`, `start_log_prob` and `end_log_prob`.
        null_odds: larger if the question is less likely to have an answer; None in SQuAD 1.1.
        begins: the offset in the context, in characters, of each text in the n-best list; -1 if
            there is no valid span.
    """

    best: dict[str, str]
    nbest: dict[str, list[RankedAnswer]]
    null_odds: dict[str, float] | None = None
    begins: dict[str, list[int]] = dataclasses.field(default_factory=dict)

    def predictions(self, threshold: float | None = None, strict: bool = False) -> dict[str, str]:
        """Returns question id → answer, which is "" if the null odds exceed `threshold`.

        Args:
            threshold: maximum null odds of an answered question; None to answer all questions.
            strict: whether questions with null odds equal to the threshold are unanswered, too, as
                in Google's program.
        """
        odds = self.null_odds
        if threshold is None or odds is None:
            return dict(self.best)
        answered = operator.lt if strict else operator.le
        return {
            qas_id: text if answered(odds[qas_id], threshold) else ""
            for qas_id, text in self.best.items()
        }


def candidates_v1(
    start_logits: NDArray[np.floating], end_logits: NDArray[np.floating], n_best_size: int
) -> Candidates:
    """Returns all pairs of the `n_best_size` best starts and the `n_best_size` best ends.

    Args:
        start_logits: float [N, S].
        end_logits: float [N, S].
        n_best_size: number of starts, and number of ends.
    """
    starts = _best_positions(start_logits, n_best_size)
    ends = _best_positions(end_logits, n_best_size)
    num_starts = starts.shape[1]
    num_ends = ends.shape[1]
    return Candidates(
        starts=np.repeat(starts, num_ends, axis=1),
        ends=np.tile(ends, num_starts),
        start_scores=np.repeat(np.take_along_axis(start_logits, starts, 1), num_ends, axis=1),
        end_scores=np.tile(np.take_along_axis(end_logits, ends, 1), num_starts),
    )


def _best_positions(logits: NDArray[np.floating], count: int) -> NDArray[np.int64]:
    """Returns the positions of the largest logits, int64 [N, count]; on ties, the first ones."""
    return np.argsort(-logits, axis=1, kind="stable")[:, :count]


def candidates_v2(
    start_top_log_probs: NDArray[np.floating],
    start_top_index: NDArray[np.integer],
    end_top_log_probs: NDArray[np.floating],
    end_top_index: NDArray[np.integer],
    cls_logits: NDArray[np.floating],
) -> Candidates:
    """Returns the beam search results of the SQuAD 2.0 head as candidates.

    Args:
        start_top_log_probs: float [N, K], log probabilities of the K best starts.
        start_top_index: int [N, K], their positions.
        end_top_log_probs: float [N, K·E], log probabilities of the E best ends for each start.
        end_top_index: int [N, K·E], their positions.
        cls_logits: float [N], larger if an answer is less likely.
    """
    beams = end_top_index.shape[1] // start_top_index.shape[1]
    return Candidates(
        starts=np.repeat(start_top_index, beams, axis=1),
        ends=end_top_index,
        start_scores=np.repeat(start_top_log_probs, beams, axis=1),
        end_scores=end_top_log_probs,
        null_scores=cls_logits,
    )


def decode(
    examples: Sequence[SquadExample],
    features: SquadFeatures,
    candidates: Candidates,
    n_best_size: int,
    max_answer_length: int,
) -> Answers:
    """Returns the answers to all questions.

    Args:
        examples: the questions.
        features: the features of the questions; those of each question are adjacent.
        candidates: the candidate spans of these features.
        n_best_size: length of the n-best lists.
        max_answer_length: maximum length of an answer, in tokens.

    Raises:
        ValueError: the numbers of features and candidates differ.
    """
    if len(features) != len(candidates.starts):
        raise ValueError(f"{len(features)} features, but scores for {len(candidates.starts)}")
    version_2 = candidates.null_scores is not None
    spans_of: list[dict[tuple[int, int, int], list[tuple[float, float]]]] = [{} for _ in examples]
    for number, key, scores in _valid_spans(features, candidates, max_answer_length):
        spans_of[number].setdefault(key, []).append(scores)
    nbest = {}
    begins = {}
    for example, spans in zip(examples, spans_of, strict=True):
        texts = _rank(example.context, features, spans, n_best_size)
        if not texts:
            nothing = (NO_CANDIDATE_SCORE,) * 2 if version_2 else (0.0, 0.0)
            texts = [(*nothing, "" if version_2 else NOTHING_FOUND_V1, -1)]
        nbest[example.qas_id] = _with_probabilities(texts)
        begins[example.qas_id] = [begin for *_, begin in texts]
    return Answers(
        best={qas_id: entries[0]["text"] for qas_id, entries in nbest.items()},
        nbest=nbest,
        null_odds=_null_odds(examples, features, candidates.null_scores),
        begins=begins,
    )


def _valid_spans(
    features: SquadFeatures, candidates: Candidates, max_answer_length: int
) -> Iterator[tuple[int, tuple[int, int, int], tuple[float, float]]]:
    """Yields the valid candidate spans, each as (question index, span, scores).

    A span is valid if it lies in the context, is not too long, and starts at a token that has its
    maximum context in this window (so that overlapping windows do not yield it twice). It is given
    as the index of its feature, and the indices of its first and last token in
    `features.first_char`.
    """
    offsets = features.window_offsets[:-1, None]
    sizes = features.window_lengths[:, None]
    window_begins = features.query_lengths[:, None] + 2
    for begin in range(0, len(features), ROWS_AT_ONCE):
        rows = slice(begin, begin + ROWS_AT_ONCE)
        first = candidates.starts[rows] - window_begins[rows]  # [rows, C], index in the window
        last = candidates.ends[rows] - window_begins[rows]
        lengths = last - first + 1
        valid = (first >= 0) & (last < sizes[rows])
        valid &= (lengths >= 1) & (lengths <= max_answer_length)
        row, column = np.nonzero(valid)
        place = offsets[begin + row, 0] + first[row, column]
        # As in Google's programs, the end need not have its maximum context in this window.
        keep = features.is_max_context[place]
        row = row[keep]
        column = column[keep]
        place = place[keep]
        scores = [
            part[begin + row, column].astype(np.float64).tolist()
            for part in (candidates.start_scores, candidates.end_scores)
        ]
        yield from zip(
            features.example_index[begin + row].tolist(),
            zip(
                (begin + row).tolist(),
                place.tolist(),
                (place + lengths[row, column] - 1).tolist(),
                strict=True,
            ),
            zip(*scores, strict=True),
            strict=True,
        )


def _rank(
    context: str,
    features: SquadFeatures,
    spans: dict[tuple[int, int, int], list[tuple[float, float]]],
    n_best_size: int,
) -> list[Span]:
    """Returns the best distinct texts; each with the scores and offset of its best span."""
    # A span has several scores only if several beams start at the same position.
    means = [
        (sum(start for start, _ in scores) / len(scores), sum(e for _, e in scores) / len(scores))
        for scores in spans.values()
    ]
    ranked = sorted(zip(means, spans, strict=True), key=lambda item: -(item[0][0] + item[0][1]))
    texts: dict[str, Span] = {}
    for (start, end), (_, first, last) in ranked:
        begin = int(features.first_char[first])
        raw = context[begin : features.last_char[last] + 1]
        text = raw.strip()
        begin += len(raw) - len(raw.lstrip())
        texts.setdefault(text, (start, end, text, begin))
        if len(texts) == n_best_size:
            break
    return list(texts.values())


def _with_probabilities(texts: list[Span]) -> list[RankedAnswer]:
    """Returns the entries of an n-best list, with the softmax of the scores as probabilities."""
    scores = [start + end for start, end, *_ in texts]
    weights = [math.exp(score - max(scores)) for score in scores]
    # One after the other, as in Google's program: from Python 3.12 on, `sum` is more exact.
    total = functools.reduce(operator.add, weights)
    return [
        {
            "text": text,
            "probability": weight / total,
            "start_log_prob": start,
            "end_log_prob": end,
        }
        for (start, end, text, _), weight in zip(texts, weights, strict=True)
    ]


def _null_odds(
    examples: Sequence[SquadExample],
    features: SquadFeatures,
    null_scores: NDArray[np.floating] | None,
) -> dict[str, float] | None:
    """Returns question id → smallest null score of its windows; None in SQuAD 1.1."""
    if null_scores is None:
        return None
    odds = np.full(len(examples), NO_FEATURES_NULL_ODDS)
    np.minimum.at(odds, features.example_index, null_scores.astype(np.float64))
    odds += 0.0  # converts -0.0 to 0.0, as in the file of Google's program
    return {example.qas_id: odd for example, odd in zip(examples, odds.tolist(), strict=True)}


def write_answers(directory: str, answers: Answers, predictions: dict[str, str]) -> None:
    """Writes `predictions.json`, `nbest_predictions.json` and, in SQuAD 2.0, `null_odds.json`.

    Args:
        directory: an existing folder.
        answers: the n-best lists and null odds.
        predictions: question id → answer.
    """
    contents: dict[str, object] = {PREDICTIONS: predictions, NBEST: answers.nbest}
    if answers.null_odds is not None:
        contents[NULL_ODDS] = answers.null_odds
    for name, content in contents.items():
        files.write_file(os.path.join(directory, name), json.dumps(content, indent=4) + "\n")

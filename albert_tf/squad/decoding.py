"""From scores to answers: spans, n-best lists, null odds and the files that hold them.

As google-research/albert (`squad_utils.py`, `accumulate_predictions_*`, `write_predictions_*`):
the same spans, in the same order, ties included, and files of the same bytes.

Letters: N features, S sequence length, C candidate spans of a feature.
"""

from __future__ import annotations

import dataclasses
import json
import math
import operator
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from albert_tf import files
from albert_tf.squad.features import SquadFeatures
from albert_tf.squad.reading import SquadExample

PREDICTIONS, NBEST, NULL_ODDS = "predictions.json", "nbest_predictions.json", "null_odds.json"
NOTHING_FOUND_V1 = "empty"  # the official answer to a question that has no candidate
NO_FEATURES_NULL_ODDS = 1_000_000.0
NO_CANDIDATE_SCORE = -1e6
ROWS_AT_ONCE = 512  # features that are looked at together; 400 candidates each are usual

Span = tuple[float, float, str]


@dataclasses.dataclass(frozen=True)
class DecodingSettings:
    """How answers are chosen.

    Attributes:
        n_best_size: answers in an n-best list; in SQuAD 1.1 also the number of starts, and of
            ends, that are tried.
        max_answer_length: of an answer, in pieces.
    """

    n_best_size: int = 20
    max_answer_length: int = 30

    def __post_init__(self) -> None:
        for name in ("n_best_size", "max_answer_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name}={getattr(self, name)}: expected 1 or more")


@dataclasses.dataclass(frozen=True, eq=False)
class Candidates:
    """Spans of N features with their scores, in the order in which equal ones are preferred.

    Attributes:
        starts, ends: int [N, C], positions in the feature.
        start_scores, end_scores: float32 [N, C].
        null_scores: float32 [N], larger where the feature rather holds no answer; None in
            SQuAD 1.1.
    """

    starts: NDArray[np.integer]
    ends: NDArray[np.integer]
    start_scores: NDArray[np.floating]
    end_scores: NDArray[np.floating]
    null_scores: NDArray[np.floating] | None = None


@dataclasses.dataclass(frozen=True)
class Answers:
    """What was found, by question id in the order of the questions.

    Attributes:
        best: the best text; questions without a candidate have "empty" in SQuAD 1.1, "" in 2.0.
        nbest: the n-best list: `text`, `probability`, `start_log_prob`, `end_log_prob`.
        null_odds: larger where the question rather has no answer; None in SQuAD 1.1.
    """

    best: dict[str, str]
    nbest: dict[str, list[dict[str, Any]]]
    null_odds: dict[str, float] | None = None

    def predictions(self, threshold: float | None = None, strict: bool = False) -> dict[str, str]:
        """The text that answers each question, "" where the null odds are above `threshold`.

        Args:
            threshold: None answers everything.
            strict: leave a question exactly at the threshold unanswered too, as the official
                program does.
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
    """All pairs of the `n_best_size` best starts and ends.

    Args:
        start_logits: float [N, S].
        end_logits: float [N, S].
        n_best_size: how many of each.
    """
    starts, ends = (_best_positions(logits, n_best_size) for logits in (start_logits, end_logits))
    shape = (*starts.shape, ends.shape[1])
    start_scores = np.take_along_axis(start_logits, starts, axis=1)
    end_scores = np.take_along_axis(end_logits, ends, axis=1)
    every_start = [np.broadcast_to(x[:, :, None], shape) for x in (starts, start_scores)]
    every_end = [np.broadcast_to(x[:, None, :], shape) for x in (ends, end_scores)]
    pairs = (every_start[0], every_end[0], every_start[1], every_end[1])
    return Candidates(*(x.reshape(len(starts), -1) for x in pairs))


def _best_positions(logits: NDArray[np.floating], count: int) -> NDArray[np.int64]:
    """The positions of the largest logits, the first of equal ones first: [N, count]."""
    return np.argsort(-logits, axis=1, kind="stable")[:, :count]


def candidates_v2(
    start_top_log_probs: NDArray[np.floating],
    start_top_index: NDArray[np.integer],
    end_top_log_probs: NDArray[np.floating],
    end_top_index: NDArray[np.integer],
    cls_logits: NDArray[np.floating],
) -> Candidates:
    """The beams of the SQuAD 2.0 head.

    Args:
        start_top_log_probs: [N, K], of K starts.
        start_top_index: [N, K].
        end_top_log_probs: [N, K·E], of E ends for each start.
        end_top_index: [N, K·E].
        cls_logits: [N], larger where there is no answer.
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
    settings: DecodingSettings,
) -> Answers:
    """Finds the answers to all questions.

    Args:
        examples: the questions.
        features: their features, those of a question together.
        candidates: of the same features.
        settings: how to choose.
    """
    if len(features) != len(candidates.starts):
        raise ValueError(f"{len(features)} features, but scores of {len(candidates.starts)}")
    version_2 = candidates.null_scores is not None
    found: list[dict[tuple[int, int, int], list[tuple[float, float]]]] = [{} for _ in examples]
    for number, key, scores in _valid_spans(features, candidates, settings.max_answer_length):
        found[number].setdefault(key, []).append(scores)
    nbest = {}
    for example, spans in zip(examples, found, strict=True):
        texts = _rank(example.context, features, spans, settings.n_best_size)
        if not texts:
            nothing = (NO_CANDIDATE_SCORE,) * 2 if version_2 else (0.0, 0.0)
            texts = [(*nothing, "" if version_2 else NOTHING_FOUND_V1)]
        nbest[example.qas_id] = _with_probabilities(texts)
    return Answers(
        best={qas_id: entries[0]["text"] for qas_id, entries in nbest.items()},
        nbest=nbest,
        null_odds=_null_odds(examples, features, candidates.null_scores),
    )


def _valid_spans(
    features: SquadFeatures, candidates: Candidates, max_answer_length: int
) -> Iterator[tuple[int, tuple[int, int, int], tuple[float, float]]]:
    """The spans that may be answers, each as (question, span, scores).

    A span is the number of its feature and the places of its first and last piece in the columns.
    """
    offsets, sizes = features.window_offsets[:-1, None], features.window_lengths[:, None]
    window_begins = features.query_lengths[:, None] + 2
    for begin in range(0, len(features), ROWS_AT_ONCE):
        rows = slice(begin, begin + ROWS_AT_ONCE)
        first = candidates.starts[rows] - window_begins[rows]  # [rows, C], in the window
        last = candidates.ends[rows] - window_begins[rows]
        lengths = last - first + 1
        valid = (first >= 0) & (last < sizes[rows])
        valid &= (lengths >= 1) & (lengths <= max_answer_length)
        row, column = np.nonzero(valid)
        place = offsets[begin + row, 0] + first[row, column]
        # As the official programs, only the start needs the most context in this window.
        keep = features.is_max_context[place]
        row, column, place = row[keep], column[keep], place[keep]
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
    """The best texts, each once: start score, end score, text."""
    # A span can come more than once only from beams that begin at the same place.
    means = [
        (sum(start for start, _ in scores) / len(scores), sum(e for _, e in scores) / len(scores))
        for scores in spans.values()
    ]
    ranked = sorted(zip(means, spans, strict=True), key=lambda item: -(item[0][0] + item[0][1]))
    texts: dict[str, Span] = {}
    for (start, end), (_, first, last) in ranked:
        text = context[features.first_char[first] : features.last_char[last] + 1].strip()
        texts.setdefault(text, (start, end, text))
        if len(texts) == n_best_size:
            break
    return list(texts.values())


def _with_probabilities(texts: list[Span]) -> list[dict[str, Any]]:
    """An n-best list as the files have it; probabilities among its entries."""
    scores = [start + end for start, end, _ in texts]
    weights = [math.exp(score - max(scores)) for score in scores]
    total = sum(weights)
    return [
        {
            "text": text,
            "probability": weight / total,
            "start_log_prob": start,
            "end_log_prob": end,
        }
        for (start, end, text), weight in zip(texts, weights, strict=True)
    ]


def _null_odds(
    examples: Sequence[SquadExample],
    features: SquadFeatures,
    null_scores: NDArray[np.floating] | None,
) -> dict[str, float] | None:
    """The least null score over the windows of each question."""
    if null_scores is None:
        return None
    odds = np.full(len(examples), NO_FEATURES_NULL_ODDS)
    np.minimum.at(odds, features.example_index, null_scores.astype(np.float64))
    return {example.qas_id: odd for example, odd in zip(examples, odds.tolist(), strict=True)}


def write_answers(directory: str, answers: Answers, predictions: dict[str, str]) -> None:
    """Writes `predictions.json`, `nbest_predictions.json` and, in SQuAD 2.0, `null_odds.json`.

    Args:
        directory: where; must exist.
        answers: n-best lists and null odds.
        predictions: the text that answers each question.
    """
    contents: dict[str, Any] = {PREDICTIONS: predictions, NBEST: answers.nbest}
    if answers.null_odds is not None:
        contents[NULL_ODDS] = answers.null_odds
    for name, content in contents.items():
        with files.write_atomically(os.path.join(directory, name)) as stream:
            stream.write(json.dumps(content, indent=4) + "\n")


def describe_answer(answers: Answers, qas_id: str, threshold: float | None) -> str:
    """The answer to one question for a reader: its text, its odds, and the n-best list.

    Args:
        answers: of a model.
        qas_id: the question.
        threshold: as in `Answers.predictions`.

    Returns:
        lines: the text first, and last the n-best texts, each behind its probability among them.
    """
    lines = [answers.predictions(threshold)[qas_id] or "(no answer)"]
    if answers.null_odds is not None:
        lines.append(f"null odds {answers.null_odds[qas_id]:.3f}, threshold {threshold or 0:.3f}")
    lines += [f"{entry['probability']:.4f}  {entry['text']}" for entry in answers.nbest[qas_id]]
    return "".join(line + "\n" for line in lines)

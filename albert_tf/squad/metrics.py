"""Metrics of extractive question answering, equal to those of the official scripts.

* SQuAD 1.1 (`evaluate-v1.1.py`): `exact_match` and `f1`.
* SQuAD 2.0 (`evaluate-v2.0.py`): `exact`, `f1` and `total` for all questions, for answerable ones
  and for unanswerable ones; and the best threshold of the null odds.
* CMRC 2018 and DRCD (`cmrc2018_evaluate.py`): exact match without punctuation, and an F1 over
  single Chinese characters and whole words of other scripts ("mixed segmentation").

The scripts of SQuAD are those of the TensorFlow Model Garden, `official.nlp.tools`.

Means are percentages. Gold answers are texts by question id; null odds are larger if a question is
less likely to have an answer.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from official.nlp.tools import squad_evaluate_v1_1 as script_v1
from official.nlp.tools import squad_evaluate_v2_0 as script_v2

Golds = Mapping[str, Sequence[str]]
Predictions = Mapping[str, str]
NullOdds = Mapping[str, float]
Metric = Callable[[str, str], float]

# The punctuation that the script of CMRC 2018 drops. It keeps "‘" and "…": an entry of its list has
# two of these, which no single character equals.
_DROPPED_SIGNS = set("-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
_HAN = re.compile("[\u4e00-\u9fa5]")
# As NLTK's word tokenizer, which that script uses between Chinese characters: it splits off
# punctuation, commas unless a digit follows, periods at the end, quotes at either end of a word,
# and the second half of English contractions.
_SIGNS = r";@#$%&?!\[\](){}<>\"–—«»“”‘"
_CONTRACTION = r"'(?:s|m|d|ll|re|ve)\b"
_WORD = re.compile(
    rf"[{_SIGNS}]|\.\.+|n't\b|{_CONTRACTION}"
    rf"|(?:(?!n't\b)[^\s{_SIGNS}',.]|,(?=\d)|\.(?!\.|\W*$)|(?<=\w)(?!{_CONTRACTION})'(?=\w))+"
    r"|[',.]"
)


def _mean_of_best(metric: Metric, golds: Golds, predictions: Predictions) -> float:
    """Returns the mean score of all questions, each with the gold answer that scores best.

    A question without a prediction counts as wrong.

    Raises:
        ValueError: no questions, or one without an answer.
    """
    without = [qas_id for qas_id, answers in golds.items() if not answers]
    if without or not golds:
        raise ValueError(
            f"{len(without)} of {len(golds)} questions have no answer to compare with"
            + (f", {without[0]} the first" if without else "")
        )
    scores = [
        max(metric(predictions[qas_id], answer) for answer in answers)
        for qas_id, answers in golds.items()
        if qas_id in predictions
    ]
    return 100.0 * sum(scores) / len(golds)


def evaluate_v1(golds: Golds, predictions: Predictions) -> dict[str, float]:
    """Returns the official metrics of SQuAD 1.1, `exact_match` and `f1`.

    Raises:
        ValueError: as `_mean_of_best`.
    """
    return {
        "exact_match": _mean_of_best(script_v1._exact_match_score, golds, predictions),
        "f1": _mean_of_best(script_v1._f1_score, golds, predictions),
    }


def evaluate_v2(
    golds: Golds, predictions: Predictions, null_odds: NullOdds | None = None
) -> dict[str, float]:
    """Returns the official metrics of SQuAD 2.0: `exact`, `f1`, `total`, `HasAns_…`, `NoAns_…`.

    Args:
        golds: the answers; unanswerable questions have none.
        predictions: "" for a question that is not answered.
        null_odds: given, questions above 1.0 count as unanswered, and `final_exact`,
            `final_exact_thresh`, `final_f1` and `final_f1_thresh` are the best means and thresholds
            that the script finds. Its search may stop within questions of the same odds, and says
            0 where it is best to answer nothing: see `best_thresholds`.
    """
    found = script_v2.evaluate(_as_dataset(golds), predictions, null_odds)
    kinds = ("pr_",) if null_odds else ("pr_", "final_")
    return {name: value for name, value in found.items() if not name.startswith(kinds)}


def _as_dataset(golds: Golds) -> list[dict[str, Any]]:
    """Returns answers in the form of the data of SQuAD."""
    questions = [
        {"id": qas_id, "answers": [{"text": text} for text in answers]}
        for qas_id, answers in golds.items()
    ]
    return [{"paragraphs": [{"qas": questions}]}]


def best_thresholds(
    golds: Golds, predictions: Predictions, null_odds: NullOdds
) -> dict[str, float]:
    """Returns the thresholds of the null odds with the best means, and these means.

    Questions whose odds are at most the threshold count as answered.

    Args:
        golds: the answers; unanswerable questions have none.
        predictions: the answer to each question if it is answered.
        null_odds: by question.

    Returns:
        `best_exact`, `best_exact_thresh`, `best_f1`, `best_f1_thresh`.
    """
    exact, f1 = script_v2._get_raw_scores(_as_dataset(golds), predictions)
    best_exact, exact_threshold = _find_best_threshold(golds, exact, null_odds)
    best_f1, f1_threshold = _find_best_threshold(golds, f1, null_odds)
    return {
        "best_exact": best_exact,
        "best_exact_thresh": exact_threshold,
        "best_f1": best_f1,
        "best_f1_thresh": f1_threshold,
    }


def _find_best_threshold(
    golds: Golds, scores: Mapping[str, float], null_odds: NullOdds
) -> tuple[float, float]:
    """Returns the best mean, and the threshold where it is reached."""
    ordered = sorted(scores, key=null_odds.__getitem__)
    best = current = float(sum(not golds[qas_id] for qas_id in scores))
    threshold = null_odds[ordered[0]] - 1.0  # nothing is answered
    for odds, group in itertools.groupby(ordered, null_odds.__getitem__):
        for qas_id in group:
            current += scores[qas_id] - (0 if golds[qas_id] else 1)
        if current > best:
            best, threshold = current, odds
    return 100.0 * best / len(scores), threshold


def mixed_segmentation(text: str) -> list[str]:
    """Splits text into Chinese characters and other words, without CMRC's punctuation."""
    text = text.lower().strip()
    kept = "".join(char for char in text if char not in _DROPPED_SIGNS)
    spaced = re.split(f"({_HAN.pattern})", kept)
    words: list[str] = []
    for part in spaced:
        words += [part] if _HAN.match(part) else _WORD.findall(part)
    return words


def cmrc_exact_match(prediction: str, gold: str) -> float:
    """Returns 1.0 if both are the same in lower case, without CMRC's punctuation; else 0.0."""
    found, wanted = (
        [char for char in text.lower().strip() if char not in _DROPPED_SIGNS]
        for text in (prediction, gold)
    )
    return float(found == wanted)


def cmrc_f1(prediction: str, gold: str) -> float:
    """Returns the F1 over `mixed_segmentation`, where common is the longest run in both."""
    found, wanted = mixed_segmentation(prediction), mixed_segmentation(gold)
    matcher = difflib.SequenceMatcher(None, found, wanted, autojunk=False)
    common = matcher.find_longest_match().size
    if not common:
        return 0.0
    precision, recall = common / len(found), common / len(wanted)
    return (2 * precision * recall) / (precision + recall)


def evaluate_cmrc(golds: Golds, predictions: Predictions) -> dict[str, float]:
    """Returns the metrics of CMRC 2018's script: `exact_match`, `f1`, their mean `average`.

    Raises:
        ValueError: as `_mean_of_best`.
    """
    exact = _mean_of_best(cmrc_exact_match, golds, predictions)
    f1 = _mean_of_best(cmrc_f1, golds, predictions)
    return {"exact_match": exact, "f1": f1, "average": (exact + f1) * 0.5}

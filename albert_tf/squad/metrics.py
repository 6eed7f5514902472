"""Metrics of extractive question answering, equal to those of the official scripts.

* SQuAD 1.1 (`evaluate-v1.1.py`): `exact_match` and `f1`.
* SQuAD 2.0 (`evaluate-v2.0.py`): `exact`, `f1` and `total` for all questions, for answerable ones
  and for unanswerable ones; and the best threshold of the null odds.
* CMRC 2018 and DRCD (`cmrc2018_evaluate.py`): exact match without punctuation, and an F1 over
  single Chinese characters and whole words of other scripts ("mixed segmentation").

Means are percentages. Gold answers are texts by question id; null odds are larger if a question is
less likely to have an answer.
"""

from __future__ import annotations

import collections
import itertools
import re
import string
from collections.abc import Callable, Mapping, Sequence

Golds = Mapping[str, Sequence[str]]
Predictions = Mapping[str, str]
Scores = dict[str, float]

_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")

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


def normalize_answer(text: str) -> str:
    """Returns text in lower case, without ASCII punctuation, articles and extra spaces."""
    text = _ARTICLES.sub(" ", text.lower().translate(_WITHOUT_PUNCTUATION))
    return " ".join(text.split())


def exact_match(prediction: str, gold: str) -> float:
    """Returns 1.0 if both texts are the same when normalized, else 0.0."""
    return float(normalize_answer(prediction) == normalize_answer(gold))


def f1_score(prediction: str, gold: str) -> float:
    """Returns the F1 of the normalized words, in [0, 1].

    If one of the texts has no words, it is 1.0 if both have none, else 0.0.
    """
    found, wanted = normalize_answer(prediction).split(), normalize_answer(gold).split()
    if not found or not wanted:
        return float(found == wanted)
    common = collections.Counter(found) & collections.Counter(wanted)
    return _f1(sum(common.values()), len(found), len(wanted))


def _f1(common: int, found: int, wanted: int) -> float:
    if common == 0:
        return 0.0
    precision, recall = 1.0 * common / found, 1.0 * common / wanted
    return (2 * precision * recall) / (precision + recall)


def _best(metric: Callable[[str, str], float], predictions: Predictions, golds: Golds) -> Scores:
    """Returns the score of each prediction, with the gold answer that scores best."""
    return {
        qas_id: max(metric(predictions[qas_id], answer) for answer in answers)
        for qas_id, answers in golds.items()
        if qas_id in predictions
    }


def evaluate_v1(golds: Golds, predictions: Predictions) -> dict[str, float]:
    """Returns the metrics of SQuAD 1.1: `exact_match` and `f1`, percentages.

    A question without a prediction counts as wrong.

    Raises:
        ValueError: no questions, or one without an answer.
    """
    _check_golds(golds)
    count = len(golds)
    # Unlike in SQuAD 2.0, an empty prediction is always wrong.
    f1 = {
        qas_id: score if normalize_answer(predictions[qas_id]) else 0.0
        for qas_id, score in _best(f1_score, predictions, golds).items()
    }
    return {
        "exact_match": 100.0 * sum(_best(exact_match, predictions, golds).values()) / count,
        "f1": 100.0 * sum(f1.values()) / count,
    }


def _check_golds(golds: Golds) -> None:
    without = [qas_id for qas_id, answers in golds.items() if not answers]
    if without or not golds:
        raise ValueError(
            f"{len(without)} of {len(golds)} questions have no answer to compare with"
            + (f", {without[0]} the first" if without else "")
        )


def raw_scores_v2(golds: Golds, predictions: Predictions) -> tuple[Scores, Scores]:
    """Returns exact match and F1 of each prediction as in SQuAD 2.0; no gold answer means ""."""
    wanted = {
        qas_id: [answer for answer in answers if normalize_answer(answer)] or [""]
        for qas_id, answers in golds.items()
    }
    return _best(exact_match, predictions, wanted), _best(f1_score, predictions, wanted)


def apply_threshold(
    scores: Scores, golds: Golds, null_odds: Mapping[str, float], threshold: float
) -> Scores:
    """Returns the scores if questions with null odds above `threshold` are not answered."""
    return {
        qas_id: float(not golds[qas_id]) if null_odds[qas_id] > threshold else score
        for qas_id, score in scores.items()
    }


def summarize_v2(golds: Golds, exact: Scores, f1: Scores) -> dict[str, float]:
    """Returns means under the official names: `exact`, `f1`, `total`, `HasAns_…`, `NoAns_…`.

    Raises:
        ValueError: no scores.
    """
    if not exact:
        raise ValueError("none of the questions has a prediction")
    result: dict[str, float] = {}
    for prefix, keep in (("", (True, False)), ("HasAns_", (True,)), ("NoAns_", (False,))):
        ids = [qas_id for qas_id in exact if bool(golds[qas_id]) in keep]
        if ids:
            result[f"{prefix}exact"] = 100.0 * sum(exact[qas_id] for qas_id in ids) / len(ids)
            result[f"{prefix}f1"] = 100.0 * sum(f1[qas_id] for qas_id in ids) / len(ids)
            result[f"{prefix}total"] = len(ids)
    return result


def find_best_threshold(
    golds: Golds,
    predictions: Predictions,
    scores: Scores,
    null_odds: Mapping[str, float],
    official: bool = False,
) -> tuple[float, float]:
    """Finds the threshold of the null odds with the best mean score.

    Questions whose null odds are at most the threshold count as answered.

    Args:
        golds: the answers; unanswerable questions have none.
        predictions: the answers to questions that are answered.
        scores: of these, in [0, 1].
        null_odds: by question id.
        official: as the official script, which may split questions with the same null odds, and
            returns the threshold 0 if it is best to answer nothing.

    Returns:
        the best mean, as a percentage, and the threshold.
    """
    best = current = float(sum(not golds[qas_id] for qas_id in scores))
    ordered = sorted(scores, key=null_odds.__getitem__)
    threshold = 0.0 if official or not ordered else null_odds[ordered[0]] - 1.0
    for _, group in itertools.groupby(ordered, null_odds.__getitem__):
        ids = list(group)
        for number, qas_id in enumerate(ids, 1):
            if golds[qas_id]:
                current += scores[qas_id]
            elif not official:
                current += scores[qas_id] - 1
            elif predictions[qas_id]:
                current -= 1  # even for a text that is empty when normalized, which scores 1
            if current > best and (official or number == len(ids)):
                best, threshold = current, null_odds[qas_id]
    return 100.0 * best / len(scores), threshold


def evaluate_v2(
    golds: Golds,
    predictions: Predictions,
    null_odds: Mapping[str, float] | None = None,
    threshold: float = 1.0,
) -> dict[str, float]:
    """Returns the metrics of the official script of SQuAD 2.0 for a file of predictions.

    Args:
        golds: the answers; unanswerable questions have none.
        predictions: "" for a question that is not answered.
        null_odds: if given, questions with null odds above `threshold` are not answered, and
            `best_exact`, `best_exact_thresh`, `best_f1`, `best_f1_thresh` are computed as well.
        threshold: of the null odds.

    Returns:
        as `summarize_v2`; questions without a prediction are skipped, as in the script.
    """
    exact, f1 = raw_scores_v2(golds, predictions)
    if null_odds is None:
        return summarize_v2(golds, exact, f1)
    result = summarize_v2(
        golds, *(apply_threshold(scores, golds, null_odds, threshold) for scores in (exact, f1))
    )
    return result | best_thresholds(golds, predictions, null_odds, official=True)


def best_thresholds(
    golds: Golds, predictions: Predictions, null_odds: Mapping[str, float], official: bool = False
) -> dict[str, float]:
    """Returns `best_exact`, `best_f1` and their thresholds; see `find_best_threshold`."""
    result = {}
    for name, scores in zip(("exact", "f1"), raw_scores_v2(golds, predictions), strict=True):
        found = find_best_threshold(golds, predictions, scores, null_odds, official)
        result[f"best_{name}"], result[f"best_{name}_thresh"] = found
    return result


def mixed_segmentation(text: str) -> list[str]:
    """Splits text into Chinese characters and other words, without CMRC's punctuation."""
    text = text.lower().strip()
    kept = "".join(char for char in text if char not in _DROPPED_SIGNS)
    spaced = re.split(f"({_HAN.pattern})", kept)
    return [word for part in spaced for word in ([part] if _HAN.match(part) else _words(part))]


def _words(text: str) -> list[str]:
    return _WORD.findall(text)


def _longest_common_run(first: Sequence[str], second: Sequence[str]) -> int:
    """Returns the length of the longest common substring, in entries."""
    best = 0
    lengths = [0] * (len(second) + 1)  # of the common runs that end here
    for entry in first:
        previous = lengths
        lengths = [0] * (len(second) + 1)
        for at, other in enumerate(second, 1):
            if entry == other:
                lengths[at] = previous[at - 1] + 1
        best = max(best, *lengths)
    return best


def cmrc_exact_match(prediction: str, gold: str) -> float:
    """Returns 1.0 if both are the same in lower case, without CMRC's punctuation; else 0.0."""
    found, wanted = (
        [char for char in text.lower().strip() if char not in _DROPPED_SIGNS]
        for text in (prediction, gold)
    )
    return float(found == wanted)


def cmrc_f1(prediction: str, gold: str) -> float:
    """Returns the F1 of the longest common substring over `mixed_segmentation`, in [0, 1]."""
    found, wanted = mixed_segmentation(prediction), mixed_segmentation(gold)
    return _f1(_longest_common_run(found, wanted), len(found), len(wanted))


def evaluate_cmrc(golds: Golds, predictions: Predictions) -> dict[str, float]:
    """Returns the metrics of CMRC 2018's script: `exact_match`, `f1`, and their mean `average`.

    A question without a prediction counts as wrong.

    Raises:
        ValueError: no questions, or one without an answer.
    """
    _check_golds(golds)
    exact, f1 = (
        100.0 * sum(_best(metric, predictions, golds).values()) / len(golds)
        for metric in (cmrc_exact_match, cmrc_f1)
    )
    return {"exact_match": exact, "f1": f1, "average": (exact + f1) * 0.5}

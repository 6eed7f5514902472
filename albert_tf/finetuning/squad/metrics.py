"""Measures answers to questions as the official scripts do, and finds the threshold of SQuAD 2.0.

* SQuAD 1.1 (`evaluate-v1.1.py`): `exact_match` and `f1`.
* SQuAD 2.0 (`evaluate-v2.0.py`): `exact`, `f1` and `total` over all questions, over answerable
  and over unanswerable questions; and the best threshold of the null odds, above which there is no
  answer.
* CMRC 2018 and DRCD (`cmrc2018_evaluate.py`): exact match without punctuation, and F1 over single
  Chinese characters and whole words of other scripts ("mixed segmentation").

Means are percentages. Gold answers and predictions are given by question id. Null odds are larger
if a question is less likely to have an answer.
"""

from __future__ import annotations

import difflib
import itertools
import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from absl import logging

from albert_tf import files
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.finetuning.squad.answers import Answers
from albert_tf.finetuning.squad.questions import SquadData

Golds = Mapping[str, Sequence[str]]
Predictions = Mapping[str, str]
NullOdds = Mapping[str, float]
Metric = Callable[[str, str], float]

NULL_THRESHOLD = 1.0  # of SQuAD 2.0's script: questions with larger null odds count as unanswered

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
# The punctuation that the script of CMRC 2018 removes. It keeps "‘" and "…", because their entries
# in its list are doubled ("……") and never equal a single character.
_DROPPED_SIGNS = set("-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
_HAN = re.compile("[\u4e00-\u9fa5]")
# Emulates NLTK's word tokenizer, which the script applies between Chinese characters. It splits off
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
    """Returns the mean over questions of the best score over their gold answers, in percent.

    Questions without a prediction count as wrong.

    Raises:
        ValueError: there are no questions, or a question has no gold answer.
    """
    without = [qas_id for qas_id, answers in golds.items() if not answers]
    if without or not golds:
        raise ValueError(
            f"{len(without)} of {len(golds)} questions have no gold answer"
            + (f"; the first is {without[0]}" if without else "")
        )
    scores = [
        max(metric(predictions[qas_id], answer) for answer in answers)
        for qas_id, answers in golds.items()
        if qas_id in predictions
    ]
    return 100.0 * sum(scores) / len(golds)


def _words(text: str) -> list[str]:
    """Returns the words that the scripts of SQuAD compare, without punctuation and articles."""
    return _ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split()


def exact_match(prediction: str, gold: str) -> float:
    """Returns 1.0 if two answers have the same words, else 0.0."""
    return float(_words(prediction) == _words(gold))


def word_f1(prediction: str, gold: str) -> float:
    """Returns the F1 of the words that two answers have in common; 0.0 if both have none."""
    predicted = _words(prediction)
    wanted = _words(gold)
    return _f1((Counter(predicted) & Counter(wanted)).total(), len(predicted), len(wanted))


def _f1(num_common: int, num_predicted: int, num_gold: int) -> float:
    if not num_common:
        return 0.0
    precision = num_common / num_predicted
    recall = num_common / num_gold
    return (2 * precision * recall) / (precision + recall)


def evaluate_v1(golds: Golds, predictions: Predictions) -> dict[str, float]:
    """Returns the official metrics of SQuAD 1.1, `exact_match` and `f1`.

    Raises:
        ValueError: see `_mean_of_best`.
    """
    return {
        "exact_match": _mean_of_best(exact_match, golds, predictions),
        "f1": _mean_of_best(word_f1, golds, predictions),
    }


def evaluate_v2(
    golds: Golds, predictions: Predictions, null_odds: NullOdds | None = None
) -> dict[str, float]:
    """Returns the official metrics of SQuAD 2.0: `exact`, `f1`, `total`, `HasAns_…`, `NoAns_…`.

    Args:
        golds: the gold answers; unanswerable questions have none.
        predictions: the answers, "" for unanswered questions.
        null_odds: if given, questions above NULL_THRESHOLD count as unanswered, and `final_exact`,
            `final_exact_thresh`, `final_f1` and `final_f1_thresh` are the best means and thresholds
            that the script finds. Its search may stop between questions with equal odds, and
            returns 0 if it is best to answer nothing; `best_thresholds` corrects both.
    """
    exact, f1 = _scores_v2(golds, predictions)
    measured: dict[str, float] = {}
    if null_odds:
        measured |= _thresholds_of_script("exact", golds, exact, predictions, null_odds)
        measured |= _thresholds_of_script("f1", golds, f1, predictions, null_odds)
        for qas_id in exact:
            if null_odds[qas_id] > NULL_THRESHOLD:
                exact[qas_id] = f1[qas_id] = float(not golds[qas_id])
    answerable = [qas_id for qas_id in exact if golds[qas_id]]
    unanswerable = [qas_id for qas_id in exact if not golds[qas_id]]
    for prefix, group in ("", [*exact]), ("HasAns_", answerable), ("NoAns_", unanswerable):
        if group or not prefix:
            measured[f"{prefix}exact"] = _mean_percentage(exact, group)
            measured[f"{prefix}f1"] = _mean_percentage(f1, group)
            measured[f"{prefix}total"] = len(group)
    return measured


def _mean_percentage(scores: Mapping[str, float], group: Sequence[str]) -> float:
    return 100.0 * sum(scores[qas_id] for qas_id in group) / len(group)


def _thresholds_of_script(
    name: str,
    golds: Golds,
    scores: Mapping[str, float],
    predictions: Predictions,
    null_odds: NullOdds,
) -> dict[str, float]:
    """Returns the threshold that SQuAD 2.0's script finds for a metric, and the mean there."""
    best = current = float(sum(not golds[qas_id] for qas_id in scores))
    threshold = 0.0
    for qas_id in sorted(null_odds, key=null_odds.__getitem__):
        if qas_id not in scores:
            continue
        if golds[qas_id]:
            current += scores[qas_id]
        elif predictions[qas_id]:
            current -= 1
        if current > best:
            best, threshold = current, null_odds[qas_id]
    return {f"final_{name}": 100.0 * best / len(scores), f"final_{name}_thresh": threshold}


def best_thresholds(
    golds: Golds, predictions: Predictions, null_odds: NullOdds
) -> dict[str, float]:
    """Returns the thresholds of the null odds that maximize the mean scores, and these means.

    Questions with null odds up to the threshold count as answered.

    Args:
        golds: the gold answers; unanswerable questions have none.
        predictions: the answer to each question, in case it is answered.
        null_odds: the null odds of each question.

    Returns:
        `best_exact`, `best_exact_thresh`, `best_f1`, `best_f1_thresh`.
    """
    exact, f1 = _scores_v2(golds, predictions)
    best_exact, exact_threshold = _find_best_threshold(golds, exact, null_odds)
    best_f1, f1_threshold = _find_best_threshold(golds, f1, null_odds)
    return {
        "best_exact": best_exact,
        "best_exact_thresh": exact_threshold,
        "best_f1": best_f1,
        "best_f1_thresh": f1_threshold,
    }


def _scores_v2(golds: Golds, predictions: Predictions) -> tuple[dict[str, float], dict[str, float]]:
    """Returns question id → exact match and F1, of the questions that have a prediction."""
    exact = _best_scores(exact_match, golds, predictions)
    # If neither answer has words, they agree in SQuAD 2.0.
    f1 = {
        qas_id: max(score, exact[qas_id])
        for qas_id, score in _best_scores(word_f1, golds, predictions).items()
    }
    return exact, f1


def _best_scores(metric: Metric, golds: Golds, predictions: Predictions) -> dict[str, float]:
    """Returns question id → best score over the gold answers that have words, or else over ""."""
    scores = {}
    for qas_id, answers in golds.items():
        if qas_id in predictions:
            compared = list(filter(_words, answers)) or [""]
            scores[qas_id] = max(metric(predictions[qas_id], gold) for gold in compared)
    return scores


def _find_best_threshold(
    golds: Golds, scores: Mapping[str, float], null_odds: NullOdds
) -> tuple[float, float]:
    """Returns the best mean score in percent, and the threshold that attains it."""
    ordered = sorted(scores, key=null_odds.__getitem__)
    best = current = float(sum(not golds[qas_id] for qas_id in scores))
    threshold = null_odds[ordered[0]] - 1.0  # nothing is answered
    for odds, group in itertools.groupby(ordered, null_odds.__getitem__):
        for qas_id in group:
            current += scores[qas_id] - (0 if golds[qas_id] else 1)
        if current > best:
            best = current
            threshold = odds
    return 100.0 * best / len(scores), threshold


def mixed_segmentation(text: str) -> list[str]:
    """Splits text into Chinese characters and other words, without punctuation, as CMRC 2018."""
    text = text.lower().strip()
    kept = "".join(char for char in text if char not in _DROPPED_SIGNS)
    spaced = re.split(f"({_HAN.pattern})", kept)
    words: list[str] = []
    for part in spaced:
        words += [part] if _HAN.match(part) else _WORD.findall(part)
    return words


def cmrc_exact_match(prediction: str, gold: str) -> float:
    """Returns 1.0 if both texts are equal in lower case without punctuation, else 0.0."""
    predicted, wanted = (
        [char for char in text.lower().strip() if char not in _DROPPED_SIGNS]
        for text in (prediction, gold)
    )
    return float(predicted == wanted)


def cmrc_f1(prediction: str, gold: str) -> float:
    """Returns the F1 over `mixed_segmentation`; the overlap is the longest common substring."""
    predicted = mixed_segmentation(prediction)
    wanted = mixed_segmentation(gold)
    matcher = difflib.SequenceMatcher(None, predicted, wanted, autojunk=False)
    return _f1(matcher.find_longest_match().size, len(predicted), len(wanted))


def evaluate_cmrc(golds: Golds, predictions: Predictions) -> dict[str, float]:
    """Returns the metrics of CMRC 2018: `exact_match`, `f1` and their mean, `average`.

    Raises:
        ValueError: see `_mean_of_best`.
    """
    exact = _mean_of_best(cmrc_exact_match, golds, predictions)
    f1 = _mean_of_best(cmrc_f1, golds, predictions)
    return {"exact_match": exact, "f1": f1, "average": (exact + f1) * 0.5}


def format_exactly(metrics: Mapping[str, float]) -> str:
    """Returns lines `key = value`, sorted by key, with all digits, like Google's SQuAD programs."""
    return "".join(f"{key} = {value}\n" for key, value in sorted(metrics.items()))


THRESHOLD = "null_score_diff_threshold"
THRESHOLD_FILE = "null_odds_threshold.json"  # of an exported model


def evaluate(
    data: SquadData,
    answers: Answers,
    official_threshold: bool = False,
    threshold: float | None = None,
) -> tuple[dict[str, float], dict[str, str]]:
    """Returns the metrics of answers, and the predictions that they are computed from.

    * SQuAD 1.1: `exact_match` and `f1`; for Chinese data the metrics of CMRC 2018, which add
      `average`.
    * SQuAD 2.0 (if answers have null odds): `exact`, `f1` and `total`; the same for answerable
      (`HasAns_…`) and unanswerable (`NoAns_…`) questions; `best_exact` and `best_f1` with their
      thresholds; and `null_score_diff_threshold`, the threshold that was used.

    Args:
        data: the questions with their gold answers.
        answers: the model's answers.
        official_threshold: whether to reproduce run_squad_v2.py. A question exactly at the
            threshold is then unanswered, although the search counted it as answered; and metrics
            are computed with the threshold 1.0 instead of the best one, so that they are not those
            of the predictions.
        threshold: threshold of the null odds; None for the one with the best `f1`.

    Raises:
        ValueError: a question has no gold answer, in SQuAD 1.1.
    """
    golds = {example.qas_id: example.answers for example in data.examples}
    if answers.null_odds is None:
        evaluate = evaluate_cmrc if data.is_chinese else evaluate_v1
        return evaluate(golds, answers.best), answers.best
    if official_threshold:
        if threshold is None:
            measured = evaluate_v2(golds, answers.best, answers.null_odds)
            threshold = measured["final_f1_thresh"]
        predictions = answers.predictions(threshold, strict=True)
        summary = evaluate_v2(golds, predictions, answers.null_odds)
        chosen = {key: summary[key] for key in ("exact", "f1", "total")}
        return chosen | {THRESHOLD: threshold}, predictions
    best = best_thresholds(golds, answers.best, answers.null_odds)
    if threshold is None:
        threshold = best["best_f1_thresh"]
    predictions = answers.predictions(threshold)
    summary = evaluate_v2(golds, predictions)
    return summary | best | {THRESHOLD: threshold}, predictions


def null_threshold(wanted: float | None, folder: RunFolder) -> float:
    """Returns the null odds above which a question of SQuAD 2.0 counts as unanswerable.

    It is used where gold answers are unknown.

    Args:
        wanted: the threshold of the settings; None for the one that was found when the best
            checkpoint was evaluated.
        folder: folder of the run, or of an exported model.
    """
    if wanted is not None:
        return wanted
    exported = files.read_json_if_there(folder.file(THRESHOLD_FILE))
    if THRESHOLD in exported:
        return float(exported[THRESHOLD])
    best = folder.best_evaluation
    evaluated = None if best is None else best.metrics.get(THRESHOLD)
    if evaluated is None:
        logging.warning("The threshold of the null odds is unknown; using 0")
    return evaluated or 0.0

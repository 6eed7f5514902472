"""The metrics of answers, and the threshold of SQuAD 2.0 above which there is none."""

from __future__ import annotations

from absl import logging

from albert_tf.checkpoints import finding
from albert_tf.checkpoints.best_evaluation import evaluation_of_best
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.finetuning.squad.answers import Answers
from albert_tf.finetuning.squad.metrics import (
    best_thresholds,
    evaluate_cmrc,
    evaluate_v1,
    evaluate_v2,
)
from albert_tf.finetuning.squad.questions import SquadData

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
    exported = finding.read_json_if_there(folder.path, THRESHOLD_FILE)
    if THRESHOLD in exported:
        return float(exported[THRESHOLD])
    best = evaluation_of_best(folder)
    evaluated = None if best is None else best.metrics.get(THRESHOLD)
    if evaluated is None:
        logging.warning("The threshold of the null odds is unknown; using 0")
    return evaluated or 0.0

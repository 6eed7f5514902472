"""The threshold of the null odds where gold answers are unknown."""

from __future__ import annotations

from absl import logging

from albert_tf.checkpoints import finding
from albert_tf.checkpoints.best_evaluation import evaluation_of_best
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.finetuning.squad import Settings
from albert_tf.finetuning.squad.evaluation import THRESHOLD

THRESHOLD_FILE = "null_odds_threshold.json"  # of an exported model


def null_threshold(settings: Settings, version_2: bool, folder: RunFolder) -> float | None:
    """Returns the null odds above which a question counts as unanswerable.

    This is the threshold of the settings, or else the one found when the best checkpoint was
    evaluated; None in SQuAD 1.1. It is used where gold answers are unknown.
    """
    threshold = settings.null_score_diff_threshold
    if threshold is not None or not version_2:
        return threshold
    exported = finding.read_json_if_there(folder.path, THRESHOLD_FILE)
    if THRESHOLD in exported:
        return float(exported[THRESHOLD])
    best = evaluation_of_best(folder)
    evaluated = None if best is None else best.metrics.get(THRESHOLD)
    if evaluated is None:
        logging.warning("The threshold of the null odds is unknown; using 0")
    return evaluated or 0.0

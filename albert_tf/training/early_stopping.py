"""Evaluation during training, and early stopping: training ends when a metric stops improving."""

from __future__ import annotations

import math
from collections.abc import Iterable

from absl import logging

from albert_tf.checkpoints.evaluations import Evaluation
from albert_tf.training.evaluation import CheckpointEvaluator


def is_patience_exhausted(evaluations: Iterable[Evaluation], metric: str, patience: int) -> bool:
    """Returns whether a metric did not improve in `patience` checkpoints in a row.

    Args:
        evaluations: evaluations ordered by step; those of step 0 are ignored.
        metric: name of the metric.
        patience: the number of checkpoints; 0 for no limit.
    """
    best = -math.inf
    waited = 0
    for evaluation in evaluations:
        if not patience or not evaluation.step:
            continue
        value = evaluation.metrics[metric]
        best, waited = (value, 0) if value > best else (best, waited + 1)
        if waited >= patience:
            return True
    return False


class TrainingEvaluation:
    """Evaluates the checkpoints of a training run, and says when the run ends early.

    Args:
        evaluator: evaluates checkpoints.
        patience: number of checkpoints in a row without improvement after which training ends; 0
            disables early stopping.
    """

    def __init__(self, evaluator: CheckpointEvaluator, patience: int = 0) -> None:
        self._evaluator = evaluator
        self._patience = patience

    def begin(self, step: int) -> bool:
        """Evaluates the remaining checkpoints of an interrupted run; returns whether it ends."""
        self._evaluator.catch_up(step)
        return self._is_over(step)

    def evaluate(self, prefix: str, step: int) -> bool:
        """Evaluates a checkpoint that was just saved; returns whether training ends.

        The initial weights are only evaluated for tasks in the official order.
        """
        if not step and not self._evaluator.task.official_order:
            return False
        self._evaluator.evaluate(prefix)
        return self._is_over(step)

    def _is_over(self, step: int) -> bool:
        metric = self._evaluator.task.selection_metric
        is_over = is_patience_exhausted(self._evaluator.evaluations, metric, self._patience)
        if is_over:
            logging.info("Early stopping ends training at step %d", step)
        return is_over

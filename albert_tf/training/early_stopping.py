"""Early stopping: whether a metric has stopped improving."""

from __future__ import annotations

import math
from collections.abc import Iterable

from albert_tf.checkpoints.evaluations import Evaluation


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

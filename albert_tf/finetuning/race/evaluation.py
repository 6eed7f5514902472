"""The accuracy of multiple choice, overall and for each level.

Shapes: N questions, C options.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from albert_tf.finetuning import metrics
from albert_tf.finetuning.examples import Examples
from albert_tf.finetuning.race.questions import Question

SELECTION_METRIC = "eval_accuracy"


def evaluate(
    data: Examples[Question], logits: NDArray[np.floating], batch_size: int
) -> dict[str, float]:
    """Returns the metrics of Google's program, and `eval_accuracy_<level>` for each level.

    Args:
        data: the questions, which must have labels.
        logits: float [N, C], in the order of the questions.
        batch_size: see `metrics.loss_metrics`.
    """
    labels = np.array([question.label for question in data.examples])
    predictions = logits.argmax(axis=1)
    measured = {SELECTION_METRIC: metrics.accuracy(predictions, labels)}
    levels = np.array([question.level for question in data.examples])
    for level in sorted(set(levels.tolist()) - {""}):
        chosen = levels == level
        measured[f"{SELECTION_METRIC}_{level}"] = metrics.accuracy(
            predictions[chosen], labels[chosen]
        )
    losses = metrics.losses_of_examples(logits, labels)
    return measured | metrics.loss_metrics(losses, batch_size)

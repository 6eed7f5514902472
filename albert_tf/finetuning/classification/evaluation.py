"""The metrics of classification, regression and multi-label tasks.

Shapes: N examples, K labels.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from albert_tf.finetuning import metrics
from albert_tf.finetuning.classification.tasks import ClassificationTask


def evaluate(
    task: ClassificationTask,
    logits: NDArray[np.floating],
    label_ids: NDArray[np.number],
    batch_size: int,
) -> dict[str, float]:
    """Computes the metrics of a task, with the keys of Google's program.

    Args:
        task: the task, which determines the metrics.
        logits: [N, K], or scores [N, 1] in regression, in the order of the file.
        label_ids: [N], or [N, K] in multi-label tasks.
        batch_size: see `metrics.loss_metrics`.
    """
    if task.is_regression:
        logits = logits[:, 0]  # [N]
    if task.is_multi_label:
        measured = metrics.multi_label_metrics(logits > 0, label_ids, task.labels)
    else:
        predictions = logits if task.is_regression else logits.argmax(axis=1)
        measured = {key: metrics.METRICS[key](predictions, label_ids) for key in task.metrics}
    losses = metrics.losses_of_examples(logits, label_ids)
    return measured | metrics.loss_metrics(losses, batch_size)

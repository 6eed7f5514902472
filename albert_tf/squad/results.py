"""The text file of evaluations, in the form of Google's SQuAD programs."""

from __future__ import annotations

import os
from collections.abc import Sequence

from albert_tf import files
from albert_tf.checkpoints.names import GLOBAL_STEP
from albert_tf.finetuning import results
from albert_tf.training.evaluation import Evaluation, best_of, heading


def write_squad_results(output_dir: str, evaluations: Sequence[Evaluation], metric: str) -> str:
    """Writes `eval_results.txt` as Google's SQuAD programs: a block for each checkpoint.

    A block has the metrics, the files that were copied if this checkpoint is the best so far, the
    best value including this one, and a line of "=". The best checkpoint's metrics and its step
    come last.

    Args:
        output_dir: an existing folder.
        evaluations: by step.
        metric: the selection metric.

    Returns:
        the text.
    """
    text = ""
    best = None
    for number, found in enumerate(evaluations, 1):
        text += format_exactly(found.metrics | {GLOBAL_STEP: found.step})
        if best_of(evaluations[:number], metric) is found:
            best = found
            text += results.format_copies(output_dir, found)
        text += f"best {metric} = {-1 if best is None else best.metrics[metric]}\n"
        text += results.SEPARATOR + "\n"
    if best is not None:
        text += format_exactly(best.metrics) + f"best perf happened at step: {best.step}"
    with files.write_atomically(os.path.join(output_dir, results.RESULTS_FILE)) as stream:
        stream.write(heading(evaluations) + text)
    return text


def format_exactly(metrics: results.Metrics) -> str:
    """Returns lines `key = value`, sorted by key, with all digits as Google's SQuAD programs."""
    return "".join(f"{key} = {value}\n" for key, value in sorted(metrics.items()))

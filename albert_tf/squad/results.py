"""Writes the results of evaluations in the format of Google's SQuAD programs."""

from __future__ import annotations

from collections.abc import Sequence

from albert_tf import files
from albert_tf.checkpoints.families import GLOBAL_STEP
from albert_tf.checkpoints.run_folder import Evaluation, RunFolder, best_of, heading
from albert_tf.finetuning import results


def write_squad_results(
    folder: RunFolder, evaluations: Sequence[Evaluation], metric: str, official_order: bool = False
) -> str:
    """Writes `eval_results.txt` like Google's SQuAD programs, and returns its text.

    The file has a block for each checkpoint: the metrics, the files that were copied if it is the
    best checkpoint so far, the best value up to this checkpoint, and a line of "=". At the end are
    the metrics and the step of the best checkpoint.

    Args:
        folder: folder of the run, which exists.
        evaluations: the evaluations, sorted by step.
        metric: the selection metric.
        official_order: as in `best_of`.
    """
    text = ""
    best = None
    for number, evaluation in enumerate(evaluations, 1):
        text += format_exactly(evaluation.metrics | {GLOBAL_STEP: evaluation.step})
        if best_of(evaluations[:number], metric, official_order) is evaluation:
            best = evaluation
            text += results.format_copies(folder, evaluation)
        text += f"best {metric} = {-1 if best is None else best.metrics[metric]}\n"
        text += results.SEPARATOR + "\n"
    if best is not None:
        text += format_exactly(best.metrics) + f"best perf happened at step: {best.step}"
    with files.write_atomically(folder.file(results.RESULTS_FILE)) as stream:
        stream.write(heading(evaluations) + text)
    return text


def format_exactly(metrics: results.Metrics) -> str:
    """Returns lines `key = value`, sorted by key, with all digits, like Google's SQuAD programs."""
    return "".join(f"{key} = {value}\n" for key, value in sorted(metrics.items()))

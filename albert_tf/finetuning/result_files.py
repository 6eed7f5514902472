"""The text files of results, as Google's programs write them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from albert_tf import files
from albert_tf.checkpoints.evaluations import Evaluation, heading
from albert_tf.checkpoints.run_folder import DATA_SUFFIX, RunFolder
from albert_tf.checkpoints.weight_names import GLOBAL_STEP

RESULTS_FILE = "eval_results.txt"
TEST_RESULTS_FILE = "predict_results.txt"
SEPARATOR = "=" * 50 + "\n"


def format_metrics(metrics: Mapping[str, float]) -> str:
    """Returns lines `key = value`, sorted by key; floats are printed as float32."""
    lines = []
    for key, value in sorted(metrics.items()):
        lines.append(f"{key} = {str(np.float32(value)) if isinstance(value, float) else value}\n")
    return "".join(lines)


def format_evaluation(evaluation: Evaluation) -> str:
    """Returns the lines of the metrics of a checkpoint, and of its step."""
    return format_metrics(evaluation.metrics | {GLOBAL_STEP: evaluation.step})


def format_copies(folder: RunFolder, evaluation: Evaluation) -> str:
    """Returns a line for each file of a checkpoint that is copied to `model.ckpt-best`.

    The text is empty for a checkpoint outside the output directory, which is not copied.
    """
    source = folder.file(f"model.ckpt-{evaluation.step}")
    target = folder.best
    suffixes = (DATA_SUFFIX, ".index") if evaluation.checkpoint else ()
    return "".join(f"saved {source}{suffix} to {target}{suffix}\n" for suffix in suffixes)


def best_value(evaluation: Evaluation | None, metric: str) -> float:
    """Returns the selection metric of the best checkpoint; -1 if there is none yet."""
    return -1 if evaluation is None else float(np.float32(evaluation.metrics[metric]))


def write_evaluations(
    folder: RunFolder,
    evaluations: Sequence[Evaluation],
    metric: str,
    best_of: Callable[[Sequence[Evaluation]], Evaluation | None],
    names_copies: bool = True,
) -> None:
    """Writes `eval_results.txt`.

    As in Google's `run_race.py`, the file has a block for each checkpoint: the metrics, the best
    value before this checkpoint, the files that were copied if it is better, and a line of "=".

    Args:
        folder: folder of the run.
        evaluations: evaluations of all checkpoints so far, sorted by step.
        metric: the selection metric.
        best_of: returns the best of some of them.
        names_copies: whether the file names the files that were copied.
    """
    text = ""
    best = None
    for number, evaluation in enumerate(evaluations, 1):
        text += format_evaluation(evaluation)
        text += f"best = {best_value(best, metric)}\n"
        if best_of(evaluations[:number]) is evaluation:
            best = evaluation
            text += format_copies(folder, evaluation) if names_copies else ""
        text += SEPARATOR
    files.write_file(folder.file(RESULTS_FILE), heading(evaluations) + text)


def write_test_results(
    folder: RunFolder, measured: Mapping[str, float], step: int, metric: str
) -> str:
    """Writes `predict_results.txt`, and returns its text.

    As in Google's `run_race.py`, it has the metrics of the split, and the best value of the
    selection metric on the dev set.

    Args:
        folder: folder of the run.
        measured: the metrics of the split.
        step: step of the best checkpoint.
        metric: the selection metric.
    """
    text = f"***** Predict results *****\n{format_metrics({**measured, GLOBAL_STEP: step})}"
    best = folder.best_evaluation
    if best is not None and metric in best.metrics:
        text += f"best = {best_value(best, metric)}\n"
    files.write_file(folder.file(TEST_RESULTS_FILE), text)
    return text

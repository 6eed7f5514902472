"""Writes the results of fine-tuning as text files, in the formats of Google's programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf import files
from albert_tf.checkpoints.families import GLOBAL_STEP
from albert_tf.checkpoints.run_folder import DATA_SUFFIX, Evaluation, RunFolder, best_of, heading
from albert_tf.checkpoints.store import evaluation_of_best

RESULTS_FILE = "eval_results.txt"
BEST_TRIAL_FILE = "best_trial.txt"
TEST_RESULTS_FILE = "predict_results.txt"
SEPARATOR = "=" * 50

Metrics = Mapping[str, float]


def as_json(value: Any) -> Any:
    """Returns a value that may contain NumPy arrays and numbers as one that JSON can express.

    A float has the fewest digits that round to the same float of its type.
    """
    if isinstance(value, Mapping):
        return {name: as_json(part) for name, part in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [as_json(part) for part in value]
    if isinstance(value, np.floating):
        return float(str(value))
    return value.item() if isinstance(value, np.generic) else value


def format_metrics(metrics: Metrics) -> str:
    """Returns lines `key = value`, sorted by key; floats are printed as float32."""
    lines = []
    for key, value in sorted(metrics.items()):
        lines.append(f"{key} = {str(np.float32(value)) if isinstance(value, float) else value}\n")
    return "".join(lines)


def _best_value(evaluation: Evaluation | None, metric: str) -> float:
    return -1 if evaluation is None else float(np.float32(evaluation.metrics[metric]))


def format_best(evaluation: Evaluation | None, metric: str) -> str:
    """Returns the line `best = value`, where the value is -1 if there is no best checkpoint yet."""
    return f"best = {_best_value(evaluation, metric)}\n"


def format_copies(folder: RunFolder, evaluation: Evaluation) -> str:
    """Returns a line for each file of a checkpoint that is copied to `model.ckpt-best`.

    The text is empty for a checkpoint outside the output directory, which is not copied.
    """
    source = folder.file(f"model.ckpt-{evaluation.step}")
    target = folder.best
    suffixes = (DATA_SUFFIX, ".index") if evaluation.checkpoint else ()
    return "".join(f"saved {source}{suffix} to {target}{suffix}\n" for suffix in suffixes)


def write_race_results(
    folder: RunFolder,
    evaluations: Sequence[Evaluation],
    metric: str,
    official_order: bool = False,
    names_files: bool = True,
) -> str:
    """Writes `eval_results.txt` like Google's `run_race.py`, and returns its text.

    The file has a block for each checkpoint: the metrics, the best value before this checkpoint,
    the files that were copied if it is better, and a line of "=".

    Args:
        folder: folder of the run, which exists.
        evaluations: the evaluations, sorted by step.
        metric: the selection metric.
        official_order: as in `best_of`.
        names_files: whether to name the files that were copied.
    """
    text = ""
    best = None
    for number, evaluation in enumerate(evaluations, 1):
        text += format_metrics(evaluation.metrics | {GLOBAL_STEP: evaluation.step})
        text += format_best(best, metric)
        if best_of(evaluations[:number], metric, official_order) is evaluation:
            best = evaluation
            text += format_copies(folder, evaluation) if names_files else ""
        text += SEPARATOR + "\n"
    with files.write_atomically(folder.file(RESULTS_FILE)) as stream:
        stream.write(heading(evaluations) + text)
    return text


def write_classifier_results(
    folder: RunFolder, evaluations: Sequence[Evaluation], metric: str, official_order: bool = False
) -> str:
    """Writes `eval_results.txt` and `best_trial.txt` like Google's `run_classifier.py`.

    The former is that of `write_race_results` without file names. The latter has the content
    `<last step>:<best step>:<best value>`, with -1 for missing values.

    Args:
        folder: folder of the run, which exists.
        evaluations: the evaluations, sorted by step.
        metric: the selection metric.
        official_order: as in `best_of`.

    Returns:
        The text of `eval_results.txt`.
    """
    text = write_race_results(folder, evaluations, metric, official_order, names_files=False)
    best = best_of(evaluations, metric, official_order)
    last = evaluations[-1].step if evaluations else -1
    trial = f"{last}:{-1 if best is None else best.step}:{_best_value(best, metric)}"
    with files.write_atomically(folder.file(BEST_TRIAL_FILE)) as stream:
        stream.write(trial)
    return text


def write_test_results(folder: RunFolder, metrics: Metrics, metric: str) -> str:
    """Writes `predict_results.txt` like Google's `run_race.py`, and returns its text.

    Args:
        folder: folder of the run, which exists.
        metrics: metrics on the test set.
        metric: the selection metric, whose best value on the dev set is added if known.
    """
    text = "***** Predict results *****\n" + format_metrics(metrics)
    best = evaluation_of_best(folder)
    if best is not None and metric in best.metrics:
        text += format_best(best, metric)
    with files.write_atomically(folder.file(TEST_RESULTS_FILE)) as stream:
        stream.write(text)
    return text

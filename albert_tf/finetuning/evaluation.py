"""Evaluating the checkpoints of a fine-tuning run, and keeping the best of them.

Every checkpoint is evaluated once, if possible as soon as the training loop has written it: so the
loop may remove old ones, and the best of all is kept nevertheless, as `model.ckpt-best`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging
from numpy.typing import NDArray

from albert_tf import files
from albert_tf.checkpoints import loading
from albert_tf.checkpoints.containers import DATA_SUFFIX
from albert_tf.checkpoints.loading import BEST, GLOBAL_STEP
from albert_tf.finetuning import pictures
from albert_tf.finetuning.prediction import Predictor
from albert_tf.training import run_directory

EVALUATIONS_FILE = "evaluations.jsonl"
RESULTS_FILE = "eval_results.txt"
BEST_TRIAL_FILE = "best_trial.txt"
TEST_RESULTS_FILE = "predict_results.txt"
SEPARATOR = "=" * 50
_DIGEST_LENGTH = 16

Metrics = Mapping[str, float]


def digest(*parts: Any) -> str:
    """A short name for everything that decides a result, the same for the same parts."""
    return hashlib.sha256(repr(parts).encode("utf-8")).hexdigest()[:_DIGEST_LENGTH]


def _digest_of_checkpoint(prefix: str) -> str:
    """Tells checkpoints apart by content: an index holds a checksum of every tensor."""
    with files.open_binary(prefix + ".index") as stream:
        return hashlib.sha256(stream.read()).hexdigest()[:_DIGEST_LENGTH]


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """What a checkpoint achieves.

    Attributes:
        step: its `global_step`.
        metrics: name → value.
        checkpoint: digest of its content; "" if it is none of the folder's.
        measured_on: digest of the data and of the settings that matter.
    """

    step: int
    metrics: dict[str, float]
    checkpoint: str
    measured_on: str


def best_of(evaluations: Iterable[Evaluation], metric: str) -> Evaluation | None:
    """The evaluation with the largest value of a metric above -1, the first of equal ones."""
    best, value = None, -1.0
    for evaluation in evaluations:
        if evaluation.metrics[metric] > value:
            best, value = evaluation, evaluation.metrics[metric]
    return best


def read_evaluations(output_dir: str) -> list[Evaluation]:
    """What has been measured of the checkpoints of a folder, in the order of the measurements.

    Raises:
        ValueError: the file is damaged.
    """
    path = os.path.join(output_dir, EVALUATIONS_FILE)
    try:
        lines = files.read_text(path).splitlines()
    except FileNotFoundError:
        return []
    try:
        return [Evaluation(**json.loads(line)) for line in lines]
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: not written by this program ({error}); move it away") from None


def format_metrics(metrics: Metrics) -> str:
    """Lines `key = value`, sorted by key; fractions as float32, as official."""
    lines = []
    for key, value in sorted(metrics.items()):
        lines.append(f"{key} = {str(np.float32(value)) if isinstance(value, float) else value}\n")
    return "".join(lines)


def _best_value(evaluation: Evaluation | None, metric: str) -> float:
    return -1 if evaluation is None else float(np.float32(evaluation.metrics[metric]))


def format_best(evaluation: Evaluation | None, metric: str) -> str:
    """The line `best = value`, as official: -1 where there is none yet."""
    return f"best = {_best_value(evaluation, metric)}\n"


def format_copies(output_dir: str, evaluation: Evaluation) -> str:
    """A line for each file that is copied as the best, as official; "" for a foreign checkpoint."""
    source = os.path.join(output_dir, f"model.ckpt-{evaluation.step}")
    target = os.path.join(output_dir, BEST)
    suffixes = (DATA_SUFFIX, ".index") if evaluation.checkpoint else ()
    return "".join(f"saved {source}{suffix} to {target}{suffix}\n" for suffix in suffixes)


def write_results(output_dir: str, evaluations: Sequence[Evaluation], metric: str) -> str:
    """Writes `eval_results.txt` as Google's RACE program: a block for each checkpoint.

    A block has the metrics, the best value before this checkpoint, the files that were copied if
    it was better, and a line of "=".

    Args:
        output_dir: an existing folder.
        evaluations: by step.
        metric: what decides which is best.

    Returns:
        the text.
    """
    return _write_blocks(output_dir, evaluations, metric, names_files=True)


def write_classifier_results(
    output_dir: str, evaluations: Sequence[Evaluation], metric: str
) -> str:
    """As `write_results`, but as Google's classifier, which names no files; and `best_trial.txt`.

    That file has `<last step>:<best step>:<best value>`; -1 for the best where there is none.
    """
    text = _write_blocks(output_dir, evaluations, metric, names_files=False)
    best = best_of(evaluations, metric)
    last = evaluations[-1].step if evaluations else -1
    trial = f"{last}:{-1 if best is None else best.step}:{_best_value(best, metric)}"
    with files.write_atomically(os.path.join(output_dir, BEST_TRIAL_FILE)) as stream:
        stream.write(trial)
    return text


def _write_blocks(
    output_dir: str, evaluations: Sequence[Evaluation], metric: str, names_files: bool
) -> str:
    text, best = "", None
    for number, evaluation in enumerate(evaluations, 1):
        text += format_metrics(evaluation.metrics | {GLOBAL_STEP: evaluation.step})
        text += format_best(best, metric)
        if best_of(evaluations[:number], metric) is evaluation:
            best = evaluation
            text += format_copies(output_dir, evaluation) if names_files else ""
        text += SEPARATOR + "\n"
    with files.write_atomically(os.path.join(output_dir, RESULTS_FILE)) as stream:
        stream.write(text)
    return text


@dataclasses.dataclass(frozen=True)
class EarlyStopping:
    """When training is given up because the dev set gets no better.

    Attributes:
        patience: checkpoints in a row that may be no better than one before them; 0: any number.
        min_delta: what is better by no more than this does not count as better.
    """

    patience: int = 0
    min_delta: float = 0.0

    def is_due(self, evaluations: Iterable[Evaluation], metric: str) -> bool:
        """Whether that moment came with any of these, by step. Step 0 is not counted."""
        best, waited = -math.inf, 0
        for evaluation in evaluations:
            if not self.patience or not evaluation.step:
                continue
            value = evaluation.metrics[metric]
            is_better = value > best + self.min_delta
            best, waited = (value, 0) if is_better else (best, waited + 1)
            if waited >= self.patience:
                return True
        return False


class CheckpointEvaluator:
    """Evaluates the checkpoints of a folder, each once, and copies the best to `model.ckpt-best`.

    What was measured is kept in `evaluations.jsonl`, so that running a program again costs nothing,
    and checkpoints that have been removed since still count. Better means a larger
    `selection_metric`; the earlier of two equal ones wins, as in Google's programs.

    Args:
        output_dir: the folder.
        predictor: whose model takes the weights of one checkpoint after the other.
        measure: outputs of `Predictor.predict` → name → value.
        selection_metric: one of these names.
        measured_on: `digest` of the data and of the settings that matter.
        write_results: writes the file of results, as `write_results` does.
        early_stopping: when training is given up.
    """

    def __init__(
        self,
        output_dir: str,
        predictor: Predictor,
        measure: Callable[[dict[str, NDArray[Any]]], dict[str, float]],
        selection_metric: str,
        measured_on: str,
        write_results: Callable[[str, list[Evaluation], str], Any] = write_results,
        early_stopping: EarlyStopping = EarlyStopping(),
    ) -> None:
        self.output_dir, self.predictor, self.measure = output_dir, predictor, measure
        self.selection_metric, self.measured_on = selection_metric, measured_on
        self._write_results, self._early_stopping = write_results, early_stopping
        self._all = read_evaluations(output_dir)

    @property
    def evaluations(self) -> list[Evaluation]:
        """What is known of this data, by step."""
        found = [e for e in self._all if e.measured_on == self.measured_on]
        return sorted(found, key=lambda e: e.step)

    @property
    def best(self) -> Evaluation | None:
        """The best of `evaluations`."""
        return best_of(self.evaluations, self.selection_metric)

    def _checkpoints(self) -> dict[str, str]:
        """Digest → prefix of all checkpoints of the folder; of two equal ones `model.ckpt-best`."""
        prefixes = list(loading.list_checkpoints(self.output_dir).values())
        best = os.path.join(self.output_dir, BEST)
        if tf.io.gfile.exists(best + ".index"):
            prefixes.append(best)
        return {_digest_of_checkpoint(prefix): prefix for prefix in prefixes}

    def begin(self, step: int) -> None:
        """To be called when training begins at a step.

        Evaluates what an interrupted run has left, and forgets what an earlier one has measured
        from this step on, where its checkpoints are gone.
        """
        present = self._checkpoints()
        self._all = [e for e in self._all if e.step < step or e.checkpoint in present]
        self._evaluate(present.values())

    def _evaluate(self, prefixes: Iterable[str]) -> None:
        # `model.ckpt-best` of an earlier run first: it must not be replaced by something worse.
        for prefix in sorted(prefixes, key=lambda prefix: not prefix.endswith(BEST)):
            self.evaluate(prefix)

    def evaluate(self, prefix: str) -> Evaluation:
        """Evaluates a checkpoint, unless that has been done, and keeps the best of all."""
        name = _digest_of_checkpoint(prefix)
        for evaluation in self.evaluations:
            if evaluation.checkpoint == name:
                return evaluation
        evaluation = self._measure(prefix, name)
        self._all.append(evaluation)
        with files.write_atomically(os.path.join(self.output_dir, EVALUATIONS_FILE)) as stream:
            for known in self._all:
                stream.write(json.dumps(dataclasses.asdict(known)) + "\n")
        self._conclude()
        return evaluation

    @property
    def stops_training(self) -> bool:
        """Whether the evaluations are such that training is to be given up."""
        return self._early_stopping.is_due(self.evaluations, self.selection_metric)

    def after_save(self, prefix: str) -> bool:
        """As `evaluate`, for the training loop: whether it is to stop at this checkpoint."""
        self.evaluate(prefix)
        return self.stops_training

    def _measure(self, prefix: str, name: str) -> Evaluation:
        loading.load_weights(self.predictor.model, prefix)
        metrics = self.measure(self.predictor.predict())
        logging.info("%s: %s", prefix, metrics)
        return Evaluation(loading.read_step(prefix), metrics, name, self.measured_on)

    def _conclude(self) -> None:
        self._write_results(self.output_dir, self.evaluations, self.selection_metric)
        best = best_of(self.evaluations, self.selection_metric)
        if best is not None:
            figures = best.metrics | {GLOBAL_STEP: best.step}
            run_directory.write_results(self.output_dir, {"eval": figures})
        self._keep_best()

    def _keep_best(self) -> None:
        present = self._checkpoints()
        candidates = [e for e in self.evaluations if e.checkpoint in present]
        best = best_of(candidates, self.selection_metric)
        target = os.path.join(self.output_dir, BEST)
        if best is not None and present[best.checkpoint] != target:
            loading.copy_checkpoint(present[best.checkpoint], target)

    def evaluate_all(self, init_checkpoint: str | None = None) -> list[Evaluation]:
        """Evaluates every checkpoint of the folder that has not been.

        Args:
            init_checkpoint: what to evaluate where the folder has no checkpoint.

        Returns:
            all that is known of this data, by step.

        Raises:
            ValueError: there is no checkpoint, or one is of another model.
        """
        present = self._checkpoints()
        if present:
            self._evaluate(present.values())
            self._conclude()
            return self.evaluations
        if init_checkpoint:
            found = [self._measure(loading.find_checkpoint(init_checkpoint), "")]
            self._write_results(self.output_dir, found, self.selection_metric)
            return found
        raise ValueError(
            f"{self.output_dir} holds no checkpoint to evaluate. Train first, or give "
            "--init_checkpoint."
        )


def draw_training_curve(
    evaluations: Sequence[Evaluation], metric: str, metrics_file: str, path: str
) -> None:
    """Draws how training and the evaluations of its checkpoints went.

    Args:
        evaluations: by step.
        metric: what decides which is best.
        metrics_file: of the training loop.
        path: the picture, PNG.
    """
    rows = [evaluation.metrics | {"step": evaluation.step} for evaluation in evaluations]
    best = best_of(evaluations, metric)
    best_step = None if best is None else best.step
    pictures.draw_training_curve(path, metrics_file, rows, metric, best_step)


def evaluation_of_best(output_dir: str) -> Evaluation | None:
    """What `model.ckpt-best` of a folder achieved when it was last measured, if ever."""
    prefix = os.path.join(output_dir, BEST)
    if not tf.io.gfile.exists(prefix + ".index"):
        return None
    name = _digest_of_checkpoint(prefix)
    found = [e for e in read_evaluations(output_dir) if e.checkpoint == name]
    return found[-1] if found else None


def write_test_results(output_dir: str, metrics: Metrics, metric: str) -> str:
    """Writes `predict_results.txt` as Google's RACE program.

    Args:
        output_dir: an existing folder.
        metrics: of the test split.
        metric: the one whose value on the dev split is given as well, if it is known.

    Returns:
        the text.
    """
    text = "***** Predict results *****\n" + format_metrics(metrics)
    best = evaluation_of_best(output_dir)
    if best is not None:
        text += format_best(best, metric)
    with files.write_atomically(os.path.join(output_dir, TEST_RESULTS_FILE)) as stream:
        stream.write(text)
    run_directory.write_results(output_dir, {"test": metrics})
    return text

"""Evaluation: the metrics of a model, of each checkpoint once, and what they say of training.

The best checkpoint is kept, and training ends early when a metric stops improving.

Checkpoints are usually evaluated right after the training loop has saved them. The loop may then
delete old ones, because the best one is kept as `model.ckpt-best`. The results are stored in
`evaluations.jsonl`, so that running the same command again does not repeat evaluations.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import tensorflow as tf
from absl import logging

from albert_tf.checkpoints import containers, loading, model_folder, store
from albert_tf.checkpoints.evaluations import Evaluation, best_of
from albert_tf.checkpoints.run_folder import EVAL, EVALUATIONS_FILE, RunFolder
from albert_tf.model.modeling import AlbertModel
from albert_tf.training.devices import current_precision
from albert_tf.training.progress import with_progress
from albert_tf.training.report import format_figures
from albert_tf.training.task import Batch, LossTask, MeasuredTask, Sums, add_derived
from albert_tf.training.tracker import Tracker


def check_not_replaced(folder: RunFolder, evaluations: Iterable[Evaluation], prefix: str) -> None:
    """Checks that a checkpoint is the one of its step that a run has saved and evaluated.

    Args:
        folder: the folder of the run.
        evaluations: all evaluations of the run.
        prefix: a checkpoint in its folder, which is not damaged.

    Raises:
        ValueError: another run wrote the checkpoint; the message names both. Or its name is that of
            another step.
    """
    step = loading.read_step(prefix)
    name = containers.digest(prefix)
    if step:  # 0 if it has none
        store.check_name(prefix, step)
    if prefix != folder.best:  # a copy, which may be of a step that was trained again since
        store.check_is_ours(folder, prefix, step)
    ours = {e.checkpoint: e for e in evaluations if e.step == step and e.checkpoint}
    if ours and name not in ours:
        expected, evaluation = ours.popitem()
        raise ValueError(
            f"{prefix} (digest {name}) is not the checkpoint of step {step} that was evaluated in "
            f"this folder (digest {expected}: {format_figures(evaluation.metrics)}): another run "
            f"wrote it in its place. Restore that one, or move {EVALUATIONS_FILE} away to continue "
            "with this one."
        )


class CheckpointEvaluator:
    """Evaluates the checkpoints of a run once each; copies the best to `model.ckpt-best`.

    Larger values of the selection metric are better. Checkpoints that have been deleted since they
    were evaluated still count, but for the best one, which has to exist as `model.ckpt-best`.

    Args:
        folder: the folder of the run.
        task: the task, which computes the metrics and writes the text file of results.
        model: the model of the task that checkpoints are loaded into.
        tracker: of the run; None for a run that is not tracked.

    Raises:
        ValueError: the evaluations in the folder are damaged.
    """

    def __init__(
        self,
        folder: RunFolder,
        task: MeasuredTask,
        model: AlbertModel,
        tracker: Tracker | None = None,
    ) -> None:
        self.folder = folder
        self.task = task
        self.model = model
        self._tracker = tracker
        self._measured_on = task.measured_on()
        self._precision = current_precision()
        self._all = folder.evaluations(self._checkpoints())
        metric = task.selection_metric
        for evaluation in self.evaluations:
            if metric not in evaluation.metrics:
                raise ValueError(
                    f"{folder.file(EVALUATIONS_FILE)}: no {metric!r} of step {evaluation.step}. "
                    "Remove the line of that step, to evaluate its checkpoint again"
                )

    @property
    def evaluations(self) -> list[Evaluation]:
        """Evaluations on these data, ordered by step."""
        measured = [
            evaluation
            for evaluation in self._all
            if evaluation.measured_on == self._measured_on
            and evaluation.precision == self._precision
        ]
        return sorted(measured, key=lambda e: e.step)

    @property
    def best(self) -> Evaluation | None:
        """The best evaluation, or None."""
        return best_of(self.evaluations, self.task.selection_metric, self.task.official_order)

    def catch_up(self, step: int) -> None:
        """Evaluates the remaining checkpoints of an interrupted run, before training continues.

        Training would delete old ones. Evaluations from this step on whose checkpoints no longer
        exist do not count: their steps will be trained again.

        Args:
            step: the step that training is resumed from.

        Raises:
            ValueError: as in `evaluate_all`.
        """
        present = self._checked_checkpoints()
        self._all = [e for e in self._all if e.step < step or e.checkpoint in present]
        self._evaluate_each(present.values())

    def evaluate(self, prefix: str) -> Evaluation:
        """Evaluates a checkpoint unless this has been done before, and keeps the best one.

        Args:
            prefix: prefix of a checkpoint in the folder.
        """
        name = containers.digest(prefix)
        for evaluation in self.evaluations:
            if evaluation.checkpoint == name:
                return evaluation
        evaluation = self._measure(prefix, name)
        present = self._checkpoints()
        self._all = [e for e in self._all if e.key != evaluation.key or e.checkpoint in present]
        self._all.append(evaluation)
        self._keep_best(present)  # first, because the result files refer to it
        self.folder.add_evaluation(evaluation)
        if self._tracker is not None:
            tags = {EVAL + metric: value for metric, value in evaluation.metrics.items()}
            self._tracker.write(evaluation.step, tags)
        self.task.write_evaluations(self.folder, self.evaluations)
        return evaluation

    def evaluate_all(self, init_checkpoint: str | None = None) -> list[Evaluation]:
        """Evaluates all checkpoints of the folder that have not been evaluated yet.

        Args:
            init_checkpoint: evaluated if the folder has no checkpoint; it is not copied.

        Returns:
            All evaluations on these data, ordered by step.

        Raises:
            ValueError: there is no checkpoint, the best one is missing, or one is damaged, was
                written by another run, or does not match the model.
        """
        present = self._checked_checkpoints()
        if present:
            self._evaluate_each(present.values())
            self._warn_of_step_0()
            return self.evaluations
        if init_checkpoint:
            measured = [self._measure(model_folder.find_checkpoint(init_checkpoint), "")]
            self.task.write_evaluations(self.folder, measured)
            return measured
        raise ValueError(
            f"{self.folder.path} contains no checkpoint to evaluate. Train first, or set "
            "--init_checkpoint."
        )

    def _checkpoints(self) -> dict[str, str]:
        """Returns digest → prefix of all checkpoints; `model.ckpt-best` wins over its source."""
        numbered = self.folder.checkpoints()
        prefixes = [prefix for step, prefix in numbered.items() if step or self.task.official_order]
        if self.folder.has_best:
            prefixes.append(self.folder.best)
        return {containers.digest(prefix): prefix for prefix in prefixes}

    def _checked_checkpoints(self) -> dict[str, str]:
        """Returns `_checkpoints` after reading the best one and those not evaluated yet.

        Raises:
            ValueError: one of them is damaged, or another run wrote it in place of ours.
        """
        present = self._checkpoints()
        evaluated = {e.checkpoint for e in self.evaluations}
        for name, prefix in present.items():
            if name not in evaluated or prefix == self.folder.best:
                store.check_readable(prefix, present.values())
                check_not_replaced(self.folder, self._all, prefix)
        return present

    def _evaluate_each(self, prefixes: Iterable[str]) -> None:
        # Start with `model.ckpt-best` of an earlier run, so that no worse one can replace it.
        for prefix in sorted(prefixes, key=lambda prefix: prefix != self.folder.best):
            self.evaluate(prefix)
        if self.evaluations:
            self._keep_best(self._checkpoints())
            self.task.write_evaluations(self.folder, self.evaluations)

    def _measure(self, prefix: str, name: str) -> Evaluation:
        loading.load_weights(self.model, prefix)
        name_of_loaded = name or containers.digest(prefix)
        metrics = self.task.compute_metrics(self.model, name_of_loaded)
        figures = format_figures(metrics, self.task.percentages)
        logging.info("evaluated %s  %s", prefix, figures)
        step = loading.read_step(prefix)
        return Evaluation(step, metrics, name, self._measured_on, self._precision)

    def _keep_best(self, present: Mapping[str, str]) -> None:
        """Copies the best of `_checkpoints` to `model.ckpt-best` unless it is already there.

        A kill while it is copied leaves no `model.ckpt-best`, and the checkpoint that is better.

        Raises:
            ValueError: it does not exist.
        """
        best = self.best
        if best is None:
            return
        if best.checkpoint not in present:
            metric = self.task.selection_metric
            raise ValueError(
                f"{self.folder.path}: the best checkpoint, step {best.step} with {metric} "
                f"{best.metrics[metric]:g} (digest {best.checkpoint}), is missing; the last good "
                f"checkpoint is {['(none)', *present.values()][-1]}. Restore "
                f"{self.folder.best}, or move {EVALUATIONS_FILE} away to choose among those that "
                "are there."
            )
        if present[best.checkpoint] != self.folder.best:
            store.copy_checkpoint(present[best.checkpoint], self.folder.best)

    def _warn_of_step_0(self) -> None:
        best = self.best
        last = self.evaluations[-1]
        if best is not None and not best.step and last.step:
            metric = self.task.selection_metric
            logging.warning(
                "%s: the best checkpoint is that of step 0, before training: no later checkpoint "
                "has a larger %s than %g. Train longer or with another --learning_rate.",
                self.folder.path,
                metric,
                best.metrics[metric],
            )


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


class Evaluator:
    """Computes the metrics of a task over a dataset; the weights may change between calls.

    Args:
        model: called as `model(batch, training=False)`.
        task: computes loss and metrics from the model's outputs.
        dataset: batches, which may differ in size.
        max_steps: the maximum number of batches; None for all.
    """

    def __init__(
        self,
        model: AlbertModel,
        task: LossTask,
        dataset: tf.data.Dataset,
        max_steps: int | None = None,
    ) -> None:
        self.model = model
        self.task = task
        self.dataset = dataset.take(-1 if max_steps is None else max_steps)
        features = {
            name: tf.TensorSpec((None, *spec.shape[1:]), spec.dtype)
            for name, spec in dataset.element_spec.items()
        }
        self._step = tf.function(self._one_batch, input_signature=[features])

    def _one_batch(self, batch: Batch) -> Sums:
        loss, sums = self.task.loss(self.model(batch, training=False), batch)
        return sums | {"loss": (loss, tf.ones_like(loss))}

    def evaluate(self) -> dict[str, float]:
        """Returns metric → weighted mean over the dataset.

        `loss` is the unweighted mean of the batches' losses, as in Google's programs
        (`tf.metrics.mean` of an Estimator).
        """
        totals: dict[str, list[float]] = {}
        for batch in with_progress(self.dataset, "evaluating"):
            for name, (total, weight) in self._step(batch).items():
                entry = totals.setdefault(name, [0.0, 0.0])
                entry[0] += float(total)
                entry[1] += float(weight)
        means = {name: total / max(weight, 1e-9) for name, (total, weight) in totals.items()}
        return add_derived(self.task, means)

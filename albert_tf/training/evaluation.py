"""Evaluation of checkpoints: each is evaluated once, and the best one is kept.

Checkpoints are usually evaluated right after the training loop has saved them. The loop may then
delete old ones, because the best one is kept as `model.ckpt-best`. The results are stored in
`evaluations.jsonl`, so that running the same command again does not repeat evaluations.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import os
import typing
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from albert_tf import files
from albert_tf.checkpoints import containers, loading, run_record, store
from albert_tf.checkpoints.names import GLOBAL_STEP
from albert_tf.checkpoints.store import BEST
from albert_tf.training import precision, progress
from albert_tf.training.metrics_log import Curves, format_figures
from albert_tf.training.reporting import Reports
from albert_tf.training.step import Batch, Sums, Task

EVALUATIONS_FILE = "evaluations.jsonl"
LOSS = "eval_loss"  # the metric that decides between equally good checkpoints
_DIGEST_LENGTH = 16


def digest(*parts: Any) -> str:
    """Returns a short hash of everything that a result depends on."""
    return hashlib.sha256(repr(parts).encode("utf-8")).hexdigest()[:_DIGEST_LENGTH]


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The metrics of one checkpoint.

    Attributes:
        step: `global_step` of the checkpoint.
        metrics: name → value.
        checkpoint: digest of the checkpoint; "" for one outside the output directory.
        measured_on: digest of the data and settings that the metrics depend on.
        precision: compute dtype, such as "float32"; None if it was not recorded.
    """

    step: int
    metrics: dict[str, float]
    checkpoint: str
    measured_on: str
    precision: str | None = None


def best_of(
    evaluations: Iterable[Evaluation], metric: str, official_order: bool = False
) -> Evaluation | None:
    """Returns the evaluation with the largest value of a metric above -1.

    Of several with the same value, it is the one with the lowest `eval_loss`, if that is measured;
    of those with the same loss, the first one.

    Args:
        evaluations: evaluations ordered by step.
        metric: name of the metric.
        official_order: whether it is the first one whatever its loss, as in Google's programs.
    """
    best = None
    best_rank = (-1.0, math.inf)
    for evaluation in evaluations:
        loss = 0.0 if official_order else evaluation.metrics.get(LOSS, 0.0)
        rank = evaluation.metrics[metric], -loss
        if rank > best_rank:
            best = evaluation
            best_rank = rank
    return best


def read_evaluations(output_dir: str) -> list[Evaluation]:
    """Reads `evaluations.jsonl` in the order of evaluation; [] if the file does not exist.

    Raises:
        ValueError: the file is damaged.
    """
    fields = typing.get_type_hints(Evaluation)
    rows = files.read_own_json_lines(os.path.join(output_dir, EVALUATIONS_FILE), fields)
    return [Evaluation(**{name: row[name] for name in fields if name in row}) for row in rows]


def heading(evaluations: Sequence[Evaluation]) -> str:
    """Returns the first line of a results file: a comment that states the precision.

    It is "" for float32, so that the file equals Google's. It does not have the form `key = value`,
    because scripts expect numbers as values.
    """
    name = evaluations[-1].precision if evaluations else None
    if name in (None, "float32"):
        return ""
    return f"# Computed in {name}; --precision=float32 gives Google's numbers.\n"


def evaluation_of_best(output_dir: str) -> Evaluation | None:
    """Returns the latest evaluation of a directory's `model.ckpt-best`, or None."""
    prefix = os.path.join(output_dir, BEST)
    if not files.exists(prefix + ".index"):
        return None
    name = containers.digest(prefix)
    matching = [e for e in read_evaluations(output_dir) if e.checkpoint == name]
    return matching[-1] if matching else None


def check_not_replaced(evaluations: Iterable[Evaluation], prefix: str) -> None:
    """Checks that a checkpoint is the one of its step that a run has evaluated, if it has.

    Args:
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
    ours = {e.checkpoint: e for e in evaluations if e.step == step and e.checkpoint}
    if ours and name not in ours:
        expected, evaluation = ours.popitem()
        raise ValueError(
            f"{prefix} (digest {name}) is not the checkpoint of step {step} that was evaluated in "
            f"this folder (digest {expected}: {format_figures(evaluation.metrics)}): another run "
            f"wrote it in its place. Restore that one, or move {EVALUATIONS_FILE} away to go on "
            "with this one."
        )


@dataclasses.dataclass(frozen=True)
class EarlyStopping:
    """Stops training when the dev set metric no longer improves.

    Attributes:
        patience: number of consecutive checkpoints without improvement; 0 disables it.
    """

    patience: int = 0

    def is_due(self, evaluations: Iterable[Evaluation], metric: str) -> bool:
        """Returns whether patience ran out at any evaluation, ordered by step; ignores step 0."""
        best = -math.inf
        waited = 0
        for evaluation in evaluations:
            if not self.patience or not evaluation.step:
                continue
            value = evaluation.metrics[metric]
            is_better = value > best
            best, waited = (value, 0) if is_better else (best, waited + 1)
            if waited >= self.patience:
                return True
        return False


class CheckpointEvaluator:
    """Evaluates the checkpoints of a directory once each; copies the best to `model.ckpt-best`.

    Larger values of `selection_metric` are better. Checkpoints that have been deleted since they
    were evaluated still count, except for the best one: the results must be those of
    `model.ckpt-best`.

    Args:
        output_dir: the directory.
        model: the model that checkpoints are loaded into.
        measure: called without arguments after a checkpoint is loaded; returns metric → value.
        selection_metric: name of the metric that selects the best checkpoint.
        measured_on: `digest` of the data and settings that the metrics depend on. Evaluations with
            another digest, or another precision than the current one, are kept but ignored.
        write_results: called after each evaluation with `output_dir` and the evaluations ordered by
            step; writes the text file of results.
        early_stopping: when to stop training before the last step.
        official_order: whether to evaluate the initial weights, `model.ckpt-0`, as well, and to
            choose among equally good checkpoints as Google's programs do; see `best_of`.
        reports: of the run, as in `Curves`.
        percentages: endings of the names of metrics in percent, for the log.

    Attributes:
        loaded: digest of the checkpoint that `measure` is called for.
    """

    def __init__(
        self,
        output_dir: str,
        model: Any,
        measure: Callable[[], dict[str, float]],
        selection_metric: str,
        measured_on: str,
        write_results: Callable[[str, list[Evaluation]], Any],
        early_stopping: EarlyStopping = EarlyStopping(),
        official_order: bool = False,
        reports: Reports | None = None,
        percentages: tuple[str, ...] = (),
    ) -> None:
        self.output_dir = output_dir
        self.model = model
        self.measure = measure
        self.selection_metric = selection_metric
        self.measured_on = measured_on
        self._write_results = write_results
        self._early_stopping = early_stopping
        self._official_order = official_order
        self._precision = precision.current()
        self._reports = reports
        self._percentages = percentages
        self._best_prefix = os.path.join(output_dir, BEST)
        self.loaded = ""
        self._lost: set[str] = set()  # digests of best checkpoints that no longer exist
        self._all = read_evaluations(output_dir)
        for evaluation in self.evaluations:
            if selection_metric not in evaluation.metrics:
                raise ValueError(
                    f"{output_dir}/{EVALUATIONS_FILE}: the metrics of step {evaluation.step} lack "
                    f"{selection_metric}. The file is damaged: move it away or restore it from a "
                    "backup"
                )
        ignored = [e for e in self._all if e not in self.evaluations]
        if ignored:
            others = sum(e.measured_on != measured_on for e in ignored)
            logging.warning(
                "%s/%s: %d evaluations of other data or with other settings, and %d in another "
                "precision than %s, are kept there, but left out of the results. The checkpoints "
                "that still exist are evaluated again.",
                output_dir,
                EVALUATIONS_FILE,
                others,
                len(ignored) - others,
                self._precision,
            )
        run_record.read_results(output_dir)  # report a damaged file before evaluating

    @property
    def evaluations(self) -> list[Evaluation]:
        """Evaluations on these data ordered by step, without lost best checkpoints."""
        measured = [
            evaluation
            for evaluation in self._all
            if evaluation.measured_on == self.measured_on
            and evaluation.precision in (None, self._precision)
            and evaluation.checkpoint not in self._lost
        ]
        return sorted(measured, key=lambda e: e.step)

    @property
    def best(self) -> Evaluation | None:
        """The best evaluation, or None."""
        return best_of(self.evaluations, self.selection_metric, self._official_order)

    @property
    def stops_training(self) -> bool:
        """Whether early stopping applies."""
        return self._early_stopping.is_due(self.evaluations, self.selection_metric)

    def begin(self, step: int) -> None:
        """Prepares for training from a step; must be called before training.

        Evaluates the remaining checkpoints of an interrupted run, and keeps the best one, because
        training deletes old checkpoints. Discards evaluations from this step on whose checkpoints
        no longer exist: their steps will be trained again.
        """
        present = self._usable_checkpoints()
        self._all = [e for e in self._all if e.step < step or e.checkpoint in present]
        self._evaluate_each(present.values())

    def after_save(self, prefix: str, curves: Curves) -> bool:
        """Evaluates a checkpoint that was just saved; returns whether to stop training."""
        if loading.read_step(prefix) or self._official_order:
            self.evaluate(prefix, curves)
        return self.stops_training

    def evaluate(self, prefix: str, curves: Curves) -> Evaluation:
        """Evaluates a checkpoint unless this has been done before, and keeps the best one.

        Args:
            prefix: prefix of a checkpoint in the directory.
            curves: the curves of the run, to which the evaluation is added.
        """
        name = containers.digest(prefix)
        for evaluation in self.evaluations:
            if evaluation.checkpoint == name:
                return evaluation
        evaluation = self._measure(prefix, name)
        self._all.append(evaluation)
        self._record(curves)
        return evaluation

    def evaluate_all(self, init_checkpoint: str | None = None) -> list[Evaluation]:
        """Evaluates all checkpoints of the directory that have not been evaluated yet.

        Args:
            init_checkpoint: evaluated if the directory has no checkpoint; it is not copied.

        Returns:
            All evaluations on these data, ordered by step.

        Raises:
            ValueError: there is no checkpoint, or one does not match the model.
        """
        present = self._usable_checkpoints()
        if present:
            self._evaluate_each(present.values())
            self._warn_of_step_0()
            return self.evaluations
        if init_checkpoint:
            measured = [self._measure(containers.find_checkpoint(init_checkpoint), "")]
            self._write_results(self.output_dir, measured)
            return measured
        raise ValueError(
            f"{self.output_dir} contains no checkpoint to evaluate. Train first, or set "
            "--init_checkpoint."
        )

    def _checkpoints(self) -> dict[str, str]:
        """Returns digest → prefix of all checkpoints; `model.ckpt-best` wins over its source."""
        numbered = store.list_checkpoints(self.output_dir)
        prefixes = [prefix for step, prefix in numbered.items() if step or self._official_order]
        if files.exists(self._best_prefix + ".index"):
            prefixes.append(self._best_prefix)
        return {containers.digest(prefix): prefix for prefix in prefixes}

    def _usable_checkpoints(self) -> dict[str, str]:
        """Returns `_checkpoints` after setting aside damaged ones.

        Only the best checkpoint and those not evaluated yet are checked.

        Raises:
            ValueError: another run wrote one of them in place of ours, or all are damaged.
        """
        present = self._checkpoints()
        evaluated = {e.checkpoint for e in self.evaluations}
        to_read = [
            p for name, p in present.items() if name not in evaluated or p == self._best_prefix
        ]
        usable = store.set_aside_damaged(to_read, has_others=len(to_read) < len(present))
        for prefix in usable:
            check_not_replaced(self._all, prefix)
        return {name: p for name, p in present.items() if p not in to_read or p in usable}

    def _evaluate_each(self, prefixes: Iterable[str]) -> None:
        # Start with `model.ckpt-best` of an earlier run, so that no worse one can replace it.
        with contextlib.closing(Curves(self.output_dir, reports=self._reports)) as curves:
            for prefix in sorted(prefixes, key=lambda prefix: prefix != self._best_prefix):
                self.evaluate(prefix, curves)
            if self.evaluations:
                self._record(curves)

    def _measure(self, prefix: str, name: str) -> Evaluation:
        loading.load_weights(self.model, prefix)
        self.loaded = name or containers.digest(prefix)
        metrics = self.measure()
        logging.info("evaluated %s  %s", prefix, format_figures(metrics, self._percentages))
        step = loading.read_step(prefix)
        return Evaluation(step, metrics, name, self.measured_on, self._precision)

    def _record(self, curves: Curves) -> None:
        """Copies the best checkpoint, and writes the evaluations and result files."""
        self._keep_best()  # first, because the result files refer to it
        with files.write_atomically(os.path.join(self.output_dir, EVALUATIONS_FILE)) as stream:
            for earlier in self._all:
                stream.write(json.dumps(dataclasses.asdict(earlier)) + "\n")
        curves.set_evaluations({e.step: e.metrics for e in self.evaluations})
        self._write_results(self.output_dir, self.evaluations)
        if self.best is not None:
            figures = self.best.metrics | {GLOBAL_STEP: self.best.step}
            run_record.record_results(self.output_dir, {"eval": figures})

    def _keep_best(self) -> None:
        """Copies the best checkpoint to `model.ckpt-best` unless it is already there."""
        present = self._checkpoints()
        lost = []
        while (best := self.best) is not None:
            source = present.get(best.checkpoint)
            if source is not None and (
                source == self._best_prefix or not store.find_damage(source)
            ):
                break
            lost.append(best)
            self._lost.add(best.checkpoint)
        if lost:
            logging.warning(
                "%s: the best checkpoint, step %d with %s %g, is missing or damaged. It is ignored "
                "from now on; the best remaining checkpoint is %s.",
                self.output_dir,
                lost[0].step,
                self.selection_metric,
                lost[0].metrics[self.selection_metric],
                "none" if best is None else f"that of step {best.step}",
            )
            if not files.exists(self._best_prefix + ".index"):
                store.set_aside(self._best_prefix)  # there may be data files without an index
        if best is not None and source is not None and source != self._best_prefix:
            store.copy_checkpoint(source, self._best_prefix)

    def _warn_of_step_0(self) -> None:
        best = self.best
        last = self.evaluations[-1]
        if best is not None and not best.step and last.step:
            logging.warning(
                "%s: the best checkpoint is that of step 0, before training: no later checkpoint "
                "has a larger %s than %g. Train longer or with another --learning_rate.",
                self.output_dir,
                self.selection_metric,
                best.metrics[self.selection_metric],
            )


class Evaluator:
    """Computes the metrics of a task over a dataset; the weights may change between calls.

    Its method `evaluate` can be passed to `CheckpointEvaluator` as `measure`.

    Args:
        model: called as `model(batch, training=False)`.
        task: computes loss and metrics from the model's outputs.
        dataset: batches, which may differ in size.
        max_steps: the maximum number of batches; None for all.
    """

    def __init__(
        self, model: Any, task: Task, dataset: tf.data.Dataset, max_steps: int | None = None
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
        for batch in progress.with_progress(self.dataset, "evaluating"):
            for name, (total, weight) in self._step(batch).items():
                entry = totals.setdefault(name, [0.0, 0.0])
                entry[0] += float(total)
                entry[1] += float(weight)
        return {name: total / max(weight, 1e-9) for name, (total, weight) in totals.items()}

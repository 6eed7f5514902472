"""The training loop and the evaluation loop, for any task.

A run is resumed exactly: the checkpoint holds weights, moments and step, and everything else that
a step depends on (its records, its dropout) is a function of the seed and the step.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import tensorflow as tf
from absl import logging
from tqdm import tqdm

from albert_tf import checkpoints, files
from albert_tf.checkpoints import GLOBAL_STEP
from albert_tf.optimization import AdamW, clip_gradients

METRICS_FILE = "metrics.jsonl"
DROPOUT_STREAM = 1  # second half of the dropout seed: other uses of a seed take other numbers

Batch = dict[str, tf.Tensor]
Sums = dict[str, tuple[tf.Tensor, tf.Tensor]]


class Task(Protocol):
    """What the loops ask of a task."""

    selection_metric: str

    def loss(self, outputs: dict[str, tf.Tensor], batch: Batch) -> tuple[tf.Tensor, Sums]:
        """The loss of a batch, and metric → (weighted sum, weight)."""


class NonFiniteLossError(ArithmeticError):
    """The loss or its gradient became NaN or infinite."""


@dataclasses.dataclass(frozen=True)
class TrainingOptions:
    """How to train.

    Attributes:
        output_dir: where checkpoints, logs and summaries go.
        num_train_steps: the step at which training ends.
        save_checkpoints_steps: a checkpoint is written at its multiples (and at 0 and the end).
        keep_checkpoint_max: how many of them are kept; 0 keeps all.
        log_steps: progress is logged and summarized every so many steps.
        train_batch_size: examples a step, for the figures in the log.
        seed: of dropout.
    """

    output_dir: str
    num_train_steps: int
    save_checkpoints_steps: int
    keep_checkpoint_max: int = 5
    log_steps: int = 100
    train_batch_size: int = 1
    seed: int = 0


OPTION_FLAGS = [field.name for field in dataclasses.fields(TrainingOptions)]


class Trainer:
    """A model with its optimizer, made once and then trained, saved and restored.

    Args:
        model: called with (batch, training=, dropout_seed=).
        task: turns its outputs into a loss.
        optimizer: of `albert_tf.optimization`.
        options: how to train.
        batch_signature: name → shape and type of what is in a batch. Where batches differ in
            length, None in place of these sizes lets one trace of the step serve all.
    """

    def __init__(
        self,
        model: Any,
        task: Task,
        optimizer: AdamW,
        options: TrainingOptions,
        batch_signature: dict[str, tf.TensorSpec] | None = None,
    ) -> None:
        self.model, self.task, self.optimizer, self.options = model, task, optimizer, options
        self.variables = list(model.trainable_variables)
        self.slots = optimizer.slot_variables(self.variables)
        self.step = 0
        self._sums: dict[str, tf.Variable] = {}
        self._bad_step = tf.Variable(-1, dtype=tf.int64, trainable=False)
        signature = None if batch_signature is None else [batch_signature]
        self._train_step = tf.function(
            self._one_step, input_signature=signature, reduce_retracing=signature is None
        )

    def state(self) -> dict[str, Any]:
        """Everything a checkpoint holds: weights, moments and `global_step`, by name."""
        weights = {
            checkpoints.variable_name(variable): variable for variable in self.model.variables
        }
        return weights | self.slots | {GLOBAL_STEP: tf.constant(self.step, tf.int64)}

    def restore_latest(self) -> bool:
        """Goes back to the newest checkpoint of the output directory, if there is one.

        Raises:
            ValueError: it belongs to another model or optimizer; the text lists what differs.
        """
        found = checkpoints.list_checkpoints(self.options.output_dir)
        if not found:
            return False
        step, prefix = list(found.items())[-1]
        reader = checkpoints.open_checkpoint(prefix)
        shapes = reader.get_variable_to_shape_map()
        state = self.state()
        del state[GLOBAL_STEP]
        wrong = [
            f"  {name}: {variable.shape.as_list()} here, {shapes.get(name, 'missing')} there"
            for name, variable in state.items()
            if shapes.get(name) != variable.shape.as_list()
        ]
        if wrong or GLOBAL_STEP not in shapes:
            raise ValueError(
                f"{prefix} is no checkpoint of this model and optimizer, so training cannot go on "
                "from it:\n" + "\n".join(wrong[:20]) + "\nUse another --output_dir, or give the "
                "checkpoint as --init_checkpoint to start anew from its weights."
            )
        values = {name: checkpoints.read_tensor(reader, name, prefix) for name in state}
        for name, variable in state.items():
            variable.assign(values[name])
        self._set_step(step)
        return True

    def _set_step(self, step: int) -> None:
        self.step = step
        self.optimizer.iterations.assign(step)

    def save(self) -> str:
        """Writes `model.ckpt-<step>` and the text file `checkpoint`; returns the prefix."""
        directory, keep = self.options.output_dir, self.options.keep_checkpoint_max
        prefix = os.path.join(directory, f"model.ckpt-{self.step}")
        checkpoints.save_checkpoint(prefix, self.state())
        checkpoints.remove_old_checkpoints(directory, keep)
        names = [os.path.basename(p) for p in checkpoints.list_checkpoints(directory).values()]
        with files.write_atomically(os.path.join(directory, "checkpoint")) as stream:
            stream.write(f'model_checkpoint_path: "{names[-1]}"\n')
            stream.writelines(f'all_model_checkpoint_paths: "{name}"\n' for name in names)
        return prefix

    def _one_step(self, batch: Batch) -> None:
        step = self.optimizer.iterations
        seed = tf.random.fold_in((self.options.seed, DROPOUT_STREAM), tf.cast(step, tf.int32))
        with tf.GradientTape() as tape:
            outputs = self.model(batch, training=True, dropout_seed=seed)
            loss, sums = self.task.loss(outputs, batch)
        gradients, norm = clip_gradients(tape.gradient(loss, self.variables))
        bad = ~tf.math.is_finite(loss + norm) & (self._bad_step < 0)
        self._bad_step.assign(tf.where(bad, step, self._bad_step))
        pairs = zip(gradients, self.variables, strict=True)
        self.optimizer.apply_gradients([pair for pair in pairs if pair[0] is not None])
        for name, (total, weight) in (sums | {"loss": (loss, tf.ones_like(loss))}).items():
            self._accumulate(name, total, weight)

    def _accumulate(self, name: str, total: tf.Tensor, weight: tf.Tensor) -> None:
        if name not in self._sums:
            with tf.init_scope():
                self._sums[name] = tf.Variable((0.0, 0.0), trainable=False, dtype=tf.float32)
        self._sums[name].assign_add(tf.stack((total, weight)))

    def _take_means(self) -> dict[str, float]:
        """Means of the metrics since the last call."""
        sums = {name: variable.numpy() for name, variable in self._sums.items()}
        for variable in self._sums.values():
            variable.assign((0.0, 0.0))
        return {name: float(total / max(weight, 1e-9)) for name, (total, weight) in sums.items()}

    def train(
        self,
        dataset: Callable[[int], Iterable[Batch]],
        after_save: Callable[[str], Any] | None = None,
    ) -> None:
        """Trains from the present step to `num_train_steps`.

        Args:
            dataset: step → the batches from that step on.
            after_save: called with the prefix of every checkpoint that is written.

        Raises:
            NonFiniteLossError: the loss became NaN or infinite; the last checkpoint is kept.
        """
        options = self.options
        if self.step >= options.num_train_steps:
            logging.info("Step %d is reached: nothing to train", self.step)
            return
        log = MetricsLog(options, self.step)
        after_save = after_save or (lambda prefix: None)
        if self.step == 0:
            after_save(self.save())
            log.restart_clock()
        batches = iter(dataset(self.step))
        # On a terminal a bar; elsewhere the log says the same.
        total = options.num_train_steps
        with tqdm(total=total, initial=self.step, unit="step", disable=None) as bar:
            while self.step < total:
                self._train_step(next(batches))
                self.step += 1
                bar.update()
                is_saved = self.step == total or self.step % options.save_checkpoints_steps == 0
                if is_saved or self.step % options.log_steps == 0:
                    self._stop_if_not_finite()
                    rate = float(self.optimizer.learning_rate)
                    with bar.external_write_mode():
                        log.write(self.step, self._take_means(), rate)
                if is_saved:
                    after_save(self.save())
                    log.restart_clock()
        log.close()

    def _stop_if_not_finite(self) -> None:
        step = int(self._bad_step)
        if step < 0:
            return
        kept = list(checkpoints.list_checkpoints(self.options.output_dir).values())
        raise NonFiniteLossError(
            f"the loss or its gradient is not finite at step {step}. Training has stopped; the "
            f"last good checkpoint is {kept[-1] if kept else '(none)'}. Lower --learning_rate, "
            "lengthen --num_warmup_steps, or look at the records of that step."
        )


class MetricsLog:
    """Progress as lines of `metrics.jsonl`, TensorBoard summaries and log messages.

    Args:
        options: how the run is trained.
        step: where it begins; later lines, of a run that was interrupted, are dropped.
    """

    def __init__(self, options: TrainingOptions, step: int) -> None:
        self.options = options
        self.path = os.path.join(options.output_dir, METRICS_FILE)
        self.lines: list[str] = []
        if tf.io.gfile.exists(self.path):
            lines = files.read_text(self.path).splitlines()
            self.lines = [line for line in lines if json.loads(line)["step"] <= step]
        self.summaries = tf.summary.create_file_writer(options.output_dir)
        self.last = (step, time.monotonic())

    def write(self, step: int, means: dict[str, float], learning_rate: float) -> None:
        """Writes one line of progress, and what time remains at the present speed."""
        seconds = time.monotonic() - self.last[1]
        steps_per_second = (step - self.last[0]) / max(seconds, 1e-9)
        self.last = (step, time.monotonic())
        values = means | {
            "learning_rate": learning_rate,
            "examples_per_second": steps_per_second * self.options.train_batch_size,
        }
        self.lines.append(json.dumps({"step": step} | values))
        with files.write_atomically(self.path) as stream:
            stream.write("\n".join(self.lines) + "\n")
        with self.summaries.as_default(step):
            for name, value in values.items():
                tf.summary.scalar(name, value)
        self.summaries.flush()
        text = ", ".join(f"{name} {value:.4g}" for name, value in values.items())
        last = self.options.num_train_steps
        remaining = datetime.timedelta(seconds=round((last - step) / steps_per_second))
        logging.info("step %d of %d: %s, remaining %s", step, last, text, remaining)

    def restart_clock(self) -> None:
        """Leaves the time since the last line out of the next one's speed."""
        self.last = (self.last[0], time.monotonic())

    def close(self) -> None:
        """Closes the summary file."""
        self.summaries.close()


class Evaluator:
    """Measures a model on a dataset, as often as its weights change.

    Args:
        model: as in `Trainer`.
        task: as in `Trainer`.
        dataset: batches; their sizes may differ.
        max_steps: batches at most; None for all.
    """

    def __init__(
        self, model: Any, task: Task, dataset: tf.data.Dataset, max_steps: int | None = None
    ) -> None:
        self.model, self.task = model, task
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
        """Metric → its mean over the whole set.

        `loss` is the mean of the batches' losses, as the Estimator's.
        """
        totals: dict[str, list[float]] = {}
        for batch in tqdm(self.dataset, desc="evaluating", unit="batch", disable=None):
            for name, (total, weight) in self._step(batch).items():
                entry = totals.setdefault(name, [0.0, 0.0])
                entry[0] += float(total)
                entry[1] += float(weight)
        return {name: total / max(weight, 1e-9) for name, (total, weight) in totals.items()}


def evaluate_checkpoints(
    evaluator: Evaluator, output_dir: str, init_checkpoint: str | None = None
) -> list[dict[str, Any]]:
    """Evaluates every checkpoint of a folder and copies the best to `model.ckpt-best`.

    An earlier `model.ckpt-best` takes part. Better means a larger `selection_metric` of the task;
    the earlier of two equal ones wins, as in Google's programs. Running it again changes nothing.

    Args:
        evaluator: the model and what to measure it on.
        output_dir: the folder.
        init_checkpoint: what to evaluate where the folder has no checkpoint.

    Returns:
        for each checkpoint the metrics and `global_step`, by step.

    Raises:
        ValueError: there is no checkpoint, or one is of another model.
    """
    best_prefix = os.path.join(output_dir, checkpoints.BEST)
    prefixes = checkpoints.list_checkpoints(output_dir)
    if tf.io.gfile.exists(best_prefix + ".index"):
        # Where the numbered one is still there, it is the one that counts.
        prefixes.setdefault(checkpoints.read_step(best_prefix), best_prefix)
    copies_best = bool(prefixes)
    if not prefixes and init_checkpoint:
        prefix = checkpoints.find_checkpoint(init_checkpoint)
        prefixes = {checkpoints.read_step(prefix): prefix}
    if not prefixes:
        raise ValueError(
            f"{output_dir} holds no checkpoint to evaluate. Train first, or give --init_checkpoint."
        )
    results = []
    best = -1.0
    for step, prefix in sorted(prefixes.items()):
        checkpoints.load_weights(evaluator.model, prefix)
        results.append(evaluator.evaluate() | {GLOBAL_STEP: step})
        logging.info("%s: %s", prefix, results[-1])
        value = results[-1][evaluator.task.selection_metric]
        if copies_best and value > best:
            best = value
            if prefix != best_prefix:
                checkpoints.copy_checkpoint(prefix, best_prefix)
    return results

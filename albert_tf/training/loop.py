"""The training loop, for any task.

A run is resumed exactly: the checkpoint holds weights, moments and step, and everything else that
a step depends on (its records, its dropout) is a function of the seed and the step.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tensorflow as tf
from absl import logging
from tqdm import tqdm

from albert_tf import files
from albert_tf.checkpoints import containers, store
from albert_tf.checkpoints.names import GLOBAL_STEP, variable_name
from albert_tf.optimization import AdamW
from albert_tf.training import devices, run_directory
from albert_tf.training.interruption import InterruptedRunError, StopRequest
from albert_tf.training.metrics_log import MetricsLog
from albert_tf.training.precision import LossScale
from albert_tf.training.step import Batch, StepOptions, Task, TrainStep

NAN_POLICIES = ("stop", "skip")
# With the policy "skip": so many steps without a good one among them end the run nevertheless.
MOST_SKIPPED_STEPS = 20
# What a collective operation of several workers fails with when one of them is gone.
_LOST_WORKER = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.FailedPreconditionError,
)


class NonFiniteLossError(ArithmeticError):
    """The loss or its gradient became NaN or infinite."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingOptions(StepOptions):
    """How to train.

    Attributes:
        output_dir: where checkpoints, logs and summaries go.
        num_train_steps: the step at which training ends.
        save_checkpoints_steps: a checkpoint is written at its multiples (and at 0 and the end).
        save_checkpoints_secs: and as soon as so many seconds have passed since the last; 0: never.
        keep_checkpoint_max: how many of them are kept; 0 keeps all.
        log_steps: progress is logged and summarized every so many steps.
        train_batch_size: examples a step, for the figures in the log.
        nan_policy: what a loss or gradient that is not finite does: "stop" ends the run, "skip"
            leaves the step out.
    """

    output_dir: str
    num_train_steps: int
    save_checkpoints_steps: int
    save_checkpoints_secs: float = 0.0
    keep_checkpoint_max: int = 5
    log_steps: int = 100
    train_batch_size: int = 1
    nan_policy: str = "stop"


OPTION_FLAGS = [field.name for field in dataclasses.fields(TrainingOptions)]


class Trainer:
    """A model with its optimizer, made once and then trained, saved and restored.

    With several workers all of them train, and the first one writes the files.

    Args:
        model: called with (batch, training=, dropout_seed=).
        task: turns its outputs into a loss.
        optimizer: of `albert_tf.optimization`; made, as the model, in the strategy's scope.
        options: how to train.
        batch_signature: name → shape and type of what is in a batch. Where batches differ in
            length, None in place of these sizes lets one trace of the step serve all.
        strategy: where to train; the present one if None.
        loss_scale: for float16.

    Attributes:
        step: finished steps.
    """

    def __init__(
        self,
        model: Any,
        task: Task,
        optimizer: AdamW,
        options: TrainingOptions,
        batch_signature: dict[str, tf.TensorSpec] | None = None,
        strategy: tf.distribute.Strategy | None = None,
        loss_scale: LossScale | None = None,
    ) -> None:
        self.model, self.task, self.optimizer, self.options = model, task, optimizer, options
        self.strategy, self.loss_scale = strategy or tf.distribute.get_strategy(), loss_scale
        with self.strategy.scope():
            self.slots = optimizer.slot_variables(list(model.trainable_variables))
        self.step = 0
        self.take_step = TrainStep(
            model, task, optimizer, options, self.strategy, batch_signature, loss_scale
        )
        self._is_chief = devices.is_chief(self.strategy)
        self._is_one_of_many = devices.is_multi_worker(self.strategy)
        self._results: list[dict[str, tf.Tensor]] = []  # of the steps since the last line

    def state(self) -> dict[str, Any]:
        """Everything a checkpoint holds: weights, moments and `global_step`, by name."""
        state = {variable_name(variable): variable for variable in self.model.variables}
        state |= self.slots
        if self.loss_scale is not None:
            state |= {
                "loss_scale/value": self.loss_scale.value,
                "loss_scale/good_steps": self.loss_scale.good_steps,
            }
        return state | {GLOBAL_STEP: tf.constant(self.step, tf.int64)}

    def restore_latest(self) -> bool:
        """Goes back to the newest checkpoint of the output directory, if there is one.

        Raises:
            ValueError: it belongs to another model or optimizer; the text lists what differs.
        """
        found = store.newest_usable(self.options.output_dir)
        if found is None:
            return False
        step, prefix = found
        reader = containers.open_checkpoint(prefix)
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
        values = {name: containers.read_tensor(reader, name, prefix) for name in state}
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
        store.save_checkpoint(prefix, self.state())
        store.remove_old_checkpoints(directory, keep)
        names = [os.path.basename(p) for p in store.list_checkpoints(directory).values()]
        with files.write_atomically(os.path.join(directory, "checkpoint")) as stream:
            stream.write(f'model_checkpoint_path: "{names[-1]}"\n')
            stream.writelines(f'all_model_checkpoint_paths: "{name}"\n' for name in names)
        return prefix

    def train(
        self,
        dataset: Callable[[int], Iterable[Batch]],
        after_save: Callable[[str], Any] | None = None,
    ) -> None:
        """Trains from the present step to `num_train_steps`.

        Args:
            dataset: step → the batches from that step on; of each, the rows of this process.
            after_save: called with the prefix of every checkpoint that is written; if it returns
                True, training ends there.

        Raises:
            NonFiniteLossError: the loss became NaN or infinite; the last checkpoint is kept.
            InterruptedRunError: a signal asked to stop, and a checkpoint has been written; or
                another worker is gone.
        """
        if self.step >= self.options.num_train_steps:
            logging.info("Step %d is reached: nothing to train", self.step)
            return
        try:
            with StopRequest() as request:
                self._train(dataset, after_save or (lambda prefix: None), request)
        except _LOST_WORKER as error:
            if not self._is_one_of_many:
                raise
            raise InterruptedRunError(
                f"another worker is gone ({error.message.splitlines()[0]}). Start all workers "
                "again: training goes on from the last checkpoint."
            ) from None

    def _train(
        self,
        dataset: Callable[[int], Iterable[Batch]],
        after_save: Callable[[str], Any],
        request: StopRequest,
    ) -> None:
        options, total = self.options, self.options.num_train_steps
        log = None
        if self._is_chief:
            log = MetricsLog(options.output_dir, self.step, total, options.train_batch_size)
        is_done = self.step == 0 and self._save(log, after_save)
        saved_at = time.monotonic()
        batches, may_update = iter(dataset(self.step)), tf.constant(True)
        means: dict[str, float] = {}
        # On a terminal a bar; elsewhere the log says the same.
        disable = None if self._is_chief else True
        with tqdm(total=total, initial=self.step, unit="step", disable=disable) as bar:
            while self.step < total and not is_done:
                result = self.take_step(next(batches), may_update, request.is_made)
                self._results.append(result)
                if options.nan_policy == "stop":
                    may_update = result["is_good"]  # what is broken is not trained on
                self.step += 1
                bar.update()
                # Several workers agree on when to stop; one has nobody to ask.
                stops = bool(result["stops"]) if self._is_one_of_many else request.is_made
                seconds = time.monotonic() - saved_at
                is_saved = stops or self.step == total
                is_saved |= self.step % options.save_checkpoints_steps == 0
                is_saved |= 0 < options.save_checkpoints_secs <= seconds
                if is_saved or self.step % options.log_steps == 0:
                    means = self._take_means(dataset)
                    with bar.external_write_mode():
                        self._log(log, means)
                if is_saved:
                    saved_at = time.monotonic()
                    is_done = self._save(log, after_save if not stops else lambda prefix: False)
                if stops and self.step < total:
                    raise InterruptedRunError(
                        f"stopped at step {self.step} of {total}, as asked, and saved it in "
                        f"{options.output_dir}. The same command goes on from there."
                    )
        if log is not None:
            log.close()
            train = {"step": self.step} | means
            run_directory.record_results(options.output_dir, {"train": train})

    def _save(self, log: MetricsLog | None, after_save: Callable[[str], Any]) -> bool:
        """Saves, if files are this process' business; whether training ends here."""
        if log is None:
            return False
        is_done = after_save(self.save()) is True
        log.restart_clock()
        if is_done and self._is_one_of_many:
            logging.warning("With several workers training goes on to its last step")
            return False
        return is_done

    def _log(self, log: MetricsLog | None, means: dict[str, float]) -> None:
        if log is None:
            return
        log.write(self.step, means, float(self.optimizer.learning_rate.numpy()))

    def _take_means(self, dataset: Callable[[int], Iterable[Batch]]) -> dict[str, float]:
        """Means of the metrics over the good steps since the last call.

        Raises:
            NonFiniteLossError: there were bad ones, and the policy does not let them pass.
        """
        results, self._results = self._results, []
        first_step = self.step - len(results)
        bad = [number for number, result in enumerate(results) if not result["is_good"]]
        if bad and self.options.nan_policy == "stop":
            self._stop(first_step + bad[0], dataset)
        good = [result for result in results if result["is_finite"]]
        skipped = len(results) - len(good)
        if skipped and not good and skipped >= MOST_SKIPPED_STEPS:
            self._stop(first_step, dataset)
        if not good:
            return {"skipped_steps": float(skipped)}
        means = {}
        for name in good[0].keys() - {"is_finite", "is_good", "stops"}:
            sums, weights = zip(*(result[name].numpy().tolist() for result in good), strict=True)
            means[name] = sum(sums) / max(sum(weights), 1e-9)
        if skipped:
            logging.warning("%d of %d steps were not finite and left out", skipped, len(results))
            means["skipped_steps"] = float(skipped)
        return dict(sorted(means.items()))

    def _stop(self, step: int, dataset: Callable[[int], Iterable[Batch]]) -> None:
        batches: Iterator[Batch] = iter(dataset(step))
        self.optimizer.iterations.assign(step)  # its dropout
        found = self.take_step.first_bad_tensor(next(batches))
        kept = list(store.list_checkpoints(self.options.output_dir).values())
        raise NonFiniteLossError(
            f"the loss or its gradient is not finite at step {step}; the first bad tensor is "
            f"{found}. Training has stopped; the last good checkpoint is "
            f"{kept[-1] if kept else '(none)'}. Lower --learning_rate, lengthen the warm-up, look "
            "at the records of that step, or leave such steps out with --nan_policy=skip."
        )

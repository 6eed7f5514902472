"""The training loop for any task.

Resuming a run is exact: a checkpoint contains weights, optimizer moments and step, and everything
else that a step depends on (its records and dropout masks) is a function of the seed and the step.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tensorflow as tf
from absl import logging
from tqdm import tqdm

from albert_tf import files, optimization
from albert_tf.checkpoints import containers, loading, run_record, store
from albert_tf.checkpoints.names import GLOBAL_STEP, by_name
from albert_tf.checkpoints.run_record import TrainedWith
from albert_tf.training import devices
from albert_tf.training.interruption import InterruptedRunError, StopRequest
from albert_tf.training.metrics_log import Curves, MetricsLog, read_means
from albert_tf.training.reporting import Reports
from albert_tf.training.settings import RunSettings
from albert_tf.training.step import Batch, TrainStep

# Even with the policy "skip", the run stops if this many steps contain no good one.
MOST_SKIPPED_STEPS = 20
LOG_STEPS = 100  # between two reports by default, unless the run has less than 10 times as many

Batches = Callable[[int], Iterable[Batch]]  # step → the batches from that step on
AfterSave = Callable[[str, Curves], Any]  # (checkpoint, curves) → True to stop training
TOKENS = "tokens"  # key of the number of tokens in the result of a step


class NonFiniteLossError(ArithmeticError):
    """The loss, a gradient or an updated weight is NaN or infinite."""


class Trainer:
    """Runs training steps, and saves and restores checkpoints.

    With several workers, all of them train, and the first one, the chief, writes the files.

    Args:
        take_step: the training step, with its model, task and optimizer.
        settings: settings of the run, such as when to save and log.
        num_train_steps: the step at which training ends.
        identity: the identity of the run, which is stored with its checkpoints.
        reports: of the run, as in `Curves`.

    Attributes:
        model, optimizer: those of `take_step`.
        step: number of completed steps.
    """

    def __init__(
        self,
        take_step: TrainStep,
        settings: RunSettings,
        num_train_steps: int,
        identity: TrainedWith | None = None,
        reports: Reports | None = None,
    ) -> None:
        self.take_step = take_step
        self.settings = settings
        self.num_train_steps = num_train_steps
        self._identity = identity
        self._reports = reports
        self.model = take_step.model
        self.optimizer = take_step.optimizer
        self.step = 0
        self._slots = self.optimizer.slot_variables(take_step.variables)
        self._is_chief = devices.is_chief(take_step.strategy)
        self._is_one_of_many = devices.is_multi_worker(take_step.strategy)
        self._results: list[dict[str, tf.Tensor]] = []  # of the steps since the last line
        self._shapes: set[Any] = set()  # of the batches that a step has been compiled for

    def state(self) -> dict[str, Any]:
        """Returns the content of a checkpoint: weights, moments, loss scale and `global_step`."""
        state = by_name(self.model.variables)
        state |= self._slots
        loss_scale = self.take_step.loss_scale
        if loss_scale is not None:
            state["loss_scale/value"] = loss_scale.value
            state["loss_scale/good_steps"] = loss_scale.good_steps
        state[GLOBAL_STEP] = tf.constant(self.step, tf.int64)
        return state

    def restore_latest(self) -> bool:
        """Restores the newest checkpoint of the output directory; returns whether there is one.

        Raises:
            ValueError: the checkpoint belongs to another model or optimizer (the message lists the
                differences), is named after another step, or has NaN or infinite values.
        """
        prefix = store.newest_usable(self.settings.output_dir)
        if prefix is None:
            return False
        reader = containers.open_checkpoint(prefix)
        shapes = reader.get_variable_to_shape_map()
        state = self.state()
        del state[GLOBAL_STEP]
        wrong = [
            f"  {name}: expected {variable.shape.as_list()}, found {shapes.get(name, 'nothing')}"
            for name, variable in state.items()
            if shapes.get(name) != variable.shape.as_list()
        ]
        others = optimization.optimizers_of(shapes, self.optimizer)
        if wrong and others:
            raise ValueError(
                f"{prefix} has the moments of --optimizer={' or '.join(others)}: pass that to "
                "resume training, or pass another --output_dir and the checkpoint as "
                "--init_checkpoint to start a new run from its weights."
            )
        if wrong or GLOBAL_STEP not in shapes:
            raise ValueError(
                f"{prefix} is not a checkpoint of this model and optimizer, so training cannot be "
                "resumed:\n" + "\n".join(wrong[:20]) + "\nUse another --output_dir, or pass the "
                "checkpoint as --init_checkpoint to start a new run from its weights."
            )
        step = loading.read_step(prefix)
        store.check_name(prefix, step)
        values = {name: containers.read_tensor(reader, name, prefix) for name in state}
        for name, variable in state.items():
            variable.assign(values[name])
        if bad := self._not_finite():
            raise ValueError(
                f"{prefix}: {len(bad)} weights and moments are not finite; the first is {bad[0]}. "
                "Move its files away to resume training from the previous checkpoint."
            )
        self.step = step
        self.optimizer.iterations.assign(step)
        return True

    def save(self, is_regular: bool = True) -> str:
        """Writes `model.ckpt-<step>` and the text file `checkpoint`; returns the prefix.

        Old checkpoints are deleted; `checkpoint` lists the others.

        Args:
            is_regular: whether the settings ask for a checkpoint at this step. Otherwise, it is
                only there to resume from: it is called `model.ckpt-interrupted_<step>`, is not
                evaluated, and is removed when the next one is written, so that a run which was
                stopped ends with the same checkpoints as one that was not.
        """
        directory = self.settings.output_dir
        if self._identity is not None:
            run_record.write(directory, self._identity)
            self._identity = None
        kind = "" if is_regular else "interrupted_"
        prefix = os.path.join(directory, f"model.ckpt-{kind}{self.step}")
        store.save_checkpoint(prefix, self.state())
        store.remove_old_checkpoints(directory, self.settings.keep_checkpoint_max, prefix)
        names = [os.path.basename(p) for p in store.list_resumable(directory).values()]
        with files.write_atomically(os.path.join(directory, "checkpoint")) as stream:
            stream.write(f'model_checkpoint_path: "{names[-1]}"\n')
            stream.writelines(f'all_model_checkpoint_paths: "{name}"\n' for name in names)
        return prefix

    def train(self, batches_from: Batches, after_save: AfterSave | None = None) -> None:
        """Trains from the current step to `num_train_steps`.

        Args:
            batches_from: step → the batches from that step on, with the rows of this process.
            after_save: called with the prefix of every checkpoint that is written and the open
                curves of the run; training stops if it returns True.

        Raises:
            NonFiniteLossError: the loss or a weight became NaN or infinite. The last checkpoint is
                kept.
            InterruptedRunError: a signal requested a stop, and a checkpoint has been written.
            OSError: a checkpoint could not be written.
        """
        if self.step >= self.num_train_steps:
            logging.info("Training is already complete at step %d", self.step)
            self.complete_results()
            return
        with StopRequest() as request, contextlib.ExitStack() as stack:
            log = self._open_log()
            if log is not None:
                stack.callback(log.close)
            self._train(batches_from, after_save, request, log)

    def _train(
        self,
        batches_from: Batches,
        after_save: AfterSave | None,
        request: StopRequest,
        log: MetricsLog | None,
    ) -> None:
        tenth = max(1, self.num_train_steps // 10)
        log_steps = self.settings.log_steps or min(LOG_STEPS, tenth)
        is_done = self.step == 0 and self._save(log, after_save)
        batches = iter(batches_from(self.step))
        may_update = tf.constant(True)
        means = dict[str, float]()
        with self._progress_bar() as bar:
            while self.step < self.num_train_steps and not is_done:
                result = self._take_step(batches, may_update, request.is_made, log)
                if self.settings.nan_policy == "stop":
                    # The loop does not wait for the result of each step. After a bad step, this
                    # blocks all updates until the loop checks the results.
                    may_update = result["is_good"]
                bar.update()
                request.log()
                # Several workers have to stop at the same step.
                stops = bool(result["stops"]) if self._is_one_of_many else request.is_made
                is_due = self._is_checkpoint_due()
                is_saved = stops or is_due
                if is_saved or self.step % log_steps == 0:
                    means = self._take_means()
                    tokens = means.pop(TOKENS, 0.0)
                    if log is not None:
                        rate = float(self.optimizer.learning_rate.numpy())
                        log.write(self.step, means, rate, tokens)
                if is_saved:
                    is_done = self._save(log, None if stops else after_save, is_due)
                if stops and self.step < self.num_train_steps:
                    raise InterruptedRunError(
                        f"stopped at step {self.step} of {self.num_train_steps} as requested, and "
                        f"saved it in {self.settings.output_dir}. Run the same command again to "
                        "resume."
                    )
        if log is not None:
            self._record_results(means)

    def _take_step(
        self, batches: Iterator[Batch], may_update: tf.Tensor, stops: bool, log: MetricsLog | None
    ) -> dict[str, tf.Tensor]:
        """Takes the next step, and leaves it out of the speed if it had to be compiled.

        That is the first step, and with XLA, which compiles the kernels also on CPUs, the first one
        of each length of sequences.
        """
        batch = next(batches)
        shapes = tuple(tuple(value.shape) for value in batch.values())
        is_compiled = shapes not in self._shapes
        is_first = not self._shapes
        self._shapes.add(shapes)
        if is_compiled and self._results:
            bool(self._results[-1]["is_finite"])  # waits for the steps before
        began = time.monotonic()
        result = self.take_step(batch, may_update, stops)
        self._results.append(result)
        self.step += 1
        if is_compiled and log is not None:
            bool(result["is_finite"])
            if is_first:
                log.restart_clock(self.step)  # which leaves the start of the input out as well
            else:
                log.leave_out(time.monotonic() - began)
        return result

    def complete_results(self) -> None:
        """Writes the training results if a previous run was killed before it could do so."""
        directory = self.settings.output_dir
        if not self._is_chief:
            return
        recorded = run_record.read_results(directory).get("train", {})
        means = read_means(directory, self.step)
        if means is not None and recorded.get("step") != self.step:
            self._record_results(means)

    def _record_results(self, means: dict[str, float]) -> None:
        train = {"step": self.step} | means
        run_record.record_results(self.settings.output_dir, {"train": train})

    def _open_log(self) -> MetricsLog | None:
        """Returns the metrics log; None in processes that do not write files."""
        if not self._is_chief:
            return None
        settings = self.settings
        run_record.read_results(settings.output_dir)  # report a damaged file before training
        return MetricsLog(
            settings.output_dir,
            self.step,
            self.num_train_steps,
            settings.train_batch_size,
            self._reports,
        )

    def _progress_bar(self) -> tqdm:
        """Returns a bar on terminals; elsewhere it is silent, as the log says the same."""
        disable = None if self._is_chief else True
        total = self.num_train_steps
        return tqdm(desc="training", total=total, initial=self.step, unit="step", disable=disable)

    def _is_checkpoint_due(self) -> bool:
        """Returns whether the settings ask for a checkpoint of this step."""
        is_last = self.step == self.num_train_steps
        return is_last or self.step % self.settings.save_checkpoints_steps == 0

    def _save(
        self, log: MetricsLog | None, after_save: AfterSave | None, is_regular: bool = True
    ) -> bool:
        """Saves a checkpoint if this process writes files; returns whether to stop training.

        `is_regular` as in `save`.

        Raises:
            NonFiniteLossError: a weight or moment is not finite.
        """
        self._check_state()
        if log is None:
            return False
        log.curves.sync()
        prefix = self.save(is_regular=is_regular)
        is_done = after_save is not None and after_save(prefix, log.curves) is True
        log.restart_clock(self.step)
        if is_done and self._is_one_of_many:
            logging.warning("Early stopping is not supported with several workers: continuing")
            return False
        return is_done

    def _take_means(self) -> dict[str, float]:
        """Returns the mean metrics of the good steps since the last call.

        Raises:
            NonFiniteLossError: there were bad steps, and the policy does not skip them.
        """
        results = self._results
        self._results = []
        first_step = self.step - len(results)
        bad = [number for number, result in enumerate(results) if not result["is_good"]]
        if bad and self.settings.nan_policy == "stop":
            self._fail(first_step + bad[0])
        good = [result for result in results if result["is_finite"]]
        skipped = len(results) - len(good)
        if skipped and not good and skipped >= MOST_SKIPPED_STEPS:
            self._fail(first_step)
        if not good:
            return {"skipped_steps": float(skipped)}
        means = {}
        for name in good[0].keys() - {"is_finite", "is_good", "stops"}:
            sums, weights = zip(*(result[name].numpy().tolist() for result in good), strict=True)
            means[name] = sum(sums) / max(sum(weights), 1e-9)
        if skipped:
            logging.warning("Skipped %d of %d steps: not finite", skipped, len(results))
            means["skipped_steps"] = float(skipped)
        return dict(sorted(means.items()))

    def _check_state(self) -> None:
        """Raises NonFiniteLossError if the last update made a weight or moment NaN or infinite.

        The loss only shows this in the next step, after the weights would have been saved.
        """
        bad = self._not_finite()
        if not bad:
            return
        origin = f"update {self.step}"
        advice = "Lower --learning_rate or lengthen the warm-up."
        if not self.step:
            origin = "initialization"
            advice = "Check --init_checkpoint."
        raise NonFiniteLossError(
            f"{len(bad)} weights and moments are not finite after {origin}; the first is {bad[0]}. "
            f"They are not saved; the last good checkpoint is {self._last_checkpoint()}. {advice}"
        )

    def _not_finite(self) -> list[str]:
        """Returns the names of weights and moments with NaN or infinite values."""
        state = self.state()
        names = [name for name, value in state.items() if value.dtype.is_floating]
        # A single transfer from the device for all variables.
        flags = tf.stack([tf.reduce_all(tf.math.is_finite(state[name])) for name in names])
        return [name for name, is_good in zip(names, flags.numpy(), strict=True) if not is_good]

    def _last_checkpoint(self) -> str:
        kept = list(store.list_resumable(self.settings.output_dir).values())
        return kept[-1] if kept else "(none)"

    def _fail(self, step: int) -> None:
        """Raises NonFiniteLossError for a step."""
        raise NonFiniteLossError(
            f"the loss or its gradient is not finite at step {step}; the last good checkpoint is "
            f"{self._last_checkpoint()}. Lower --learning_rate, lengthen the warm-up, or skip such "
            "steps with --nan_policy=skip. tf.debugging.enable_check_numerics() finds the tensor."
        )

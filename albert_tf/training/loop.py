"""The training loop for any task.

    trainer = Trainer(take_step, settings, num_train_steps)
    trainer.restore_latest()
    trainer.train(batches_from, hooks)

The loop takes steps; everything else is a hook: logging, saving, evaluation, and what users add
(see `hooks`). Resuming a run is exact: a checkpoint contains weights, optimizer moments and step,
and everything else that a step depends on (its records and dropout masks) is a function of the seed
and the step.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from absl import logging

from albert_tf import files
from albert_tf.checkpoints import containers, loading, store
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.weight_names import GLOBAL_STEP, by_name
from albert_tf.model import optimization
from albert_tf.training import replicas
from albert_tf.training.hooks import Hook
from albert_tf.training.interruption import InterruptedRunError, StopRequest
from albert_tf.training.metric_names import check_names
from albert_tf.training.settings import RunSettings
from albert_tf.training.step import StepResult, TrainStep
from albert_tf.training.task import Batch, add_derived

# Even with the policy "skip", the run stops if this many steps contain no good one.
MAX_SKIPPED_STEPS = 20

Batches = Callable[[int], Iterable[Batch]]  # step → the batches from that step on


class NonFiniteLossError(ArithmeticError):
    """The loss, a gradient or an updated weight is NaN or infinite."""


class Untimed(NamedTuple):
    """Steps and seconds that do not count for the speed: compilation, saving and evaluation."""

    steps: int = 0
    seconds: float = 0.0


class Trainer:
    """Runs training steps, and saves and restores checkpoints.

    With several workers, all of them train, and the first one, the chief, writes the files.

    Args:
        take_step: the training step, with its model, task and optimizer.
        settings: settings of the run, such as when to save and log.
        num_train_steps: the step at which training ends.
        folder: folder of the run; that of the settings if not given.

    Attributes:
        model, optimizer: those of `take_step`.
        step: number of completed steps.
        batch: the batch of the last step, the rows of this process.
        is_chief: whether this process writes files.
        is_saving: whether the last step is followed by a checkpoint.
        is_stopping: whether the run ends after this step because a signal asked for it.
        untimed: what does not count for the speed since training began.
        values: values that hooks add to the next line of the log, by `log`.
    """

    def __init__(
        self,
        take_step: TrainStep,
        settings: RunSettings,
        num_train_steps: int,
        folder: RunFolder | None = None,
    ) -> None:
        self.take_step = take_step
        self.settings = settings
        self.num_train_steps = num_train_steps
        self.folder = folder or RunFolder(settings.output_dir)
        self.model = take_step.model
        self.optimizer = take_step.optimizer
        self.step = 0
        self.batch: Batch = {}
        self.is_chief = replicas.is_chief(take_step.strategy)
        self.is_stopping = False
        self.untimed = Untimed()
        self.values: dict[str, float] = {}
        self._is_one_of_many = replicas.is_multi_worker(take_step.strategy)
        self._slots = self.optimizer.slot_variables(take_step.variables)
        self._hooks: Sequence[Hook] = ()
        self._is_complete = False
        self._allow_update: tf.Tensor = tf.constant(True)
        self._unreported: list[StepResult] = []
        self._compiled_shapes: set[Any] = set()

    # Training.

    def train(self, batches_from: Batches, hooks: Sequence[Hook] = ()) -> None:
        """Trains from the current step to `num_train_steps`.

        Args:
            batches_from: step → the batches from that step on, with the rows of this process.
            hooks: what is done before, during and after training, in this order.

        Raises:
            NonFiniteLossError: the loss or a weight became NaN or infinite. The last checkpoint is
                kept.
            InterruptedRunError: a signal requested a stop, and a checkpoint has been written.
            OSError: a checkpoint could not be written.
        """
        if self.step >= self.num_train_steps:
            logging.info("Training is already complete at step %d", self.step)
            return
        self._hooks = hooks
        with StopRequest() as request, contextlib.ExitStack() as stack:
            for hook in hooks:
                stack.callback(hook.on_end, self)
                hook.on_start(self)
            batches = iter(batches_from(self.step))
            while self.step < self.num_train_steps and not self._is_complete:
                result = self._take_step(batches, request.is_made)
                request.log()
                # Several workers have to stop at the same step.
                stops = result.stop_requested if self._is_one_of_many else request.is_made
                self.is_stopping = bool(stops) and self.step < self.num_train_steps
                for hook in hooks:
                    hook.on_step(self, result)
                if self.is_stopping:
                    raise InterruptedRunError(
                        f"stopped at step {self.step} of {self.num_train_steps} as requested, and "
                        f"saved it in {self.folder.path}. Run the same command again to resume."
                    )

    def _take_step(self, batches: Iterator[Batch], request_stop: bool) -> StepResult:
        """Takes the next step, and leaves it out of the speed if it has to be compiled.

        That is the first step, and with XLA, which compiles the kernels also on CPUs, the first one
        of each length of sequences.
        """
        began = time.monotonic()
        self.batch = next(batches)
        shapes = tuple(tuple(value.shape) for value in self.batch.values())
        is_compiled = shapes not in self._compiled_shapes
        if is_compiled and self._unreported:
            _wait_for(self._unreported[-1])
            began = time.monotonic()
        self._compiled_shapes.add(shapes)
        result = self.take_step(self.batch, self._allow_update, request_stop)
        if is_compiled:
            _wait_for(result)
            self.leave_out(time.monotonic() - began, steps=1)
        self._unreported.append(result)
        self.step += 1
        if self.settings.nan_policy == "stop":
            # The loop does not wait for the result of each step. After a bad step, this blocks all
            # updates until `take_means` looks at the results.
            self._allow_update = result.is_applied
        return result

    def leave_out(self, seconds: float, steps: int = 0) -> None:
        """Leaves out seconds, and steps taken in them, of the speed."""
        self.untimed = Untimed(self.untimed.steps + steps, self.untimed.seconds + seconds)

    def log(self, **values: float) -> None:
        """Adds values to the next line of the log, for example the metrics of a hook.

        Raises:
            ValueError: a value has the name of a metric of every run.
        """
        check_names(values, "the logged value")
        self.values |= {name: float(value) for name, value in values.items()}

    def stop(self) -> None:
        """Ends training after this step, which several workers ignore."""
        if self._is_one_of_many:
            logging.warning("Early stopping is not supported with several workers: continuing")
        self._is_complete = not self._is_one_of_many

    @property
    def is_saving(self) -> bool:
        """Whether this step is followed by a checkpoint."""
        return self.is_stopping or self.is_checkpoint_due

    @property
    def is_checkpoint_due(self) -> bool:
        """Whether the settings ask for a checkpoint of this step."""
        is_last = self.step == self.num_train_steps
        return is_last or self.step % self.settings.save_checkpoints_steps == 0

    def take_means(self) -> tuple[dict[str, float], float]:
        """Returns the mean metrics of the good steps since the last call, and their mean tokens.

        Raises:
            NonFiniteLossError: there were bad steps, and the policy does not skip them.
        """
        results, self._unreported = self._unreported, []
        first_step = self.step - len(results)
        bad = [number for number, result in enumerate(results) if not result.is_applied]
        if bad and self.settings.nan_policy == "stop":
            self._fail(first_step + bad[0])
        good = [result for result in results if result.is_finite]
        skipped = len(results) - len(good)
        if skipped and not good and skipped >= MAX_SKIPPED_STEPS:
            self._fail(first_step)
        if not good:
            return {"skipped_steps": float(skipped)}, 0.0
        pairs = [result.metrics | {"loss": result.loss} for result in good]
        means = {name: _mean([pair[name] for pair in pairs]) for name in pairs[0]}
        means = add_derived(self.take_step.task, means)
        means["gradient_norm"] = sum(float(r.gradient_norm) for r in good) / len(good)
        if skipped:
            logging.warning("Skipped %d of %d steps: not finite", skipped, len(results))
            means["skipped_steps"] = float(skipped)
        tokens = sum(float(result.tokens) for result in good) / len(good)
        return dict(sorted(means.items())), tokens

    # Checkpoints.

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
        """Restores the newest checkpoint of the run; returns whether there is one.

        Raises:
            ValueError: the checkpoint belongs to another model or optimizer (the message lists the
                differences), or is named after another step.
        """
        prefix = store.newest_usable(self.folder)
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
        self.step = step
        self.optimizer.iterations.assign(step)
        return True

    def save(self) -> None:
        """Writes a checkpoint of this step, in the process that writes files.

        If the settings ask for one, it is called `model.ckpt-<step>`, and the hooks' `on_save` is
        called. Otherwise, it is only there to resume from: it is called
        `model.ckpt-interrupted_<step>` and is removed when the next one is written, so that a run
        which was stopped ends with the same checkpoints as one that was not.

        Raises:
            NonFiniteLossError: a weight or moment is not finite.
        """
        began = time.monotonic()
        self._check_state()
        if not self.is_chief:
            return
        is_regular = self.step == 0 or self.is_checkpoint_due
        kind = "" if is_regular else "interrupted_"
        prefix = self.folder.file(f"model.ckpt-{kind}{self.step}")
        store.save_checkpoint(prefix, self.state())
        store.remove_old_checkpoints(self.folder, self.settings.keep_checkpoint_max, prefix)
        names = [os.path.basename(p) for p in self.folder.resumable().values()]
        with files.write_atomically(self.folder.file("checkpoint")) as stream:
            stream.write(f'model_checkpoint_path: "{names[-1]}"\n')
            stream.writelines(f'all_model_checkpoint_paths: "{name}"\n' for name in names)
        for hook in () if self.is_stopping else self._hooks:
            hook.on_save(self, prefix)
        self.leave_out(time.monotonic() - began)

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
        kept = list(self.folder.resumable().values())
        return kept[-1] if kept else "(none)"

    def _fail(self, step: int) -> None:
        """Raises NonFiniteLossError for a step."""
        raise NonFiniteLossError(
            f"the loss or its gradient is not finite at step {step}; the last good checkpoint is "
            f"{self._last_checkpoint()}. Lower --learning_rate, lengthen the warm-up, or skip such "
            "steps with --nan_policy=skip. tf.debugging.enable_check_numerics() finds the tensor."
        )


def _wait_for(result: StepResult) -> None:
    """Waits until a step, which runs asynchronously on a GPU, has been computed."""
    bool(result.is_finite)


def _mean(pairs: Sequence[tf.Tensor]) -> float:
    """Returns the sum of sums over the sum of weights, of pairs [2] of both."""
    sums, weights = zip(*(pair.numpy().tolist() for pair in pairs), strict=True)
    return float(sum(sums) / max(sum(weights), 1e-9))

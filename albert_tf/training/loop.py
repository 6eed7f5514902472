"""The training loop for any task.

    trainer = Trainer(take_step, settings, num_train_steps, folder)
    trainer.restore_latest()
    trainer.train(batches_from, hooks, log, evaluation)

In this order, the loop takes a step, calls the hooks, logs, saves, evaluates what was saved, and
stops. What keeps a run safe is the loop's own: it notices a loss that is not finite, and saves,
whatever is logged and evaluated. Hooks are what users add, and the progress bar.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import tensorflow as tf
from absl import logging

from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.training import replicas
from albert_tf.training.checkpointing import Checkpoints, NonFiniteLossError
from albert_tf.training.evaluation import TrainingEvaluation
from albert_tf.training.interruption import InterruptedRunError, StopRequest
from albert_tf.training.report import Report, report_interval
from albert_tf.training.settings import RunSettings
from albert_tf.training.step import StepResult, TrainStep
from albert_tf.training.step_results import StepResults
from albert_tf.training.task import Batch, check_names

# The most steps after a bad one until it is noticed, even if reports are further apart.
CHECK_STEPS = 100

Batches = Callable[[int], Iterable[Batch]]  # step → the batches from that step on


class Hook:
    """What is done during training; by default, nothing."""

    def on_start(self, trainer: Trainer) -> None:
        """Is called before the first step."""

    def on_step(self, trainer: Trainer, result: StepResult) -> None:
        """Is called after each step.

        Args:
            trainer: the trainer, whose attributes are those after the step.
            result: the result of the step. Reading its values waits for the device.
        """

    def on_save(self, trainer: Trainer, prefix: str) -> None:
        """Is called after a checkpoint was written, in the process that writes files.

        Args:
            trainer: the trainer.
            prefix: prefix of the checkpoint.
        """

    def on_end(self, trainer: Trainer) -> None:
        """Is called when training ends, also by an error."""


def every(steps: int, call: Callable[[Trainer, StepResult], object]) -> Hook:
    """Returns a hook that calls a function after each step whose number is a multiple of `steps`.

    Args:
        steps: number of steps between two calls.
        call: the function, as `Hook.on_step`.
    """

    class Every(Hook):
        def on_step(self, trainer: Trainer, result: StepResult) -> None:
            if trainer.step % steps == 0:
                call(trainer, result)

    return Every()


class Trainer:
    """Runs training steps, and saves and restores checkpoints.

    With several workers, all of them train, and the first one, the chief, writes the files.

    Args:
        take_step: the training step, with its model, task and optimizer.
        settings: when to save and log, and what to do if a loss is not finite. Hooks find all
            settings of the run there.
        num_train_steps: the step at which training ends.
        folder: folder of the run.

    Attributes:
        model, optimizer: those of `take_step`.
        step: number of completed steps.
        batch: the batch of the last step, the rows of this process.
        is_chief: whether this process writes files.
        is_saving: whether the last step is followed by a checkpoint.
        is_stopping: whether the run ends after this step because a signal asked for it, or because
            the data for the next one cannot be read.
        checkpoints: the content of checkpoints, and their files.
        stopwatch: measures the speed.
        values: values that hooks add to the next line of the log, by `log`.
    """

    def __init__(
        self,
        take_step: TrainStep,
        settings: RunSettings,
        num_train_steps: int,
        folder: RunFolder,
    ) -> None:
        self.take_step = take_step
        self.settings = settings
        self.num_train_steps = num_train_steps
        self.folder = folder
        self.model = take_step.model
        self.optimizer = take_step.optimizer
        self.step = 0
        self.batch: Batch = {}
        self.is_chief = replicas.is_chief(take_step.strategy)
        self.is_stopping = False
        self.checkpoints = Checkpoints(take_step, self.folder, settings.keep_checkpoint_max)
        self.stopwatch = Stopwatch()
        self.values: dict[str, float] = {}
        self._is_one_of_many = replicas.is_multi_worker(take_step.strategy)
        self._is_complete = False
        self._allow_update: tf.Tensor = tf.constant(True)
        self._results = StepResults(take_step.task, stops=settings.nan_policy == "stop")
        self._report_steps = report_interval(settings.log_steps, num_train_steps)
        self._compiled_shapes: set[tuple[tuple[int, ...], ...]] = set()

    def train(
        self,
        batches_from: Batches,
        hooks: Sequence[Hook] = (),
        log: Callable[[Report], None] | None = None,
        evaluation: TrainingEvaluation | None = None,
    ) -> None:
        """Trains from the current step to `num_train_steps`.

        Args:
            batches_from: step → the batches from that step on, with the rows of this process.
            hooks: what is done before, during and after training, in this order.
            log: gets a report when one is due: at multiples of `log_steps`, and before saving.
            evaluation: evaluates checkpoints, and may end training.

        Raises:
            NonFiniteLossError: the loss or a weight became NaN or infinite. The last checkpoint is
                kept.
            InterruptedRunError: a signal requested a stop, or a store with the data does not
                answer, and a checkpoint has been written.
            OSError: a checkpoint could not be written; or the data cannot be read, and a checkpoint
                has been written.
        """
        if self.step >= self.num_train_steps:
            logging.info("Training is already complete at step %d", self.step)
            return
        with StopRequest() as request, contextlib.ExitStack() as stack:
            for hook in hooks:
                stack.callback(hook.on_end, self)
                hook.on_start(self)
            if evaluation is not None and evaluation.begin(self.step):
                self.stop()
            if self.step == 0:
                self._evaluate(self._save(hooks), evaluation)
            batches = iter(batches_from(self.step))
            self.stopwatch.start()
            while self.step < self.num_train_steps and not self._is_complete:
                result = self._take_step(batches, request.is_made)
                self.is_stopping = self._has_to_stop(request, result)
                for hook in hooks:
                    hook.on_step(self, result)
                self._check_results()
                if self.is_reporting:
                    self._report(log)
                if self.is_saving:
                    saved = self._save(hooks)
                    self._evaluate(saved, evaluation)
                if self.is_stopping:
                    raise InterruptedRunError(
                        f"stopped at step {self.step} of {self.num_train_steps} as requested, and "
                        f"saved it in {self.folder.path}. Run the same command again to resume."
                    )

    # The parts of the loop.

    def _take_step(self, batches: Iterator[Batch], request_stop: bool) -> StepResult:
        """Takes the next step, and leaves it out of the speed if it has to be compiled.

        That is the first step, and with XLA, which compiles the kernels also on CPUs, the first one
        of each length of sequences.
        """
        began = time.monotonic()
        self.batch = self._next_batch(batches)
        shapes = tuple(tuple(value.shape) for value in self.batch.values())
        is_compiled = shapes not in self._compiled_shapes
        if is_compiled and self._results:
            self._results.wait()
            began = time.monotonic()
        self._compiled_shapes.add(shapes)
        result = self.take_step(self.batch, self._allow_update, request_stop)
        self._results.add(self.step, result)
        if is_compiled:
            self._results.wait()
            self.stopwatch.leave_out(time.monotonic() - began)
        else:
            self.stopwatch.count_step()
        self.step += 1
        if self.settings.nan_policy == "stop":
            # The loop does not wait for the result of each step. After a bad step, this blocks all
            # updates until `_check_results` looks at the results.
            self._allow_update = result.is_applied
        return result

    def _next_batch(self, batches: Iterator[Batch]) -> Batch:
        """Returns the next batch; saves the run if the data cannot be read now."""
        try:
            return next(batches)
        except (OSError, InterruptedRunError):
            self.is_stopping = True
            self._check_results()
            if not self.is_checkpoint_due:  # it is saved already
                self.save()
            raise

    def _has_to_stop(self, request: StopRequest, result: StepResult) -> bool:
        """Returns whether a signal ends the run after this step; logs a new one."""
        request.log()
        # Several workers have to stop at the same step.
        stops = result.stop_requested if self._is_one_of_many else request.is_made
        return bool(stops) and self.step < self.num_train_steps

    def _check_results(self) -> None:
        """Raises NonFiniteLossError if a step since the last report ends the run.

        This waits for the steps, so it is done when a report is due, or now and then.
        """
        failed = None
        if self.is_reporting:
            failed = self._results.failed_at
        elif self.step % CHECK_STEPS == 0:
            failed = self._results.blocked_at
        if failed is not None:
            raise NonFiniteLossError(
                f"the loss or its gradient is not finite at step {failed}; the last good "
                f"checkpoint is {self.checkpoints.latest}. Lower --learning_rate, lengthen the "
                "warm-up, or skip such steps with --nan_policy=skip. "
                "tf.debugging.enable_check_numerics() finds the tensor."
            )

    def _report(self, log: Callable[[Report], None] | None) -> None:
        """Reports the steps since the last report."""
        means, tokens = self._results.take_means()
        speed = self.stopwatch.lap()
        values = means | self.values
        values["learning_rate"] = float(self.optimizer.learning_rate.numpy())
        if speed:
            values["examples_per_second"] = speed * self.settings.train_batch_size
            if tokens:
                values["tokens_per_second"] = speed * tokens
        self.values = {}
        if log is not None:
            log(Report(self.step, self.num_train_steps, values, speed))

    def _save(self, hooks: Sequence[Hook]) -> str | None:
        """Saves this step; returns the checkpoint if the process that wrote it continues."""
        with self.stopwatch.paused():
            prefix = self.save()
            if prefix is None or self.is_stopping:
                return None
            for hook in hooks:
                hook.on_save(self, prefix)
            return prefix

    def _evaluate(self, prefix: str | None, evaluation: TrainingEvaluation | None) -> None:
        """Evaluates a checkpoint that was saved, and ends training if the evaluation says so."""
        if prefix is None or evaluation is None:
            return
        with self.stopwatch.paused():
            if evaluation.evaluate(prefix, self.step):
                self.stop()

    @property
    def is_reporting(self) -> bool:
        """Whether this step is followed by a report."""
        return self.is_saving or self.step % self._report_steps == 0

    @property
    def is_saving(self) -> bool:
        """Whether this step is followed by a checkpoint."""
        return self.is_stopping or self.is_checkpoint_due

    @property
    def is_checkpoint_due(self) -> bool:
        """Whether the settings ask for a checkpoint of this step."""
        is_last = self.step == self.num_train_steps
        return is_last or self.step % self.settings.save_checkpoints_steps == 0

    # What hooks may do, and what is done without training.

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

    def restore_latest(self) -> bool:
        """Restores the newest checkpoint of the run; returns whether there is one.

        Raises:
            ValueError: see `Checkpoints.restore_latest`.
        """
        step = self.checkpoints.restore_latest()
        self.step = step or 0
        return step is not None

    def save(self) -> str | None:
        """Writes a checkpoint of this step, and returns its prefix.

        In processes that write no files, the weights are only checked, and the result is None.

        Raises:
            NonFiniteLossError: a weight or moment is not finite.
        """
        self.checkpoints.check_finite(self.step)
        if not self.is_chief:
            return None
        is_regular = self.step == 0 or self.is_checkpoint_due
        return self.checkpoints.save(self.step, only_to_resume=not is_regular)


class Stopwatch:
    """Measures steps per second, without compilation, saving and evaluation.

    It does so in laps, each from `start` or the end of the lap before.
    """

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Begins a lap."""
        self._began = time.monotonic()
        self._left_out = 0.0  # seconds
        self._steps = 0

    def count_step(self) -> None:
        """Counts a step, whose time is part of the lap."""
        self._steps += 1

    def leave_out(self, seconds: float) -> None:
        """Leaves seconds out of the lap."""
        self._left_out += seconds

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Context manager whose time is left out of the lap."""
        began = time.monotonic()
        yield
        self.leave_out(time.monotonic() - began)

    def lap(self) -> float:
        """Ends the lap and begins another; returns its steps per second, 0 without any step."""
        seconds = time.monotonic() - self._began - self._left_out
        speed = self._steps / max(seconds, 1e-9)
        self.start()
        return speed

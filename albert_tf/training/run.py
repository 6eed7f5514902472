"""A run: the training and evaluation of a model in a folder, the same for all tasks.

    with Run.open(settings) as run:
        run.admit(record)             # compares with the folder and the initial weights
        run.train(task)               # resumes, or starts anew
        run.evaluate(task)            # all checkpoints, once each

Flags become `settings`, which `Run` completes with the folder, the devices and the record of the
run. The task owns the data and the loss, and the `Trainer` takes the steps, logs and saves.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from albert_tf import files
from albert_tf.checkpoints import (
    containers,
    huggingface_task,
    loading,
    record_comparison,
    run_record,
)
from albert_tf.checkpoints.evaluations import Evaluation
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.run_record import FileRecord, RunRecord
from albert_tf.model import optimization
from albert_tf.model.config import AlbertConfig
from albert_tf.model.included_configs import config_file
from albert_tf.model.schedules import WarmUpPolynomialDecay
from albert_tf.tensorflow_releases import set_random_seed
from albert_tf.training import devices, replicas, workers
from albert_tf.training.devices import Devices
from albert_tf.training.early_stopping import TrainingEvaluation
from albert_tf.training.evaluation import CheckpointEvaluator, check_not_replaced
from albert_tf.training.hooks import Hook
from albert_tf.training.loop import Trainer
from albert_tf.training.loss_scale import LossScale
from albert_tf.training.precision import current_precision
from albert_tf.training.progress import ProgressBar
from albert_tf.training.report import ReportLog
from albert_tf.training.settings import DeviceSettings, RunSettings
from albert_tf.training.step import StepOptions, TrainStep
from albert_tf.training.task import Task
from albert_tf.training.tracker import Tracker, make_tracker


class Run:
    """A run with its locked folder and its devices.

    Args:
        settings: the completed settings.
        folder: the folder of the run.
        config: the model's config.
        opened: the devices.
        tracker: reports the metrics.

    Attributes:
        settings, folder, config: the arguments.
        strategy: the distribution strategy.
        is_chief: whether this process writes files; of several workers, only the first one does.
        record: what is recorded of the run; see `admit`.
    """

    def __init__(
        self,
        settings: Any,
        folder: RunFolder,
        config: AlbertConfig,
        opened: Devices,
        tracker: Tracker,
    ) -> None:
        self.settings = settings
        self.folder = folder
        self.config = config
        self.strategy = opened.strategy
        self.is_chief = opened.is_chief
        self.record = RunRecord()
        self._precision = opened.precision
        self._tracker = tracker
        self._has_begun = False
        self._model: Any = None
        self._evaluator: CheckpointEvaluator | None = None

    @classmethod
    @contextlib.contextmanager
    def open(cls, settings: RunSettings, opened: Devices | None = None) -> Iterator[Run]:
        """Context manager that makes and locks the folder, and opens the devices.

        Only the first of several workers, the chief, locks and writes to the folder.

        Args:
            settings: the completed settings.
            opened: the devices, if they are open.

        Raises:
            ValueError: another process uses the folder, it contains another model, or the settings
                require devices that do not exist.
            InterruptedRunError: another worker was lost.
        """
        files.ensure_directory(settings.output_dir, "--output_dir")
        folder = RunFolder(settings.output_dir)
        path = settings.albert_config_file or ""
        config = AlbertConfig.from_json_file(path)
        folder.check_config(config, path)
        with workers.losses_interrupt(), contextlib.ExitStack() as stack:
            if opened is None:
                opened = stack.enter_context(devices.open_devices(settings))
            if opened.is_chief:
                stack.enter_context(folder.locked())
            tracker = stack.enter_context(make_tracker(settings))
            yield cls(settings, folder, config, opened, tracker)

    @functools.cached_property
    def trained(self) -> RunFolder | None:
        """Folder of the weights that the run starts with; see `RunSettings.trained_in`."""
        folder: RunFolder | None = self.settings.trained_in(self.folder)
        return folder

    # What is trained.

    def admit(self, known: RunRecord) -> None:
        """Compares the run with the model that it starts with, and with the other workers.

        Resumed training needs the same settings, files, task and labels as before. Training that
        starts from an `init_checkpoint` only needs the same vocabulary and tokenization;
        evaluation, prediction and export also need the same task (a user's with its module) and
        labels, and the settings that the model's output depends on.

        Args:
            known: the files of vocabulary and training data, and the task, as far as they are
                known; and settings that the program has found out.

        Raises:
            ValueError: something has changed, and `allow_changed_settings` is not set; or the
                workers differ.
        """
        settings = self.settings
        values = json.loads(run_record.to_json(settings.to_dict()))
        known_files = {run_record.CONFIG: self._config_record()}
        if settings.init_checkpoint:
            path = containers.find_checkpoint(settings.init_checkpoint)
            digest = f"digest {containers.digest(path)}"
            known_files[run_record.INIT_CHECKPOINT] = FileRecord(digest, run_record.absolute(path))
        else:
            known_files[run_record.INIT_CHECKPOINT] = FileRecord("none")
        self.record = dataclasses.replace(
            known,
            settings=values | known.settings | {run_record.PRECISION: self._precision},
            config=self.config.to_dict(),
            files={**known_files, **known.files},
        )
        changes = self._check_record()
        start = run_record.describe_start(
            sys.argv, {"devices": replicas.describe(self.strategy), "precision": self._precision}
        )
        if changes:
            start["changed_settings"] = changes
        self.record = dataclasses.replace(self.record, start=start)
        if settings.do_train and replicas.is_multi_worker(self.strategy):
            names = self.record.files.keys() | record_comparison.ALWAYS_COMPARED
            texts = self.record.texts(names | settings.names_for_training)
            workers.check_same(self.strategy, texts | start["versions"])

    def _config_record(self) -> FileRecord:
        content = json.dumps(self.config.to_dict(), sort_keys=True)
        path = config_file(self.settings.albert_config_file or "")
        return FileRecord.of_text(content, path)

    def _check_record(self) -> record_comparison.Changes:
        """Compares the record with that of the folder or of `init_checkpoint`; see `admit`."""
        settings = self.settings
        if settings.do_train and self.folder.has_checkpoint:
            changes = record_comparison.check_training(self.folder, self.record, settings)
            if changes:
                return changes
        if self.trained is None:
            return {}
        before = self.trained.record
        names = set(record_comparison.OF_TEXT)
        if not settings.do_train:
            names |= {run_record.TASK, run_record.TASK_MODULE, *settings.names_for_model}
            if not huggingface_task.are_default(before.labels):
                names.add(run_record.LABELS)
        return record_comparison.check_model(self.trained, self.record, names, settings)

    def begin(self) -> None:
        """Writes the files that describe the run, once it is known to be valid.

        A run that fails before that leaves no files that would be in the way of the next one. The
        record of a trained model stays as it is when the model is only used.
        """
        if self._has_begun or not self.is_chief:
            return
        self._has_begun = True
        self.folder.keep_config(self.config)
        self.folder.add_start(self.record)
        if self.settings.do_train or not self.folder.has_checkpoint:
            self.folder.write_record(self.record)

    # Training and evaluation.

    def train(self, task: Task, hooks: Sequence[Hook] = (), patience: int = 0) -> None:
        """Trains from the newest checkpoint of the folder, if any, to the last step.

        With `do_eval`, each checkpoint is evaluated when it is saved.

        Args:
            task: the task.
            hooks: hooks of the user.
            patience: number of checkpoints in a row without improvement after which training ends;
                0 disables early stopping.

        Raises:
            ValueError: a checkpoint in the folder, or `init_checkpoint`, does not match the model;
                the batch size is not divisible by the devices; or the warm-up starts at a later
                step.
        """
        settings = self.settings
        evaluation = log = None
        if self.is_chief:
            log = ReportLog(self.folder, self._tracker)
            if settings.do_eval:
                evaluation = TrainingEvaluation(self.evaluator(task), patience)
        schedule = task.schedule(settings)
        trainer = self._make_trainer(task, schedule)
        self._log_plan(trainer, schedule, task.count_examples())
        self.begin()
        if self.is_chief:
            task.keep_files(self.folder)
        rows = replicas.local_rows(self.strategy, settings.train_batch_size)
        trainer.train(
            lambda step: task.batches(settings, step, rows),
            [*hooks, ProgressBar()],
            log,
            evaluation,
        )

    def evaluate(self, task: Task) -> list[Evaluation]:
        """Returns the evaluations of all checkpoints, after evaluating the remaining ones.

        Raises:
            ValueError: there is no checkpoint, or it belongs to a different model.
        """
        evaluations = self.evaluator(task).evaluate_all(self.settings.init_checkpoint)
        self.begin()
        return evaluations

    def evaluator(self, task: Task) -> CheckpointEvaluator:
        """Returns the evaluator of the run, which is made once."""
        if self._evaluator is None:
            self._evaluator = CheckpointEvaluator(
                self.folder, task, self.evaluation_model(task), self._tracker
            )
        return self._evaluator

    def evaluation_model(self, task: Task) -> Any:
        """Returns the model that checkpoints are loaded into, which is made once."""
        if self._model is None:
            self._model = task.build_model()
        return self._model

    def best_checkpoint(self) -> str:
        """Returns the checkpoint to predict with, with a warning if it is not the best one.

        Raises:
            FileNotFoundError: there is no checkpoint.
            ValueError: another run wrote it in place of ours.
        """
        folder = self.folder
        checkpoint = folder.checkpoint
        if checkpoint is not None:
            check_not_replaced(folder.evaluations([containers.digest(checkpoint)]), checkpoint)
        elif self.settings.init_checkpoint:
            checkpoint = containers.find_checkpoint(self.settings.init_checkpoint)
        else:
            raise FileNotFoundError(
                f"{folder.path} contains no checkpoint to predict with. Train first, or set "
                "--init_checkpoint."
            )
        if checkpoint != folder.best:
            logging.warning("%s does not exist: using %s", folder.best, checkpoint)
        elif loading.read_step(checkpoint) == 0:
            logging.warning("%s is the checkpoint of step 0: its head is untrained", checkpoint)
        return checkpoint

    def _make_trainer(self, task: Task, schedule: WarmUpPolynomialDecay) -> Trainer:
        """Returns a trainer that resumes from the newest checkpoint of the folder, if any."""
        settings, strategy = self.settings, self.strategy
        replicas.check_batch_size(
            strategy, settings.train_batch_size, settings.gradient_accumulation_steps
        )
        options = StepOptions(
            seed=settings.seed,
            micro_batches=settings.gradient_accumulation_steps,
            clip_per_replica=settings.clip_per_replica,
            jit_compile=_compiles(settings, strategy),
        )
        set_random_seed(settings.seed)
        with strategy.scope():
            model = task.build_model()
            model.encoder.recompute = settings.gradient_checkpointing
            model.encoder.trainable = not task.freezes_encoder
            optimizer = optimization.create_optimizer(
                settings.optimizer, schedule, settings.weight_decay
            )
            loss_scale = LossScale() if current_precision() == "float16" else None
        signature = task.batch_signature()
        take_step = TrainStep(model, task, optimizer, options, strategy, signature, loss_scale)
        trainer = Trainer(take_step, settings, schedule.num_train_steps, self.folder)
        is_resumed = trainer.restore_latest()
        _check_warm_up(schedule, trainer.step)
        if settings.init_checkpoint and not is_resumed:
            loading.load_checkpoint(
                model, settings.init_checkpoint, settings.allow_partial_init, task.init_from_group0
            )
        return trainer

    def _log_plan(
        self, trainer: Trainer, schedule: WarmUpPolynomialDecay, num_examples: int
    ) -> None:
        """Logs what is going to be trained, on what, and how."""
        settings = self.settings
        model = trainer.model
        num_weights = sum(variable.shape.num_elements() for variable in model.variables)
        num_frozen = sum(x.shape.num_elements() for x in model.non_trainable_variables)
        frozen = f", {num_frozen:,} of them not trained" if num_frozen else ""
        start = f"weights of {settings.init_checkpoint}" if settings.init_checkpoint else ""
        if trainer.step:
            start = f"resumed at step {trainer.step}"
        parts = settings.gradient_accumulation_steps
        in_parts = f", in {parts} parts" if parts > 1 else ""
        steps = schedule.num_train_steps
        epoch = num_examples / settings.train_batch_size  # in steps
        warm_up = f"after {schedule.num_warmup_steps} steps of warm-up"
        lines = {
            "model": f"{num_weights:,} parameters{frozen}, {start or 'random weights'}",
            "data": f"{num_examples:,} examples, {epoch:.6g} steps per epoch",
            "batch": f"{settings.train_batch_size} examples{in_parts}",
            "schedule": f"{steps} steps, {steps / epoch:.3g} epochs; {settings.optimizer}, "
            f"learning rate {schedule.learning_rate:g}"
            + (f" {warm_up}" if schedule.num_warmup_steps else ", no warm-up"),
            "output": self.folder.path,
        }
        for name, text in lines.items():
            logging.info("%-9s %s", name, text)


def _check_warm_up(schedule: WarmUpPolynomialDecay, step: int) -> None:
    """Checks that the warm-up has started at the first step, and warns if training ends before it.

    Unlike Google's program, because before the warm-up its learning rate is negative.
    """
    if schedule.num_warmup_steps and step < schedule.start_warmup_step:
        raise ValueError(
            f"--start_warmup_step={schedule.start_warmup_step}: training continues from step "
            f"{step}, and before the warm-up its learning rate would be negative. Expected {step} "
            "or less"
        )
    end = schedule.start_warmup_step + schedule.num_warmup_steps
    if schedule.num_warmup_steps and end > schedule.num_train_steps:
        logging.warning(
            "The warm-up ends at step %d, but training at step %d: the learning rate does not "
            "reach %g. Check the number of steps and of warm-up steps.",
            end,
            schedule.num_train_steps,
            schedule.learning_rate,
        )


def _compiles(settings: DeviceSettings, strategy: tf.distribute.Strategy) -> bool:
    """Returns whether the training step is compiled with XLA."""
    if settings.jit_compile != "auto":
        return settings.jit_compile == "true"
    is_one_device = strategy.num_replicas_in_sync == 1
    return is_one_device and bool(tf.config.list_physical_devices("GPU"))

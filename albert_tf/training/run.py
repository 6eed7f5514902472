"""A run: the training and evaluation of a model in a folder, the same for all tasks.

    with Run.open(settings) as run:
        run.admit(record)             # compares with the folder and the initial weights
        run.train(task)               # resumes, or starts
        run.evaluate(task)            # all checkpoints, once each

Flags become `settings`, which `Run` completes with the folder, the devices and the record of the
run. The task owns the data and the loss, and the `Trainer` takes the steps, logs and saves.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
from collections.abc import Iterator, Sequence
from typing import Generic

from absl import logging
from tqdm import tqdm

from albert_tf import files
from albert_tf.checkpoints import (
    containers,
    loading,
    model_folder,
    record_comparison,
    run_record,
)
from albert_tf.checkpoints.evaluations import Evaluation
from albert_tf.checkpoints.run_folder import METRICS_FILE, RunFolder
from albert_tf.checkpoints.run_record import RunRecord
from albert_tf.model.config import AlbertConfig
from albert_tf.model.modeling import AlbertModel
from albert_tf.training import admission, devices, replicas
from albert_tf.training.admission import InitialWeights
from albert_tf.training.devices import Devices
from albert_tf.training.evaluation import (
    CheckpointEvaluator,
    TrainingEvaluation,
    check_not_replaced,
)
from albert_tf.training.loop import Hook, Trainer
from albert_tf.training.preparation import log_plan, make_trainer
from albert_tf.training.report import ReportLog
from albert_tf.training.step import StepResult
from albert_tf.training.task import MeasuredTask, SettingsT, TrainedTask
from albert_tf.training.tracker import Tracker, make_tracker


class Run(Generic[SettingsT]):
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
        settings: SettingsT,
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
        self._model: AlbertModel | None = None
        self._evaluator: CheckpointEvaluator | None = None

    @classmethod
    @contextlib.contextmanager
    def open(cls, settings: SettingsT, opened: Devices | None = None) -> Iterator[Run[SettingsT]]:
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
        config = AlbertConfig.for_model(path)
        folder.current.check_config(config, path)
        with replicas.losses_interrupt(), contextlib.ExitStack() as stack:
            if opened is None:
                opened = stack.enter_context(devices.open_devices(settings))
            if opened.is_chief:
                stack.enter_context(folder.locked())
            tracker = stack.enter_context(make_tracker(settings))
            yield cls(settings, folder, config, opened, tracker)

    @functools.cached_property
    def trained(self) -> RunFolder | None:
        """Folder of the weights that the run starts with; see `RunSettings.trained_in`."""
        return self.settings.trained_in(self.folder)

    # What is trained.

    def admit(self, known: RunRecord, weights: InitialWeights | None = None) -> None:
        """Compares the run with the model that it starts with, and with the other workers.

        Resumed training needs the same settings, files, task and labels as before. Training that
        starts from an `init_checkpoint` only needs the same vocabulary and tokenization;
        evaluation, prediction and export also need the same task (a user's with its module) and
        labels, and the settings that the model's output depends on. Then the folder is one to write
        to, so that saving a model in it is finished, if a kill has interrupted that.

        Args:
            known: the files of vocabulary and training data, and the task, as far as they are
                known; and settings that the program has found out.
            weights: those of `init_checkpoint`, if several runs start with them.

        Raises:
            ValueError: something has changed, and `allow_changed_settings` is not set; or the
                workers differ.
        """
        settings = self.settings
        weights = weights or InitialWeights(settings.init_checkpoint)
        self.record = admission.make_record(settings, self.config, self._precision, known, weights)
        now = self.folder.current
        changes = admission.compare_record(self.record, now, settings.trained_in(now), settings)
        if self.is_chief:
            self.folder.finish_saving()
        start = run_record.describe_start(
            sys.argv, devices.describe(self.strategy, self._precision)
        )
        if changes:
            start["changed_settings"] = changes
        self.record = dataclasses.replace(self.record, start=start)
        if settings.do_train and self.folder.is_trained:
            record_comparison.report_surroundings(self.folder, self.record)
        if settings.do_train and replicas.is_multi_worker(self.strategy):
            names = self.record.files.keys() | record_comparison.ALWAYS_COMPARED
            if run_record.RECORD_METADATA in names:  # what only the first worker reads of records
                names -= {run_record.TRAINING_DATA, run_record.RECORD_CONTENTS}
            texts = self.record.texts(names | settings.names_for_training)
            replicas.check_same(self.strategy, texts | start["versions"])

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

    def train(
        self, task: TrainedTask[SettingsT], hooks: Sequence[Hook] = (), patience: int = 0
    ) -> None:
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
        trainer = make_trainer(task, settings, schedule, self.strategy, self.folder)
        log_plan(trainer, schedule, settings, task.count_examples(), settings.init_checkpoint)
        self.begin()
        if self.is_chief:
            self._forget_after(trainer.step)
            task.keep_files(self.folder)
        rows = replicas.local_rows(self.strategy, settings.train_batch_size)
        trainer.train(
            lambda step: task.batches(settings, step, rows),
            [*hooks, ProgressBar()],
            log,
            evaluation,
        )

    def _forget_after(self, step: int) -> None:
        """Removes the reports of steps that are trained again."""
        count = self.folder.forget_after(step)
        if count:
            text = "%s: training continues from step %d, so %d report(s) of later steps are removed"
            logging.info(text, self.folder.file(METRICS_FILE), step, count)

    def evaluate(self, task: TrainedTask[SettingsT]) -> list[Evaluation]:
        """Returns the evaluations of all checkpoints, after evaluating the remaining ones.

        Raises:
            ValueError: there is no checkpoint, or it belongs to a different model.
        """
        evaluations = self.evaluator(task).evaluate_all(self.settings.init_checkpoint)
        self.begin()
        return evaluations

    def evaluator(self, task: MeasuredTask) -> CheckpointEvaluator:
        """Returns the evaluator of the run, which is made once."""
        if self._evaluator is None:
            self._evaluator = CheckpointEvaluator(
                self.folder, task, self.evaluation_model(task), self._tracker
            )
        return self._evaluator

    def evaluation_model(self, task: MeasuredTask) -> AlbertModel:
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
            present = [containers.digest(checkpoint)]
            check_not_replaced(folder, folder.evaluations(present), checkpoint)
        elif self.settings.init_checkpoint:
            checkpoint = model_folder.find_checkpoint(self.settings.init_checkpoint)
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


class ProgressBar(Hook):
    """Shows a bar on terminals; elsewhere it is silent, as the log says the same."""

    def on_start(self, trainer: Trainer) -> None:
        """Opens the bar."""
        self._bar = tqdm(
            desc="training",
            total=trainer.num_train_steps,
            initial=trainer.step,
            unit="step",
            disable=None if trainer.is_chief else True,
        )

    def on_step(self, trainer: Trainer, result: StepResult) -> None:
        """Moves the bar."""
        self._bar.update()

    def on_end(self, trainer: Trainer) -> None:
        """Closes the bar."""
        self._bar.close()

"""Setup of a training program: devices, precision, output directory and trainer.

Every training program starts like this:

    files.ensure_directory(settings.output_dir, "--output_dir")
    with open_session(settings, config) as session:
        identity = session.identify(settings, contents)
        session.agree(identity)
        trainer = make_trainer(settings, task, schedule, session.strategy, identity=identity)
        log_plan(trainer, schedule, num_examples)
        session.begin_work()
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf
import tf_keras
from absl import logging

import albert_tf
from albert_tf import files, included, optimization
from albert_tf.checkpoints import containers, finding, loading, run_record, store
from albert_tf.checkpoints.run_record import TrainedWith
from albert_tf.config import AlbertConfig
from albert_tf.optimization import WarmUpPolynomialDecay
from albert_tf.settings import MODEL, TRAINING, describe, to_text
from albert_tf.training import cluster, devices, loop, precision, run_directory
from albert_tf.training.reporting import Reports
from albert_tf.training.settings import DeviceSettings, RunSettings
from albert_tf.training.step import StepOptions, TrainStep

CONFIG_NAME = "albert_config.json"


def read_config(output_dir: str, path: str) -> AlbertConfig:
    """Reads a model's config, and compares it with the config in the output directory.

    Args:
        output_dir: the output directory, which may not exist yet.
        path: `--albert_config_file`.

    Raises:
        ValueError: the directory contains the config of another model.
    """
    config = AlbertConfig.from_json_file(path)
    copy = os.path.join(output_dir, CONFIG_NAME)
    if not files.exists(copy):
        return config
    here = config.to_dict()
    there = AlbertConfig.from_json_file(copy).to_dict()
    differing = [
        f"{key} is {there.get(key)} there, but {here.get(key)} in {path}"
        for key in sorted(here.keys() | there.keys())
        if here.get(key) != there.get(key)
    ]
    if differing:
        raise ValueError(
            f"--output_dir={output_dir} contains another model ({copy}): {'; '.join(differing)}. "
            "Choose another folder."
        )
    return config


def keep_config(output_dir: str, config: AlbertConfig) -> None:
    """Writes the model's config to the output directory unless it exists."""
    copy = os.path.join(output_dir, CONFIG_NAME)
    if not files.exists(copy):
        config.to_json_file(copy)


@contextlib.contextmanager
def use_devices(
    settings: DeviceSettings, reason: str | None = None
) -> Iterator[tuple[tf.distribute.Strategy, str]]:
    """Context manager that sets up devices, threads and precision.

    Keras' precision policy is restored at the end of the block. The block must be entered before
    TensorFlow is initialized.

    Args:
        settings: the devices, threads and precision.
        reason: why the precision was chosen, for the log, if it was not by a flag or the hardware.

    Yields:
        The distribution strategy, and the precision: "float32", "bfloat16" or "float16".

    Raises:
        ValueError: the settings require devices that do not exist.
    """
    _set_threads(settings.threads)
    strategy = devices.make_strategy(settings)
    name, why = precision.resolve(settings.precision)
    policy = tf_keras.mixed_precision.global_policy()
    precision.apply(name)
    device = f"{devices.describe(strategy)}, {name}: {reason or why}{precision.difference(name)}"
    log_lines({"device": device})
    try:
        yield strategy, name
    finally:
        tf_keras.mixed_precision.set_global_policy(policy)


def _set_threads(threads: int | None) -> None:
    if not threads or threads == tf.config.threading.get_intra_op_parallelism_threads():
        return
    try:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
    except RuntimeError:
        raise ValueError(
            f"--threads={threads}: TensorFlow is already initialized, so its number of threads "
            "can no longer be changed. Set it in a new process."
        ) from None


def describe_identity(
    run: RunSettings, config: AlbertConfig, precision: str, contents: TrainedWith
) -> TrainedWith:
    """Returns the identity of a run.

    Args:
        run: the settings of the run.
        config: the model's config.
        precision: the compute dtype.
        contents: fingerprints and paths of vocabulary and training data, as far as they are known.

    Raises:
        FileNotFoundError, ValueError: `init_checkpoint` does not exist or is invalid.
    """
    fields = {field.name: field for field in describe(type(run))}
    texts = {name: to_text(getattr(run, name), field) for name, field in fields.items()}
    decisive = {name for name, field in fields.items() if field.decides in (TRAINING, MODEL)}
    identity = {name: texts[name] for name in sorted(decisive)}
    identity |= {run_record.PRECISION: precision, run_record.INIT_CHECKPOINT: "none"}
    paths = {}
    if run.init_checkpoint:
        path = containers.find_checkpoint(run.init_checkpoint)
        identity[run_record.INIT_CHECKPOINT] = f"digest {containers.digest(path)}"
        paths[run_record.INIT_CHECKPOINT] = run_record.absolute(path)
    others = {
        name: texts[name]
        for name, field in fields.items()
        if name not in decisive | {"allow_changed_settings"} and field.is_recorded
    }
    described = TrainedWith(identity | contents.identity, paths | contents.paths, others)
    return described.adding_config(config, included.config_file(run.albert_config_file or ""))


def check_identity(run: RunSettings, identity: TrainedWith) -> run_record.Changes:
    """Compares a run with the training of the model in its folder or of `init_checkpoint`.

    Resumed training needs the same identity as before. Training that starts from an
    `init_checkpoint` only needs the same vocabulary and tokenization; evaluation, prediction and
    export also need the same task (a user's with its module) and labels, and the settings that the
    model's output depends on.

    Args:
        run: the settings of the run; with `allow_changed_settings`, changes are only logged.
        identity: the identity of the run, as returned by `describe_identity`.

    Returns:
        The changes.

    Raises:
        ValueError: something has changed. The message has a table of the changes.
    """
    step = _newest_step(run.output_dir)
    allows_changes = run.allow_changed_settings
    if run.do_train and step is not None:
        changes = run_record.check_training(run.output_dir, step, identity, allows_changes)
        if changes:
            return changes
    folder = weights_folder(run)
    names = set(run_record.OF_TEXT)
    if not run.do_train:
        names |= {run_record.TASK, run_record.TASK_MODULE, run_record.LABELS}
        names |= set(run.names_for_model)
    return run_record.check_model(folder, identity, names, allows_changes) if folder else {}


def weights_folder(run: RunSettings) -> str | None:
    """Returns the folder of the weights that a run starts with; None for random weights.

    This is the run's own folder if it contains a trained model, else that of `init_checkpoint`.
    """
    step = _newest_step(run.output_dir)
    if step or (step is not None and not run.do_train):
        return run.output_dir
    return finding.folder_of(run.init_checkpoint) if run.init_checkpoint else None


def warn_of_vocabulary(run: RunSettings, entries: int, vocab_size: int) -> None:
    """Warns if the vocabulary's size differs from that of a model with unknown vocabulary.

    Args:
        run: settings of the run that starts with the model's weights.
        entries: number of entries in the vocabulary of the run.
        vocab_size: `vocab_size` of the model's config.
    """
    folder = weights_folder(run)
    if folder is None or entries == vocab_size:
        return
    recorded = run_record.read(folder)
    if recorded is not None and run_record.VOCABULARY in recorded.identity:
        return
    logging.warning(
        "The vocabulary has %d entries, but the model has vocab_size=%d. A pre-trained model is "
        "useless with a vocabulary other than the one it was trained with: use the vocabulary that "
        "came with %s.",
        entries,
        vocab_size,
        folder,
    )


def _newest_step(output_dir: str) -> int | None:
    """Returns the step that a run is resumed from; None if there is no checkpoint."""
    steps = list(store.list_resumable(output_dir))
    if not steps and files.exists(os.path.join(output_dir, store.BEST + ".index")):
        return 1  # any step after 0: the model has been trained
    return steps[-1] if steps else None


class Session:
    """A run with its devices and its locked output directory.

    Args:
        settings: settings of the run.
        config: the model's config.
        strategy: the distribution strategy.
        precision: "float32", "bfloat16" or "float16".

    Attributes:
        settings, config, strategy, precision: the arguments.
        is_chief: whether this process writes files; of several workers, only the first one does.
    """

    def __init__(
        self,
        settings: RunSettings,
        config: AlbertConfig,
        strategy: tf.distribute.Strategy,
        precision: str,
    ) -> None:
        self.settings = settings
        self.config = config
        self.strategy = strategy
        self.precision = precision
        self.is_chief = devices.is_chief(strategy)
        self._changes: dict[str, Any] = {}
        self._start: dict[str, Any] = {}  # its description, once it has begun
        self._described: set[str] = set()  # folders with this description

    def identify(self, run: RunSettings, contents: TrainedWith) -> TrainedWith:
        """Returns the identity of a run, after comparing it with the model that it starts with.

        Args:
            run: settings of this run, or of one of the runs that it consists of.
            contents: fingerprints of vocabulary and training data, as far as they are known.

        Raises:
            ValueError: the model in the run's folder, or `init_checkpoint`, was trained with
                another identity, and `allow_changed_settings` is not set.
        """
        read_config(run.output_dir, run.albert_config_file or "")
        identity = describe_identity(run, self.config, self.precision, contents)
        changes = check_identity(run, identity)
        if changes:
            self._changes[run.output_dir] = changes
        return identity

    def agree(self, identity: TrainedWith | None) -> None:
        """Compares what the workers are going to train, if there are several.

        Args:
            identity: identity of the run, as returned by `identify`; None skips the comparison.

        Raises:
            ValueError: the workers differ.
        """
        if devices.is_multi_worker(self.strategy) and identity is not None:
            versions = {"albert_tf": albert_tf.__version__, "tensorflow": tf.__version__}
            cluster.check_same(self.strategy, identity.identity | versions)

    def begin_work(self, run: RunSettings | None = None) -> None:
        """Writes the files that describe the run, once it is known to be valid.

        A run that fails before that leaves no files that would be in the way of the next one.

        Args:
            run: one of the runs of a sweep, which has a folder of its own; None for no sweep.
        """
        if not self.is_chief:
            return
        if not self._start:
            self._start = run_record.describe_start(
                command=sys.argv,
                settings=self.settings.to_dict(),
                config=self.config.to_dict(),
                device={"devices": devices.describe(self.strategy), "precision": self.precision},
                changes=self._changes,
            )
            run_record.add_start(self.settings.output_dir, self._start)
        for described in (self.settings, run or self.settings):
            if described.output_dir not in self._described:
                self._described.add(described.output_dir)
                keep_config(described.output_dir, self.config)
                start = self._start | {"flags": described.to_dict()}
                run_record.write_start(described.output_dir, start)


@contextlib.contextmanager
def open_session(settings: RunSettings, config: AlbertConfig) -> Iterator[Session]:
    """Context manager that sets up devices like `use_devices` and locks `output_dir`.

    Only the first of several workers, the chief, locks and writes to the directory.

    Args:
        settings: settings of the run; `output_dir` must exist.
        config: the model's config.

    Yields:
        The session.

    Raises:
        ValueError: another process uses `output_dir`, or the settings require devices that do not
            exist.
        InterruptedRunError: another worker was lost.
    """
    with cluster.losses_interrupt(), contextlib.ExitStack() as stack:
        strategy, precision_name = stack.enter_context(use_devices(settings))
        if devices.is_chief(strategy):
            stack.enter_context(run_directory.lock(settings.output_dir))
        yield Session(settings, config, strategy, precision_name)


def make_trainer(
    settings: RunSettings,
    task: Any,
    schedule: WarmUpPolynomialDecay,
    strategy: tf.distribute.Strategy,
    batch_signature: dict[str, tf.TensorSpec] | None = None,
    init_from_group0: bool = False,
    freeze_encoder: bool = False,
    identity: TrainedWith | None = None,
    reports: Reports | None = None,
) -> loop.Trainer:
    """Returns a trainer that resumes from the newest checkpoint of `output_dir`, or starts anew.

    Args:
        settings: settings of the run.
        task: as in `TrainStep`, with a method `build_model`.
        schedule: the learning rate schedule.
        strategy: the strategy of the session.
        batch_signature: as in `TrainStep`.
        init_from_group0: as in `load_checkpoint`, for `init_checkpoint`.
        freeze_encoder: whether to train the head only.
        identity: as in `Trainer`.
        reports: as in `Trainer`.

    Raises:
        ValueError: a checkpoint in `output_dir`, or `init_checkpoint`, does not match the model;
            the batch size is not divisible by the devices; or the warm-up starts at a later step.
    """
    devices.check_batch_size(
        strategy, settings.train_batch_size, settings.gradient_accumulation_steps
    )
    options = StepOptions(
        seed=settings.seed,
        micro_batches=settings.gradient_accumulation_steps,
        clip_per_replica=settings.clip_per_replica,
        jit_compile=_compiles(settings, strategy),
    )
    tf_keras.utils.set_random_seed(settings.seed)
    with strategy.scope():
        model = task.build_model()
        model.encoder.recompute = settings.gradient_checkpointing
        model.encoder.trainable = not freeze_encoder
        optimizer = optimization.create_optimizer(
            settings.optimizer, schedule, settings.weight_decay
        )
        loss_scale = precision.LossScale() if precision.current() == "float16" else None
    take_step = TrainStep(model, task, optimizer, options, strategy, batch_signature, loss_scale)
    trainer = loop.Trainer(take_step, settings, schedule.num_train_steps, identity, reports)
    is_resumed = trainer.restore_latest()
    _check_warm_up(schedule, trainer.step)
    if settings.init_checkpoint and not is_resumed:
        loading.load_checkpoint(
            model, settings.init_checkpoint, settings.allow_partial_init, init_from_group0
        )
    return trainer


def log_lines(lines: Mapping[str, str]) -> None:
    """Logs a line for each entry, with aligned texts."""
    for name, text in lines.items():
        logging.info("%-9s %s", name, text)


def log_plan(trainer: loop.Trainer, schedule: WarmUpPolynomialDecay, num_examples: int) -> None:
    """Logs what is going to be trained, on what, and how.

    Args:
        trainer: the trainer.
        schedule: its learning rate schedule.
        num_examples: number of training examples.
    """
    settings = trainer.settings
    model = trainer.take_step.model
    num_weights = sum(variable.shape.num_elements() for variable in model.variables)
    num_frozen = sum(variable.shape.num_elements() for variable in model.non_trainable_variables)
    start = f"weights of {settings.init_checkpoint}" if settings.init_checkpoint else ""
    if trainer.step:
        start = f"resumed at step {trainer.step}"
    batch_size = settings.train_batch_size
    warm_up = f" after {schedule.num_warmup_steps} steps of warm-up"
    epoch = num_examples / batch_size
    parts = trainer.take_step.options.micro_batches
    log_lines(
        {
            "model": f"{num_weights:,} parameters"
            + (f", {num_frozen:,} of them not trained" if num_frozen else "")
            + f", {start or 'random weights'}",
            "data": f"{num_examples:,} examples, {epoch:.6g} steps per epoch",
            "batch": f"{batch_size} examples" + (f", in {parts} parts" if parts > 1 else ""),
            "schedule": f"{trainer.num_train_steps} steps, {trainer.num_train_steps / epoch:.3g} "
            f"epochs; {settings.optimizer}, learning rate {schedule.learning_rate:g}"
            + (warm_up if schedule.num_warmup_steps else ", no warm-up"),
            "output": settings.output_dir,
        }
    )


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

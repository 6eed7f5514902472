"""Prepares the trainer of a run: model, optimizer, step, and the state to start from; its plan."""

from __future__ import annotations

import tensorflow as tf
from absl import logging

from albert_tf.checkpoints import loading
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.model import initialization, optimization
from albert_tf.model.schedules import WarmUpPolynomialDecay
from albert_tf.tensorflow_releases import set_random_seed
from albert_tf.training import replicas
from albert_tf.training.devices import current_precision
from albert_tf.training.gpu_kernels import usable_kernels
from albert_tf.training.loop import Trainer
from albert_tf.training.loss_scale import LossScale
from albert_tf.training.settings import TrainingSettings
from albert_tf.training.step import StepOptions, TrainStep
from albert_tf.training.task import SettingsT, TrainedTask


def make_trainer(
    task: TrainedTask[SettingsT],
    settings: SettingsT,
    schedule: WarmUpPolynomialDecay,
    strategy: tf.distribute.Strategy,
    folder: RunFolder,
) -> Trainer:
    """Returns a trainer that resumes from the newest checkpoint of the folder, if any.

    Args:
        task: the task.
        settings: the settings of the run.
        schedule: the learning rate schedule.
        strategy: the distribution strategy.
        folder: the folder of the run.

    Raises:
        ValueError: a checkpoint in the folder, or `init_checkpoint`, does not match the model; the
            batch size is not divisible by the devices; or the warm-up starts at a later step.
    """
    replicas.check_batch_size(
        strategy, settings.train_batch_size, settings.gradient_accumulation_steps
    )
    with initialization.deferred():
        take_step = make_step(
            task,
            settings,
            schedule,
            strategy,
            recompute=settings.gradient_checkpointing,
            jit_compile=is_compiled(settings.jit_compile, strategy),
            fused_attention=settings.fused_attention,
        )
        trainer = Trainer(take_step, settings, schedule.num_train_steps, folder)
        is_resumed = trainer.restore_latest()
        check_warm_up(schedule, trainer.step)
        if settings.init_checkpoint and not is_resumed:
            loading.load_checkpoint(
                trainer.model,
                settings.init_checkpoint,
                settings.allow_partial_init,
                task.init_from_group0,
            )
    return trainer


def make_step(
    task: TrainedTask[SettingsT],
    settings: TrainingSettings,
    schedule: WarmUpPolynomialDecay,
    strategy: tf.distribute.Strategy,
    *,
    recompute: bool,
    jit_compile: bool,
    fused_attention: bool,
) -> TrainStep:
    """Returns the training step of a model with random weights.

    Args:
        task: the task.
        settings: how a step is taken.
        schedule: the learning rate schedule.
        strategy: the distribution strategy.
        recompute: whether activations are computed again in the backward pass.
        jit_compile: whether the step is compiled with XLA.
        fused_attention: whether a compiled step has the kernels for NVIDIA GPUs that they take.
    """
    set_random_seed(settings.seed)
    with strategy.scope():
        model = task.build_model()
        model.encoder.recompute = recompute
        model.encoder.trainable = not task.freezes_encoder
        optimizer = optimization.create_optimizer(
            settings.optimizer, schedule, settings.weight_decay
        )
        loss_scale = LossScale() if current_precision() == "float16" else None
    may_use_kernels = fused_attention and jit_compile
    options = StepOptions(
        seed=settings.seed,
        micro_batches=settings.gradient_accumulation_steps,
        clip_per_replica=settings.clip_per_replica,
        jit_compile=jit_compile,
        gpu_kernels=usable_kernels(model) if may_use_kernels else frozenset(),
    )
    signature = task.batch_signature()
    return TrainStep(model, task, optimizer, options, strategy, signature, loss_scale)


def is_compiled(jit_compile: str, strategy: tf.distribute.Strategy) -> bool:
    """Returns whether the training step is compiled with XLA.

    Args:
        jit_compile: the setting: "true", "false" or "auto".
        strategy: the distribution strategy.
    """
    if jit_compile != "auto":
        return jit_compile == "true"
    return not replicas.is_tpu(strategy) and bool(tf.config.list_physical_devices("GPU"))


def check_warm_up(schedule: WarmUpPolynomialDecay, step: int) -> None:
    """Checks that the warm-up has started at the first step, and warns if training ends before it.

    Unlike Google's program, because before the warm-up its learning rate is negative.

    Args:
        schedule: the learning rate schedule.
        step: number of steps before training.

    Raises:
        ValueError: the warm-up starts later.
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


def log_plan(
    trainer: Trainer,
    schedule: WarmUpPolynomialDecay,
    settings: TrainingSettings,
    num_examples: int,
    init_checkpoint: str | None,
) -> None:
    """Logs what is going to be trained, on what, and how.

    Args:
        trainer: the trainer.
        schedule: the learning rate schedule.
        settings: how a step is taken.
        num_examples: number of training examples in an epoch.
        init_checkpoint: where the weights of a new run come from; None for random weights.
    """
    model = trainer.model
    num_weights = sum(variable.shape.num_elements() for variable in model.variables)
    num_frozen = sum(x.shape.num_elements() for x in model.non_trainable_variables)
    frozen = f", {num_frozen:,} of them not trained" if num_frozen else ""
    start = f"weights of {init_checkpoint}" if init_checkpoint else ""
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
        "output": trainer.folder.path,
    }
    for name, text in lines.items():
        logging.info("%-9s %s", name, text)

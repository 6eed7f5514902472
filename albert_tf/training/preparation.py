"""Prepares the trainer of a run: its model, optimizer and step, and the state to start from."""

from __future__ import annotations

import tensorflow as tf

from albert_tf.checkpoints import loading
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.model import initialization, optimization
from albert_tf.model.schedules import WarmUpPolynomialDecay
from albert_tf.tensorflow_releases import set_random_seed
from albert_tf.training import plan, replicas
from albert_tf.training.gpu_kernels import usable_kernels
from albert_tf.training.loop import Trainer
from albert_tf.training.loss_scale import LossScale
from albert_tf.training.precision import current_precision
from albert_tf.training.settings import TrainingSettings
from albert_tf.training.step import StepOptions, TrainStep
from albert_tf.training.task import SettingsT, Task


def make_trainer(
    task: Task[SettingsT],
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
        plan.check_warm_up(schedule, trainer.step)
        if settings.init_checkpoint and not is_resumed:
            loading.load_checkpoint(
                trainer.model,
                settings.init_checkpoint,
                settings.allow_partial_init,
                task.init_from_group0,
            )
    return trainer


def make_step(
    task: Task[SettingsT],
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

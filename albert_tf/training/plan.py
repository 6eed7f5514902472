"""The plan of a training run: checked, and logged before the first step."""

from __future__ import annotations

from absl import logging

from albert_tf.model.schedules import WarmUpPolynomialDecay
from albert_tf.training.loop import Trainer
from albert_tf.training.settings import TrainingSettings


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

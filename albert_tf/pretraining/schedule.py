"""The learning rate of pre-training: warm-up, polynomial decay, and the square-root rule."""

from __future__ import annotations

import math

from absl import logging

from albert_tf.model.optimization import WarmUpPolynomialDecay
from albert_tf.pretraining.settings import Settings

PAPER_LEARNING_RATE = 0.00176  # with LAMB; section 4.1 of the ALBERT paper
PAPER_BATCH_SIZE = 4096
# At a quarter of the paper's batch size, the square-root rule halves the learning rate.
MUCH_SMALLER = 4


def make_schedule(settings: Settings) -> WarmUpPolynomialDecay:
    """Returns the learning rate schedule of a run."""
    return WarmUpPolynomialDecay(
        choose_learning_rate(settings),
        settings.num_train_steps,
        settings.num_warmup_steps,
        settings.start_warmup_step,
        settings.poly_power,
    )


def choose_learning_rate(settings: Settings) -> float:
    """Returns the peak learning rate, scaled to the batch size if the settings ask for it.

    Otherwise, logs a warning if the paper's learning rate is used with a much smaller batch size.
    """
    rate = settings.learning_rate
    batch_size = settings.train_batch_size
    scaled = scaled_learning_rate(rate, batch_size)
    if settings.scale_learning_rate:
        logging.info("--learning_rate=%g scaled to the batch size: %g", rate, scaled)
        return scaled
    is_papers = math.isclose(rate, PAPER_LEARNING_RATE, rel_tol=1e-3)
    if is_papers and batch_size * MUCH_SMALLER <= PAPER_BATCH_SIZE:
        logging.warning(
            "--learning_rate=%g is meant for batches of %d, but --train_batch_size is %d. By the "
            "square-root rule, the learning rate should be %.3g: set --scale_learning_rate, or "
            "--learning_rate=%.3g.",
            rate,
            PAPER_BATCH_SIZE,
            batch_size,
            scaled,
            scaled,
        )
    return rate


def scaled_learning_rate(rate: float, batch_size: int) -> float:
    """Returns rate · sqrt(batch_size / 4096), by the square-root rule of the LAMB paper.

    Args:
        rate: learning rate for batches of 4096 examples.
        batch_size: number of examples per step, over all devices.
    """
    return rate * math.sqrt(batch_size / PAPER_BATCH_SIZE)

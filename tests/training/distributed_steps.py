"""A program for tests: some training steps on a tiny model, on the devices that its flags name.

    python -m tests.training.distributed_steps weights.npy \
        '{"distribution": "mirrored", "num_devices": 2}' \
        '{"optimizer": "lamb", "micro_batches": 1}'

A process of its own, since the devices of one are settled when TensorFlow first computes. Writes
the weights, and what the last step returned, for each case.
"""

from __future__ import annotations

import json
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

from albert_tf.checkpoints.weight_names import variable_name
from albert_tf.model import optimization
from albert_tf.model.config import AlbertConfig
from albert_tf.model.tensorflow_internals import is_inside_xla
from albert_tf.pretraining.task import PretrainingTask
from albert_tf.tensorflow_releases import set_random_seed
from albert_tf.training import devices, replicas, strategies
from albert_tf.training.loss_scale import LossScale
from albert_tf.training.settings import DeviceSettings
from albert_tf.training.step import StepOptions, TrainStep
from tests import conftest

ROWS, STEPS = 12, 20
CONFIG = AlbertConfig(**conftest.TINY_SHAPE | {"num_hidden_layers": 2, "num_hidden_groups": 1})


def batch_of(step):
    """Returns rows that differ so much in masked words that a mean of means would be noticed."""
    rng = np.random.default_rng(step)
    length, words = conftest.SEQ_LENGTH, conftest.MAX_PREDICTIONS
    counts = rng.integers(1, words + 1, ROWS)
    counts[: ROWS // 2] = 1
    return {
        "input_ids": rng.integers(5, 97, (ROWS, length)).astype(np.int32),
        "input_mask": np.ones((ROWS, length), np.int32),
        "segment_ids": np.tile(np.arange(length, dtype=np.int32) // 6, (ROWS, 1)),
        "masked_lm_positions": np.tile(np.arange(words, dtype=np.int32), (ROWS, 1)),
        "masked_lm_ids": rng.integers(5, 97, (ROWS, words)).astype(np.int32),
        "masked_lm_weights": (np.arange(words) < counts[:, None]).astype(np.float32),
        "next_sentence_labels": rng.integers(0, 2, (ROWS, 1)).astype(np.int32),
    }


def pretraining_task(config=CONFIG):
    return PretrainingTask(config, conftest.SEQ_LENGTH, conftest.MAX_PREDICTIONS)


def make_step(
    task=None,
    strategy=None,
    optimizer="lamb",
    precision_name="float32",
    rate=0.01,
    recompute=False,
    **options,
):
    """Returns a training step of a tiny model, for pre-training unless a task is given."""
    strategy = strategy or tf.distribute.get_strategy()
    devices.apply_precision(precision_name)
    set_random_seed(3)
    task = task or pretraining_task()
    with strategy.scope():
        model = task.build_model()
        model.encoder.recompute = recompute
        schedule = optimization.WarmUpPolynomialDecay(rate, 2 * STEPS, 4)
        made = optimization.create_optimizer(optimizer, schedule)
        made.slot_variables(list(model.trainable_variables))
    loss_scale = LossScale() if precision_name == "float16" else None
    return TrainStep(model, task, made, StepOptions(**options), strategy, loss_scale=loss_scale)


def run_case(strategy=None, **options):
    """Returns the weights and the result of the last step after STEPS steps with these options."""
    step = make_step(strategy=strategy, **options)
    is_compiled, compute_loss = set(), step.task.loss

    def loss(*args):
        is_compiled.add(is_inside_xla())
        return compute_loss(*args)

    step.task.loss = loss
    rows = replicas.local_rows(step.strategy, ROWS)
    for number in range(STEPS):
        batch = {name: tf.constant(value[rows]) for name, value in batch_of(number).items()}
        result = step(batch)
    assert is_compiled == {bool(options.get("jit_compile"))}
    values = result._asdict() | result.metrics
    del values["metrics"]
    found = {f"sums/{name}": value.numpy() for name, value in values.items()}
    return found | {variable_name(v): v.numpy() for v in step.model.variables}


def main(path, settings, *cases):
    """Runs the cases one after the other."""
    strategy = strategies.make_strategy(DeviceSettings(**json.loads(settings)))
    np.save(path, [run_case(strategy, **json.loads(case)) for case in cases])


if __name__ == "__main__":
    main(*sys.argv[1:])

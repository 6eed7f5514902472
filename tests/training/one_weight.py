"""A task with a model of one weight, which is trained in milliseconds."""

from __future__ import annotations

import itertools
import types

import tensorflow as tf

from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.model import optimization
from albert_tf.model.schedules import WarmUpPolynomialDecay
from albert_tf.training.loop import Trainer
from albert_tf.training.report import ReportLog
from albert_tf.training.settings import RunSettings
from albert_tf.training.step import TrainStep
from albert_tf.training.task import TrainedTask
from albert_tf.training.tracker import Tracker

METRIC = "eval_accuracy"


class OneWeight(tf.Module):
    """A model whose output is its weight times the input."""

    def __init__(self):
        super().__init__()
        self.encoder = types.SimpleNamespace()
        with tf.name_scope("bert/encoder/transformer/group_0/inner_group_0/LayerNorm"):
            self.weight = tf.Variable([0.25], name="beta")

    def __call__(self, batch, **_):
        return self.weight * batch["x"]


class OneWeightTask(TrainedTask):
    """Fits the weight to 1; its metric in evaluation is the weight.

    Attributes:
        seen: the values that `compute_metrics` has returned.
        data: what it is measured on.
    """

    selection_metric = METRIC

    def __init__(
        self, num_train_steps=7, num_warmup_steps=0, start_warmup_step=0, learning_rate=0.1
    ):
        self.learning_rates = WarmUpPolynomialDecay(
            learning_rate, num_train_steps, num_warmup_steps, start_warmup_step
        )
        self.seen, self.data = [], "dev"

    def build_model(self):
        return OneWeight()

    def loss_weights(self, batch):
        return tf.reduce_sum(tf.ones_like(batch["x"]))[None]

    def loss(self, outputs, batch, weights=None):
        weights = self.loss_weights(batch) if weights is None else weights
        errors = tf.abs(outputs - 1.0)
        loss = tf.reduce_sum(errors**2) / weights[0]
        return loss, {"error": (tf.reduce_sum(errors), weights[0])}

    def count_examples(self):
        return 21

    def schedule(self, settings):
        return self.learning_rates

    def batches(self, settings, step, rows):
        for number in itertools.count(step):
            yield {"x": tf.fill([rows.stop - rows.start], number % 3 + 0.5)}

    def measured_on(self):
        return self.data

    def compute_metrics(self, model, checkpoint):
        value = float(model.weight[0])
        self.seen.append(round(value, 3))
        return {METRIC: value, "eval_loss": 1.0}

    def write_evaluations(self, folder, evaluations):
        with open(folder.file("eval_results.txt"), "w") as stream:
            stream.writelines(f"{e.step} {e.metrics[METRIC]}\n" for e in evaluations)


def make_trainer(folder, task=None, loss_scale=None, **changes):
    """Returns a trainer of one weight, at step 0; `changes` are settings."""
    task = task or OneWeightTask()
    values = {"output_dir": str(folder), "train_batch_size": 6, "save_checkpoints_steps": 3}
    settings = RunSettings(**values | changes)
    optimizer = optimization.create_optimizer("adamw", task.learning_rates)
    step = TrainStep(task.build_model(), task, optimizer, loss_scale=loss_scale)
    return Trainer(step, settings, task.learning_rates.num_train_steps, RunFolder(str(folder)))


def batches_of(trainer):
    """The batches of the trainer's task, as a function of the step."""
    task = trainer.take_step.task
    return lambda step: task.batches(trainer.settings, step, slice(0, 6))


def train(trainer, *hooks, batches=None, evaluation=None):
    """Trains with the hooks of a user; returns step → line of metrics."""
    with Tracker(trainer.folder.path) as tracker:
        log = ReportLog(trainer.folder, tracker)
        trainer.train(batches or batches_of(trainer), hooks, log, evaluation)
    return {row["step"]: row for row in trainer.folder.metrics()}

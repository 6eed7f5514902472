"""Hooks: what is logged of which steps, the speed, and what users add."""

from __future__ import annotations

import math
import time
import types
from typing import ClassVar

import pytest
import tensorflow as tf
from absl import logging

from albert_tf import optimization
from albert_tf.checkpoints import store
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.training import progress
from albert_tf.training.evaluation import Evaluator
from albert_tf.training.hooks import Hook, LogMetrics, SaveCheckpoints, every
from albert_tf.training.loop import Trainer, Untimed
from albert_tf.training.settings import RunSettings
from albert_tf.training.step import TrainStep
from albert_tf.training.tracking import Tracker
from tests.script_runner import interrupted, killed_at, stopped_at
from tests.training.one_weight import OneWeightTask


def train(folder, hooks=(), task=None, batches=None, **changes):
    """Trains one weight with the user's hooks and those of a run, and returns lines by step."""
    task = task or OneWeightTask()
    settings = RunSettings(output_dir=str(folder), train_batch_size=6, **changes)
    optimizer = optimization.create_optimizer("adamw", task.learning_rates)
    take_step = TrainStep(task.build_model(), task, optimizer)
    trainer = Trainer(take_step, settings, task.learning_rates.num_train_steps)
    with Tracker(str(folder)) as tracker:
        trainer.train(
            batches or (lambda step: task.batches(settings, step, slice(0, 6))),
            [*hooks, LogMetrics(tracker), SaveCheckpoints()],
        )
    return lines_of(folder)


def lines_of(folder):
    return {row["step"]: row for row in RunFolder(str(folder)).metrics()}


def test_what_a_hook_logs_is_in_the_line_of_the_same_step(tmp_path):
    def log_weight(trainer, result):
        trainer.log(weight=trainer.model.weight[0], number=trainer.step)

    lines = train(tmp_path, [every(3, log_weight)], log_steps=3)
    assert {step: row.get("number") for step, row in lines.items()} == {3: 3.0, 6: 6.0, 7: None}
    for step in (3, 6):
        assert 0.25 < lines[step]["weight"] < 1
    # What is logged at another step is in the next line.
    (tmp_path / "other").mkdir()
    lines = train(tmp_path / "other", [every(2, log_weight)], log_steps=3)
    assert {step: row.get("number") for step, row in lines.items()} == {3: 2.0, 6: 6.0, 7: None}


class Perplexity(OneWeightTask):
    derived: ClassVar = {"perplexity": lambda means: math.exp(means["loss"])}


def test_a_derived_metric_is_computed_of_means_in_training_and_evaluation(tmp_path):
    task = Perplexity()
    single = {step: row["loss"] for step, row in train(tmp_path, task=task, log_steps=1).items()}
    (tmp_path / "other").mkdir()
    for step, row in train(tmp_path / "other", task=task, log_steps=3).items():
        mean = sum(single[n] for n in range(max(1, step - 2), step + 1) if (n > 6) == (step > 6))
        assert row["loss"] == pytest.approx(mean / (3 if step < 7 else 1), rel=1e-6)
        assert row["perplexity"] == pytest.approx(math.exp(row["loss"]))
    dataset = tf.data.Dataset.from_tensor_slices({"x": [1.0, 2.0, 3.0]}).batch(2)
    found = Evaluator(task.build_model(), task, dataset).evaluate()
    assert found["loss"] > 0
    assert found["perplexity"] == math.exp(found["loss"])


@pytest.mark.parametrize("name", ["loss", "step", "learning_rate"])
def test_metrics_with_the_names_of_every_run_are_refused(tmp_path, name):
    class Taken(OneWeightTask):
        def loss(self, outputs, batch, weights=None):
            loss, sums = super().loss(outputs, batch, weights)
            return loss, {name: sums["error"]}

    class Derived(OneWeightTask):
        derived: ClassVar = {name: lambda means: 1.0}

    logged = every(1, lambda trainer, result: trainer.log(**{name: 1.0}))
    for hooks, task in (([], Taken()), ([], Derived()), ([logged], None)):
        with pytest.raises(ValueError, match=f"'{name}' has the name of a metric of every run"):
            train(tmp_path, hooks, task)
        assert not (tmp_path / "metrics.jsonl").exists()


class Recorder(Hook):
    """Records its calls."""

    def __init__(self):
        self.calls = []

    def on_start(self, trainer):
        self.calls.append("start")

    def on_step(self, trainer, result):
        self.calls.append(trainer.step)

    def on_save(self, trainer, prefix):
        self.calls.append(prefix.rpartition("/")[2])

    def on_end(self, trainer):
        self.calls.append("end")


@pytest.mark.parametrize(
    ("how", "calls"),
    [
        (None, [1, 2, 3, "model.ckpt-3", 4, 5, 6, "model.ckpt-6", 7, "model.ckpt-7"]),
        (killed_at(4), [1, 2, 3, "model.ckpt-3", 4]),
        (stopped_at(4), [1, 2, 3, "model.ckpt-3", 4]),
    ],
)
def test_hooks_are_called_in_order_and_at_the_end_also_after_an_error(tmp_path, how, calls):
    recorder = Recorder()
    if how is None:
        train(tmp_path, [recorder], save_checkpoints_steps=3)
    else:
        with interrupted():
            train(tmp_path, [recorder, how], save_checkpoints_steps=3)
    assert recorder.calls == ["start", "model.ckpt-0", *calls, "end"]


def test_a_short_run_logs_ten_times_and_before_each_checkpoint(tmp_path):
    assert list(train(tmp_path, task=OneWeightTask(25), save_checkpoints_steps=9)) == [
        *(2, 4, 6, 8, 9, 10, 12, 14, 16, 18, 20, 22, 24, 25)
    ]


def test_a_line_has_the_rate_of_its_last_update_and_the_metrics_of_the_task(tmp_path):
    task = OneWeightTask(7, 2)
    for step, row in train(tmp_path, task=task, log_steps=2).items():
        assert row["learning_rate"] == pytest.approx(float(task.learning_rates(step - 1)))
        assert {"loss", "error", "gradient_norm"} < row.keys()


def test_the_speed_leaves_out_compilation_and_saving(tmp_path, monkeypatch):
    now, durations = [100.0], iter((60, 0.5, 0.5, 30, 0.5, 0.5))
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    take, save = TrainStep.__call__, store.save_checkpoint

    def take_slowly(*arguments):
        now[0] += next(durations)
        return take(*arguments)

    def save_slowly(*arguments):
        now[0] += 7
        save(*arguments)

    monkeypatch.setattr(TrainStep, "__call__", take_slowly)
    monkeypatch.setattr(store, "save_checkpoint", save_slowly)
    batches = [{"x": tf.ones(size), "input_mask": tf.ones(14)} for size in (6, 6, 6, 4, 6, 6)]
    lines = train(
        tmp_path,
        task=OneWeightTask(6),
        batches=lambda step: iter(batches),
        log_steps=1,
        save_checkpoints_steps=3,
    )
    # Steps 1 and 4 are compiled, for another shape each.
    speeds = [row.get("examples_per_second") for row in lines.values()]
    assert speeds == [None, 12.0, 12.0, None, 12.0, 12.0]
    assert [row.get("tokens_per_second") for row in lines.values()][:2] == [None, 28.0]


def test_a_line_of_the_log_has_the_main_metrics(tmp_path, monkeypatch):
    now, said = [100.0], []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(logging, "info", lambda text, *args: said.append(text % args))
    means = {"gradient_norm": 2.0, "loss": 6.274, "masked_lm_accuracy": 0.108, "skipped_steps": 2.0}
    means |= {"masked_lm_loss": 5.6, "sentence_order_accuracy": 0.614, "sentence_order_loss": 0.674}
    trainer = types.SimpleNamespace(
        step=400,
        num_train_steps=2000,
        untimed=Untimed(),
        settings=RunSettings(output_dir=str(tmp_path), train_batch_size=246),
        is_saving=False,
        is_chief=True,
        values={},
        optimizer=types.SimpleNamespace(learning_rate=tf.constant(0.25)),
        folder=RunFolder(str(tmp_path)),
        take_means=lambda: (means, 3500.0),
    )
    with Tracker(str(tmp_path)) as tracker:
        hook = LogMetrics(tracker)
        hook.on_step(trainer, None)
        now[0] += 100
        trainer.step = 500
        hook.on_step(trainer, None)
    metrics = "loss 6.27  mlm_acc 0.108  skipped_steps 2.00  sop_acc 0.614  lr 2.5e-01  gnorm 2"
    assert said == [
        f"step 400/2000  {metrics}",
        f"step 500/2000  {metrics}  3,500 tok/s  25:00 left",
    ]


@pytest.mark.parametrize(("total", "of_total"), [(5, " of 5"), (None, "")])
def test_a_slow_evaluation_logs_a_line_every_half_minute(monkeypatch, total, of_total):
    now, lines = [0.0], []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(logging, "info", lambda text, *args: lines.append(text % args))
    seen = []
    for batch in progress.with_progress("abcde", "evaluating", total):
        seen.append(batch)
        now[0] += 16
    assert seen == list("abcde")
    assert lines == [f"evaluating: {number}{of_total} batches" for number in (2, 4)]

"""The training loop: exact resuming, the files of a run, failures, hooks and metrics."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import shutil
import time
from typing import ClassVar

import numpy as np
import pytest
import tensorflow as tf
from absl import logging

from albert_tf.checkpoints import store
from albert_tf.checkpoints.run_folder import DATA_SUFFIX, RunFolder
from albert_tf.checkpoints.weight_names import variable_name
from albert_tf.training.checkpointing import NonFiniteLossError
from albert_tf.training.evaluation import Evaluator
from albert_tf.training.hooks import Hook, every
from albert_tf.training.interruption import InterruptedRunError
from albert_tf.training.loop import CHECK_STEPS, Trainer
from albert_tf.training.loss_scale import LossScale
from albert_tf.training.report import report_interval
from albert_tf.training.settings import RunSettings
from albert_tf.training.step import StepResult, TrainStep
from albert_tf.training.step_results import MAX_SKIPPED_STEPS, StepResults
from tests.script_runner import interrupted, killed_at, stopped_at, tensors
from tests.training import distributed_steps
from tests.training.one_weight import OneWeightTask, batches_of, make_trainer, train


def steps_of(folder):
    return list(RunFolder(str(folder)).checkpoints())


# ALBERT, with dropout.


def albert_trainer(folder, kind="lamb", **changes):
    """Returns a trainer at step 0, whose step is not compiled yet."""
    config = dataclasses.replace(
        distributed_steps.CONFIG, num_hidden_layers=1, hidden_dropout_prob=0.1, **changes
    )
    task = distributed_steps.pretraining_task(config)
    step = distributed_steps.make_step(task, optimizer=kind, seed=3)
    values = {"train_batch_size": distributed_steps.ROWS, "save_checkpoints_steps": 3}
    settings = RunSettings(output_dir=str(folder), log_steps=2, **values)
    return Trainer(step, settings, 7, RunFolder(str(folder)))


def state_of(trainer):
    return {
        name: tf.convert_to_tensor(x).numpy()
        for name, x in trainer.checkpoints.state(trainer.step).items()
    }


@pytest.mark.ci
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(tmp_path):
    made = albert_trainer(tmp_path)
    start = state_of(made)

    def batches(step):
        for number in range(step, 7):
            batch = distributed_steps.batch_of(number)
            yield {name: tf.constant(value) for name, value in batch.items()}

    def run(folder, *hooks):
        """Trains as a new process would, but for the compiled step; returns state and metrics."""
        folder = tmp_path / folder
        folder.mkdir(exist_ok=True)
        trainer = Trainer(made.take_step, made.settings, 7, RunFolder(str(folder)))
        if not trainer.restore_latest():
            made.optimizer.iterations.assign(0)
            for name, variable in trainer.checkpoints.state(trainer.step).items():
                if isinstance(variable, tf.Variable):
                    variable.assign(start[name])
        lines = train(trainer, *hooks, batches=batches).values()
        timeless = [{k: v for k, v in x.items() if not k.endswith("_per_second")} for x in lines]
        return state_of(trainer), timeless

    through, expected_lines = run("through")
    with interrupted():
        run("resumed", killed_at(5))  # steps 4 and 5 are lost, as when the machine fails
    assert steps_of(tmp_path / "resumed") == [0, 3]
    state, lines = run("resumed")
    assert lines == expected_lines
    assert [line["step"] for line in lines] == [2, 3, 4, 6, 7]
    for name, value in through.items():
        np.testing.assert_array_equal(state[name], value, err_msg=name)


@pytest.mark.parametrize("error", [FileNotFoundError("a file"), InterruptedRunError("a store")])
@pytest.mark.parametrize(("step", "saved"), [(3, [0, 3]), (5, [0, 3, 5])])
def test_no_step_is_lost_when_the_data_cannot_be_read(tmp_path, error, step, saved):
    def fail(first):
        yield from itertools.islice(batches_of(trainer)(first), step - first)
        raise error

    trainer = make_trainer(tmp_path / "through")
    train(trainer)
    through = state_of(trainer)
    trainer = make_trainer(tmp_path / "resumed")
    with pytest.raises(type(error)):
        train(trainer, batches=fail)
    assert list(RunFolder(str(tmp_path / "resumed")).resumable()) == saved
    trainer = make_trainer(tmp_path / "resumed")
    trainer.restore_latest()
    assert trainer.step == step
    train(trainer)
    assert steps_of(tmp_path / "resumed") == [0, 3, 6, 7]
    np.testing.assert_equal(state_of(trainer), through)


def test_a_checkpoint_has_weights_moments_and_step_under_googles_names(tmp_path):
    trainer = albert_trainer(tmp_path)
    trainer.save()
    saved = tensors(tmp_path / "model.ckpt-0")
    shapes = {name: list(value.shape) for name, value in saved.items()}
    weights = {variable_name(v): v.shape.as_list() for v in trainer.model.variables}
    slots = {f"{n}/{slot}": s for n, s in weights.items() for slot in ("adam_m", "adam_v")}
    assert shapes == weights | slots | {"global_step": []}
    assert saved["global_step"].dtype == np.int64
    block = "bert/encoder/transformer/group_0/inner_group_0/ffn_1/intermediate/output/dense/kernel"
    assert shapes[f"{block}/adam_v"] == [20, 12]
    # They fit neither another model nor another optimizer.
    other = albert_trainer(tmp_path, intermediate_size=24)
    before = state_of(other)
    with pytest.raises(ValueError, match=r"ffn_1/intermediate/dense/kernel: expected \[12, 24\]"):
        other.restore_latest()
    for name, value in state_of(other).items():
        np.testing.assert_array_equal(value, before[name])
    with pytest.raises(ValueError, match="has the moments of --optimizer=adamw or lamb: pass"):
        albert_trainer(tmp_path, "lamb_albert_zh").restore_latest()


def test_a_resumed_run_in_float16_continues_with_its_loss_scale(tmp_path):
    trainer = make_trainer(tmp_path, loss_scale=LossScale(64.0, growth_steps=9))
    train(trainer)
    resumed = LossScale()
    assert make_trainer(tmp_path, loss_scale=resumed).restore_latest()
    assert (float(resumed.value), int(resumed.good_steps)) == (64.0, 7)


def test_a_run_continues_with_the_moments_of_albert_zhs_trainer(tmp_path):
    trainer = albert_trainer(tmp_path, "lamb_albert_zh", layout="albert_zh")
    rng = np.random.default_rng(7)
    theirs = {
        f"{variable_name(variable)}{ending}": rng.random(variable.shape, np.float32)
        for variable in trainer.model.variables
        for ending in ("", "/lamb_m", "/lamb_v")
    } | {"global_step": np.int64(6)}
    store.save_checkpoint(str(tmp_path / "model.ckpt-6"), theirs)
    assert trainer.restore_latest()
    assert trainer.step == 6
    assert trainer.checkpoints.state(trainer.step).keys() == theirs.keys()
    for name, value in trainer.checkpoints.state(trainer.step).items():
        np.testing.assert_array_equal(value, theirs[name], err_msg=name)
    with pytest.raises(ValueError, match="has the moments of --optimizer=lamb_albert_zh: pass"):
        albert_trainer(tmp_path, layout="albert_zh").restore_latest()


# One weight: files and failures.


def test_checkpoints_are_written_at_step_0_at_multiples_and_at_the_end(tmp_path):
    train(make_trainer(tmp_path))
    assert steps_of(tmp_path) == [0, 3, 6, 7]
    text = (tmp_path / "checkpoint").read_text()
    assert text.startswith('model_checkpoint_path: "model.ckpt-7"\nall_model_checkpoint_paths: ')
    # A finished run is not changed.
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    again = make_trainer(tmp_path)
    assert again.restore_latest()
    train(again)
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("keep", "kept"), [(0, [0, 2, 4, 6, 7]), (1, [7]), (2, [6, 7]), (5, [0, 2, 4, 6, 7])]
)
def test_old_checkpoints_are_deleted_and_other_files_kept(tmp_path, keep, kept):
    for name in ("model.ckpt-best.index", "notes.txt"):
        (tmp_path / name).write_text("mine")
    announced = []

    class Look(Hook):
        def on_save(self, trainer, prefix):
            assert os.path.exists(prefix + ".index")
            announced.append(os.path.basename(prefix))

    settings = {"keep_checkpoint_max": keep, "save_checkpoints_steps": 2}
    train(make_trainer(tmp_path, **settings), Look())
    assert announced == [f"model.ckpt-{step}" for step in (0, 2, 4, 6, 7)]
    assert steps_of(tmp_path) == kept
    assert (tmp_path / "model.ckpt-best.index").exists()
    assert (tmp_path / "notes.txt").exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def batches_with(*bad):
    """Returns batches from step 0 on, which make the loss NaN in the steps `bad`."""
    fill = lambda number: np.nan if number in bad else 0.5  # noqa: E731
    return lambda _: ({"x": tf.fill((6,), fill(number))} for number in itertools.count())


def test_a_loss_that_is_not_finite_stops_the_run_and_reports_the_step(tmp_path):
    trainer = make_trainer(tmp_path, log_steps=7, save_checkpoints_steps=2)
    with pytest.raises(NonFiniteLossError, match=r"not finite at step 5.*model\.ckpt-4 *\."):
        train(trainer, batches=batches_with(5))
    assert steps_of(tmp_path) == [0, 2, 4]
    assert np.isfinite(trainer.model.weight)


@pytest.mark.parametrize(
    ("steps", "settings", "noticed"),
    [
        (7, {}, 4),  # at the next report
        (7, {"log_steps": 7, "save_checkpoints_steps": 5}, 5),  # before the next checkpoint
        (102, {"log_steps": 102, "save_checkpoints_steps": 102}, CHECK_STEPS),
    ],
)
def test_a_bad_loss_is_noticed_if_nothing_is_logged(tmp_path, steps, settings, noticed):
    trainer = make_trainer(tmp_path, OneWeightTask(steps), **settings)
    weights = []
    look = every(1, lambda trainer, result: weights.append(float(trainer.model.weight[0])))
    with pytest.raises(
        NonFiniteLossError, match=r"not finite at step 3;.*/model\.ckpt-[03]\. Lower"
    ):
        trainer.train(batches_with(3), [look])
    assert len(weights) == noticed
    assert set(weights[3:]) == {weights[2]}


def test_bad_steps_are_skipped_on_request_unless_there_are_no_others(tmp_path):
    trainer = make_trainer(tmp_path, nan_policy="skip", log_steps=3)
    lines = train(trainer, batches=batches_with(1, 3, 4, 5))
    assert [lines[step].get("skipped_steps") for step in (3, 6, 7)] == [1, 3, None]
    assert "loss" not in lines[6]


def test_skipped_steps_count_in_no_mean():
    results = StepResults(OneWeightTask(), stops=False)
    for step, (loss, tokens) in enumerate(((1.0, 10.0), (np.nan, 60.0), (3.0, 20.0))):
        is_good = tf.constant(np.isfinite(loss))
        numbers = tf.constant([loss, 1.0]), {}, tf.constant(loss), tf.constant(tokens)
        results.add(step, StepResult(*numbers, is_good, is_good, tf.constant(False)))
    expected = {"gradient_norm": 2.0, "loss": 2.0, "skipped_steps": 1.0}
    assert results.take_means() == (expected, 15.0)


@pytest.mark.parametrize(
    ("good", "ends"), [((), True), ((0,), False), ((MAX_SKIPPED_STEPS - 1,), False)]
)
def test_many_bad_steps_without_a_good_one_end_a_run_that_skips_them(tmp_path, good, ends):
    """They are counted from one report to the next."""
    assert MAX_SKIPPED_STEPS == 20
    steps = 2 * MAX_SKIPPED_STEPS
    changes = {"nan_policy": "skip", "save_checkpoints_steps": steps}
    bad = set(range(MAX_SKIPPED_STEPS)) - set(good)
    trainer = make_trainer(tmp_path, OneWeightTask(steps), log_steps=MAX_SKIPPED_STEPS, **changes)
    if ends:
        with pytest.raises(NonFiniteLossError, match="not finite at step 0"):
            train(trainer, batches=batches_with(*bad))
    else:
        assert train(trainer, batches=batches_with(*bad))[MAX_SKIPPED_STEPS]["loss"] > 0


def test_fewer_bad_steps_in_a_report_do_not_end_a_run_that_skips_them(tmp_path):
    few = MAX_SKIPPED_STEPS - 1
    changes = {"nan_policy": "skip", "save_checkpoints_steps": 2 * few, "log_steps": few}
    trainer = make_trainer(tmp_path, OneWeightTask(2 * few), **changes)
    lines = train(trainer, batches=batches_with(*range(2 * few)))
    assert [line["skipped_steps"] for line in lines.values()] == [few, few]
    assert trainer.model.weight == 0.25


def test_infinite_weights_are_not_saved(tmp_path):
    changes = {"save_checkpoints_steps": 1, "nan_policy": "skip"}
    trainer = make_trainer(tmp_path, OneWeightTask(learning_rate=3e38), **changes)
    message = r"1 weights and moments are not finite after update 1; .* is .*/model\.ckpt-0\. "
    with pytest.raises(NonFiniteLossError, match=message):
        train(trainer)
    trainer = make_trainer(tmp_path, **changes)
    assert trainer.restore_latest()
    assert trainer.step == 0


def test_a_checkpoint_of_another_step_is_rejected(tmp_path):
    make_trainer(tmp_path).save()
    for suffix in (DATA_SUFFIX, ".index"):
        shutil.copy(f"{tmp_path}/model.ckpt-0{suffix}", tmp_path / f"model.ckpt-60{suffix}")
    with pytest.raises(ValueError, match=r"model\.ckpt-60 has the global_step 0: "):
        make_trainer(tmp_path).restore_latest()
    assert steps_of(tmp_path) == [0, 60]  # nothing is renamed


# Hooks, and what is logged of which steps.


@pytest.fixture(name="now")
def set_clock(monkeypatch):
    """A clock that stands still: a list with its time."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize(("often", "numbers"), [(3, (3, 6, None)), (2, (2, 6, None))])
def test_what_a_hook_logs_is_in_the_line_of_the_same_step_or_in_the_next(tmp_path, often, numbers):
    def log_weight(trainer, result):
        trainer.log(weight=trainer.model.weight[0], number=trainer.step)

    lines = train(make_trainer(tmp_path, log_steps=3), every(often, log_weight))
    assert {step: row.get("number") for step, row in lines.items()} == dict(
        zip((3, 6, 7), numbers, strict=True)
    )
    assert 0.25 < lines[3]["weight"] < 1


class Weighted(OneWeightTask):
    """Has a metric whose weight, the sum of the inputs, differs between steps."""

    derived: ClassVar = {"perplexity": lambda means: math.exp(means["loss"])}

    def loss(self, outputs, batch, weights=None):
        loss, sums = super().loss(outputs, batch, weights)
        return loss, sums | {"gain": (tf.reduce_sum(outputs), tf.reduce_sum(batch["x"]))}


def test_metrics_are_means_since_the_last_line_and_derived_from_means(tmp_path):
    task = Weighted(num_warmup_steps=2)
    single = train(make_trainer(tmp_path, task, log_steps=1))
    assert single[1]["gradient_norm"] == pytest.approx(0.875)  # 2 · (0.25 · 0.5 − 1) · 0.5
    for step, row in single.items():
        assert row["learning_rate"] == pytest.approx(float(task.learning_rates(step - 1)))
    (tmp_path / "other").mkdir()
    lines = train(make_trainer(tmp_path / "other", task, log_steps=3))
    for step, steps in ((3, (1, 2, 3)), (6, (4, 5, 6)), (7, (7,))):
        inputs = [(n - 1) % 3 + 0.5 for n in steps]
        for name in ("loss", "error", "gradient_norm", "gain"):
            weights = inputs if name == "gain" else None
            mean = np.average([single[n][name] for n in steps], weights=weights)
            assert lines[step][name] == pytest.approx(mean, rel=1e-6)
        assert lines[step]["perplexity"] == pytest.approx(math.exp(lines[step]["loss"]))
    dataset = tf.data.Dataset.from_tensor_slices({"x": [1.0, 2.0, 3.0]}).batch(2)
    found = Evaluator(task.build_model(), task, dataset).evaluate()
    assert found["perplexity"] == math.exp(found["loss"]) > 1


@pytest.mark.parametrize("name", ["loss", "step"])
def test_metrics_with_the_names_of_every_run_are_refused(tmp_path, name):
    hook = every(1, lambda trainer, result: trainer.log(**{name: 1.0}))
    with pytest.raises(ValueError, match=f"'{name}' has the name of a metric of every run"):
        train(make_trainer(tmp_path), hook)
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
        train(make_trainer(tmp_path), recorder)
    else:
        with interrupted():
            train(make_trainer(tmp_path), recorder, how)
    assert recorder.calls == ["start", "model.ckpt-0", *calls, "end"]


class Patience:
    """An evaluation that records its calls, and ends training at a step."""

    def __init__(self, calls, last):
        self.calls, self.last = calls, last

    def begin(self, step):
        self.calls.append(f"begins at {step}")
        return step == self.last

    def evaluate(self, prefix, step):
        self.calls.append(f"evaluates {prefix.rpartition('-')[2]}")
        return step == self.last


@pytest.mark.parametrize("step", [0, 3])
def test_the_loop_steps_logs_saves_evaluates_and_stops_in_this_order(tmp_path, step):
    recorder = Recorder()
    evaluation = Patience(recorder.calls, last=3)
    trainer = make_trainer(tmp_path, log_steps=2)
    trainer.step = step
    log = lambda report: recorder.calls.append(f"logs {report.step}")  # noqa: E731
    trainer.train(batches_of(trainer), [recorder], log, evaluation)
    expected = ["start", "begins at 0", "model.ckpt-0", "evaluates 0", 1, 2, "logs 2"]
    expected += [3, "logs 3", "model.ckpt-3", "evaluates 3", "end"]
    assert recorder.calls == (["start", "begins at 3", "end"] if step else expected)


@pytest.mark.parametrize(
    ("log_steps", "num_train_steps", "interval"),
    [
        *((None, 1, 1), (None, 19, 1), (None, 20, 2), (None, 999, 99), (None, 1000, 100)),
        *((None, 125000, 100), (1, 7, 1), (7, 7, 7), (1000, 7, 1000)),
    ],
)
def test_the_default_interval_is_100_steps_or_a_tenth_of_the_run(
    log_steps, num_train_steps, interval
):
    assert report_interval(log_steps, num_train_steps) == interval


def test_a_short_run_logs_ten_times_and_before_each_checkpoint(tmp_path):
    trainer = make_trainer(tmp_path, OneWeightTask(25), save_checkpoints_steps=9)
    assert list(train(trainer)) == [2, 4, 6, 8, 9, 10, 12, 14, 16, 18, 20, 22, 24, 25]


def test_the_speed_leaves_out_compilation_saving_and_evaluation(tmp_path, monkeypatch, now):
    said, durations = [], iter((60, 0.5, 0.5, 0.5, 30, 0.5))
    monkeypatch.setattr(logging, "info", lambda text, *args: said.append(text % args))
    take, save = TrainStep.__call__, store.save_checkpoint

    def take_slowly(*arguments):
        now[0] += next(durations)
        return take(*arguments)

    def save_slowly(*arguments):
        now[0] += 7
        save(*arguments)

    class Slow(Patience):
        def evaluate(self, prefix, step):
            now[0] += 9
            return False

    monkeypatch.setattr(TrainStep, "__call__", take_slowly)
    monkeypatch.setattr(store, "save_checkpoint", save_slowly)
    batches = [{"x": tf.ones(size), "input_mask": tf.ones(14)} for size in (6, 6, 6, 6, 4, 6)]
    trainer = make_trainer(tmp_path, OneWeightTask(6), log_steps=1)
    lines = train(
        trainer, batches=lambda step: iter(batches), evaluation=Slow([], last=99)
    ).values()
    # Steps 1 and 5 are compiled, for another shape each; step 3 is saved and evaluated.
    assert [row.get("examples_per_second") for row in lines] == [None, 12, 12, 12, None, 12]
    assert [row.get("tokens_per_second") for row in lines] == [None, 28, 28, 28, None, 28]
    lines = [line for line in said if line.startswith("step ")]
    assert lines[0] == "step 1/6  loss 0.562  error 0.750  lr 1.0e-01  gnorm 1.5"
    assert lines[1].endswith("  28 tok/s  0:02 left")

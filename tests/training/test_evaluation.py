"""Each checkpoint is evaluated once and the best is kept; tested with a model of one weight."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints import containers, evaluations, loading, run_folder, store
from albert_tf.checkpoints.evaluations import Evaluation
from albert_tf.checkpoints.run_folder import DATA_SUFFIX, RunFolder
from albert_tf.checkpoints.weight_names import variable_name
from albert_tf.training import devices
from albert_tf.training.evaluation import (
    CheckpointEvaluator,
    Evaluator,
    TrainingEvaluation,
    check_not_replaced,
    is_patience_exhausted,
)
from tests.training.one_weight import METRIC, OneWeight, OneWeightTask


def save(folder, step, value):
    prefix = str(folder / f"model.ckpt-{step}")
    name = variable_name(OneWeight().weight)
    store.save_checkpoint(
        prefix, {name: np.float32([value]), "global_step": np.int64(step), "x/adam_m": np.ones(2)}
    )
    return prefix


def make_evaluator(folder, data="dev", official_order=True):
    task = OneWeightTask()
    task.data, task.official_order = data, official_order
    return CheckpointEvaluator(RunFolder(str(folder)), task, task.build_model())


def keep_last(folder, evaluator, *steps_and_values):
    """Saves and evaluates checkpoints as the training loop with --keep_checkpoint_max=1."""
    for step, value in steps_and_values:
        prefix = save(folder, step, value)
        store.remove_old_checkpoints(evaluator.folder, 1)
        evaluator.evaluate(prefix)


def best_step(folder):
    return loading.read_step(str(folder / "model.ckpt-best"))


def steps_of(found):
    return [evaluation.step for evaluation in found]


def test_every_checkpoint_is_evaluated_once_and_the_best_is_kept(tmp_path):
    saved = [(0, 0.25), (10, 0.5), (20, 0.5), (30, 0.375)]
    for step, value in saved:
        save(tmp_path, step, value)
    evaluator = make_evaluator(tmp_path)
    assert [(e.step, e.metrics[METRIC]) for e in evaluator.evaluate_all()] == saved
    assert evaluator.task.seen == [value for _, value in saved]
    assert best_step(tmp_path) == evaluator.best.step == 10
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    again = make_evaluator(tmp_path)
    again.evaluate_all()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    again.evaluate(save(tmp_path, 40, 0.75))
    assert again.task.seen == [0.75]
    assert best_step(tmp_path) == 40


def test_an_unmeasured_best_is_measured_before_it_can_be_replaced(tmp_path):
    store.copy_checkpoint(save(tmp_path, 7, 0.75), str(tmp_path / "model.ckpt-best"))
    for path in tmp_path.glob("model.ckpt-7.*"):
        path.unlink()
    save(tmp_path, 3, 0.5)
    evaluator = make_evaluator(tmp_path)
    assert steps_of(evaluator.evaluate_all()) == [3, 7]
    assert evaluator.task.seen == [0.75, 0.5]
    assert best_step(tmp_path) == 7


def test_other_data_or_another_precision_repeat_the_evaluation(tmp_path):
    save(tmp_path, 0, 0.25)
    (first,) = make_evaluator(tmp_path).evaluate_all()
    (other,) = make_evaluator(tmp_path, "middle only").evaluate_all()
    devices.apply_precision("bfloat16")
    (half,) = make_evaluator(tmp_path).evaluate_all()
    devices.apply_precision("float32")
    assert evaluations.heading([first]) == ""
    assert evaluations.heading([half]) == (
        "# Computed in bfloat16; --precision=float32 gives Google's numbers.\n"
    )
    assert RunFolder(str(tmp_path)).evaluations() == [first, other, half]
    assert [e.measured_on for e in (first, other, half)] == ["dev", "middle only", "dev"]
    again = make_evaluator(tmp_path)
    assert again.evaluate_all() == [first]
    assert again.task.seen == []


def test_resuming_keeps_evaluations_and_adds_missing_ones_but_a_new_run_does_not(tmp_path):
    keep_last(tmp_path, make_evaluator(tmp_path), (0, 0.25), (10, 0.5))
    save(tmp_path, 20, 0.75)  # the run stopped before it was evaluated
    again = make_evaluator(tmp_path)
    again.catch_up(20)
    assert again.task.seen == [0.75]
    assert steps_of(again.evaluations) == [0, 10, 20]
    for path in tmp_path.glob("model.ckpt-*"):
        path.unlink()
    fresh = make_evaluator(tmp_path)
    fresh.catch_up(0)
    fresh.evaluate(save(tmp_path, 0, 0.125))
    assert [(e.step, e.metrics[METRIC]) for e in fresh.evaluations] == [(0, 0.125)]
    assert best_step(tmp_path) == 0


@pytest.mark.parametrize("name", ["model.ckpt-10", run_folder.BEST])
def test_a_checkpoint_that_another_run_wrote_is_refused(tmp_path, name):
    evaluator = make_evaluator(tmp_path)
    for step, value in ((0, 0.25), (10, 0.5)):
        evaluator.evaluate(save(tmp_path, step, value))
    place, lines = f"{tmp_path}/{name}", tmp_path / "evaluations.jsonl"
    ours, known = containers.digest(place), lines.read_bytes()
    (tmp_path / "other").mkdir()
    store.copy_checkpoint(save(tmp_path / "other", 10, 0.75), place)
    theirs = containers.digest(place)
    said = rf"{name} \(digest {theirs}\) .* \(digest {ours}: "
    with pytest.raises(ValueError, match=said):
        make_evaluator(tmp_path).catch_up(10)
    with pytest.raises(ValueError, match=said):
        check_not_replaced(evaluator.folder, evaluator.evaluations, place)
    assert lines.read_bytes() == known
    lines.unlink()
    for _ in range(2):
        evaluator = make_evaluator(tmp_path)
        assert 0.75 in [e.metrics[METRIC] for e in evaluator.evaluate_all()]
        assert containers.digest(evaluator.folder.best) == theirs
        assert evaluator.folder.best_evaluation == evaluator.best


@pytest.mark.parametrize(
    ("data", "index", "is_recorded"),
    [
        ("old", "old", False),
        ("old", "none", False),
        ("new", "none", False),
        ("new", "new", False),
        ("old", "old", True),
    ],
)
def test_a_kill_while_the_best_is_copied_loses_nothing(tmp_path, data, index, is_recorded):
    lines, best = tmp_path / "evaluations.jsonl", tmp_path / "model.ckpt-best"
    of_data, of_index = (best.with_name(best.name + end) for end in (DATA_SUFFIX, ".index"))
    evaluator = make_evaluator(tmp_path)
    keep_last(tmp_path, evaluator, (0, 0.25))
    before = {path: path.read_bytes() for path in (of_data, of_index, lines)}
    keep_last(tmp_path, evaluator, (10, 0.75))
    for path, has_old in ((of_data, data == "old"), (of_index, index == "old")):
        if has_old:
            path.write_bytes(before[path])
    if index == "none":
        of_index.unlink()
    if not is_recorded:
        lines.write_bytes(before[lines])
    again = make_evaluator(tmp_path)
    again.catch_up(10)
    assert best_step(tmp_path) == 10
    keep_last(tmp_path, again, (20, 0.5))
    assert best_step(tmp_path) == again.best.step == 10


def test_a_missing_best_checkpoint_is_an_error_that_names_those_that_are_there(tmp_path):
    values = ((0, 0.25), (10, 0.75), (20, 0.5), (30, 0.375))
    evaluator = make_evaluator(tmp_path)
    keep_last(tmp_path, evaluator, *values)
    for path in tmp_path.glob("model.ckpt-best.index"):
        path.unlink()
    said = (
        rf"step 10 with eval_accuracy 0\.75 \(digest .* good checkpoint is {tmp_path}/.*ckpt-30\."
    )
    again = make_evaluator(tmp_path)
    for evaluate in (again.evaluate_all, lambda: again.catch_up(30)):
        with pytest.raises(ValueError, match=said):
            evaluate()
    assert steps_of(RunFolder(str(tmp_path)).evaluations()) == [0, 10, 20, 30]


def test_an_evaluation_without_the_metric_that_selects_is_named(tmp_path):
    keep_last(tmp_path, make_evaluator(tmp_path), (0, 1.0), (3, 2.0))
    lines = tmp_path / "evaluations.jsonl"
    lines.write_text(lines.read_text().replace(METRIC, "other"))
    with pytest.raises(ValueError, match=rf"{lines}: no '{METRIC}' of step 0\. Remove the line"):
        make_evaluator(tmp_path)


def damage(folder, name):
    path = folder / f"{name}{DATA_SUFFIX}"
    content = bytearray(path.read_bytes())
    content[0] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["model.ckpt-10", run_folder.BEST])
def test_a_damaged_checkpoint_ends_the_evaluation_with_the_last_good_one(tmp_path, name):
    save(tmp_path, 0, 0.25)
    if name == run_folder.BEST:
        make_evaluator(tmp_path).evaluate_all()
    save(tmp_path, 10, 0.75)
    damage(tmp_path, name)
    good = 0 if name == "model.ckpt-10" else 10
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    evaluator = make_evaluator(tmp_path)
    with pytest.raises(ValueError, match=rf"{name}.*The last good checkpoint is .*-{good}\. Rest"):
        evaluator.evaluate_all()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def evaluations_of(*values, losses=None):
    found = [
        Evaluation(10 * number, {METRIC: value}, str(number), "dev")
        for number, value in enumerate(values)
    ]
    for evaluation, loss in zip(found, losses or (), strict=bool(losses)):
        evaluation.metrics["eval_loss"] = loss
    return found


@pytest.mark.parametrize(
    ("losses", "official_order", "step"),
    [
        ((0.1, 0.7, 0.6, 0.2), False, 20),
        ((0.1, 0.7, 0.6, 0.2), True, 10),
        ((0.1, 0.6, 0.6, 0.2), False, 10),
        ((0.1, 0.6, float("nan"), 0.2), False, 10),
        (None, False, 10),
        (None, True, 10),
    ],
)
def test_the_best_of_equal_evaluations_has_the_lowest_loss_or_is_the_first(
    losses, official_order, step
):
    found = evaluations_of(0.25, 0.5, 0.5, 0.375, losses=losses)
    assert evaluations.best_of(found, METRIC, official_order).step == step


def test_nothing_is_best_without_a_value_above_minus_1(tmp_path):
    assert evaluations.best_of(evaluations_of(float("nan"), -1.0), METRIC) is None
    best = evaluations.best_of(evaluations_of(-1.0, -0.75, -0.875), METRIC)  # of a correlation
    assert best is not None
    assert best.metrics[METRIC] == -0.75
    save(tmp_path, 0, np.nan)
    evaluator = make_evaluator(tmp_path)
    evaluator.evaluate_all()
    assert evaluator.best is evaluator.folder.best_evaluation is None
    assert not evaluator.folder.has_best


def test_initial_weights_are_not_evaluated_unless_in_the_official_order(tmp_path):
    prefix = save(tmp_path, 0, 0.875)
    evaluator = make_evaluator(tmp_path, official_order=False)
    evaluation = TrainingEvaluation(evaluator)
    assert not evaluation.begin(0)
    assert not evaluation.evaluate(prefix, 0)
    with pytest.raises(ValueError, match="no checkpoint"):
        evaluator.evaluate_all()
    save(tmp_path, 10, 0.5)
    assert steps_of(evaluator.evaluate_all()) == [10]
    assert evaluator.task.seen == [0.5]
    assert best_step(tmp_path) == 10
    official = make_evaluator(tmp_path, data="others")
    TrainingEvaluation(official).evaluate(prefix, 0)
    assert official.task.seen == [0.875]


def test_an_external_checkpoint_is_evaluated_but_not_copied(tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    evaluator = make_evaluator(folder)
    with pytest.raises(ValueError, match=r"no checkpoint to evaluate\. Train first"):
        evaluator.evaluate_all()
    (found,) = evaluator.evaluate_all(save(tmp_path, 4, 0.5))
    assert found.metrics[METRIC] == 0.5
    assert [path.name for path in folder.iterdir()] == ["eval_results.txt"]
    assert (folder / "eval_results.txt").read_text() == "4 0.5\n"


@pytest.mark.parametrize(
    ("values", "patience", "due"),
    [
        ((0.9, 0.5, 0.625, 0.625, 0.5), 2, True),  # step 0 does not count
        ((0.9, 0.5, 0.625, 0.625, 0.75), 2, False),  # two consecutive ones are needed
        ((0.9, 0.5, 0.625, 0.5, 0.5, 0.875), 2, True),  # a later improvement does not matter
        ((0.9, 0.5, 0.4, 0.3, 0.2), 0, False),
        ((0.9, float("nan"), float("nan")), 2, True),
    ],
)
def test_training_stops_after_consecutive_checkpoints_without_improvement(values, patience, due):
    assert is_patience_exhausted(evaluations_of(*values), METRIC, patience) == due


def test_training_ends_when_the_evaluation_says_so_also_in_a_resumed_run(tmp_path):
    evaluation = TrainingEvaluation(make_evaluator(tmp_path), patience=2)
    ends = [
        step
        for step, value in ((0, 0.875), (10, 0.5), (20, 0.25), (30, 0.375))
        if evaluation.evaluate(save(tmp_path, step, value), step)
    ]
    assert ends == [30]
    assert TrainingEvaluation(make_evaluator(tmp_path), patience=2).begin(30)
    assert not TrainingEvaluation(make_evaluator(tmp_path), patience=3).begin(30)


def test_metrics_are_weighted_means_over_the_whole_set_and_the_loss_a_mean_of_batches():
    """As in Google's programs. The error of a row is |x / 4 − 1|, and its loss the square."""
    task = OneWeightTask()
    dataset = tf.data.Dataset.from_tensor_slices({"x": [1.0, 2.0, 3.0]}).batch(2)

    def evaluate(max_steps=None):
        return Evaluator(task.build_model(), task, dataset, max_steps).evaluate()

    losses = (0.75**2 + 0.5**2) / 2, 0.25**2
    assert evaluate() == pytest.approx({"error": 1.5 / 3, "loss": sum(losses) / 2})
    assert evaluate(1) == pytest.approx({"error": 1.25 / 2, "loss": losses[0]})

"""Each checkpoint is evaluated once and the best is kept; tested with a model of one weight."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from albert_tf.training.metrics_log import Curves

from albert_tf import files
from albert_tf.checkpoints import containers, loading, store
from albert_tf.checkpoints.names import variable_name
from albert_tf.finetuning.prediction import find_best
from albert_tf.pretraining import input_pipeline, record_files
from albert_tf.pretraining.task import PretrainingTask
from albert_tf.training import evaluation, precision
from albert_tf.training.evaluation import CheckpointEvaluator, EarlyStopping, Evaluation, Evaluator
from tests.conftest import MAX_PREDICTIONS, SEQ_LENGTH
from tests.training.test_loop import write_records

METRIC = "eval_accuracy"


class OneWeight(tf.Module):
    """A model whose metric is its weight."""

    def __init__(self):
        super().__init__()
        with tf.name_scope("bert/encoder/transformer/group_0/inner_group_0/LayerNorm"):
            self.weight = tf.Variable([0.0], name="beta")


class Measured:
    """A model and its `measure`, which records the measured values."""

    def __init__(self):
        self.model, self.seen = OneWeight(), []

    def measure(self):
        value = float(self.model.weight[0])
        self.seen.append(round(value, 3))
        return {METRIC: value, "eval_loss": 1.0}


def save(folder, step, value):
    prefix = str(folder / f"model.ckpt-{step}")
    name = variable_name(OneWeight().weight)
    store.save_checkpoint(
        prefix, {name: np.float32([value]), "global_step": np.int64(step), "x/adam_m": np.ones(2)}
    )
    return prefix


def write_steps(output_dir, evaluations):
    """Replaces the programs' function that writes result files."""
    with open(f"{output_dir}/eval_results.txt", "w") as stream:
        stream.writelines(f"{e.step} {e.metrics[METRIC]}\n" for e in evaluations)


def make_evaluator(folder, measured=None, measured_on="dev", patience=0, official_order=True):
    measured = measured or Measured()
    return CheckpointEvaluator(
        str(folder),
        measured.model,
        measured.measure,
        METRIC,
        measured_on,
        write_steps,
        EarlyStopping(patience),
        official_order,
    )


def evaluate(evaluator, prefix):
    """Evaluates one checkpoint like the training loop does."""
    return evaluator.evaluate(prefix, Curves(evaluator.output_dir))


def best_step(folder):
    return loading.read_step(str(folder / "model.ckpt-best"))


def test_every_checkpoint_is_evaluated_once_and_the_best_is_kept(tmp_path):
    for step, value in ((0, 0.25), (10, 0.5), (20, 0.5), (30, 0.375)):
        save(tmp_path, step, value)
    measured = Measured()
    evaluator = make_evaluator(tmp_path, measured)
    found = evaluator.evaluate_all()
    assert [(e.step, e.metrics[METRIC]) for e in found] == [
        (0, 0.25),
        (10, 0.5),
        (20, 0.5),
        (30, 0.375),
    ]
    assert best_step(tmp_path) == evaluator.best.step == 10
    assert measured.seen == [0.25, 0.5, 0.5, 0.375]


def test_evaluating_again_does_nothing(tmp_path):
    for step, value in ((0, 0.25), (10, 0.5)):
        save(tmp_path, step, value)
    make_evaluator(tmp_path).evaluate_all()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    measured = Measured()
    assert len(make_evaluator(tmp_path, measured).evaluate_all()) == 2
    assert measured.seen == []
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_only_a_new_checkpoint_is_measured_and_may_become_the_best(tmp_path):
    save(tmp_path, 0, 0.25)
    make_evaluator(tmp_path).evaluate_all()
    measured = Measured()
    evaluate(make_evaluator(tmp_path, measured), save(tmp_path, 10, 0.75))
    assert measured.seen == [0.75]
    assert best_step(tmp_path) == 10


def test_deleted_checkpoints_still_count(tmp_path):
    evaluator = make_evaluator(tmp_path)
    for step, value in ((0, 0.25), (10, 0.75), (20, 0.5)):
        evaluate(evaluator, save(tmp_path, step, value))
        store.remove_old_checkpoints(str(tmp_path), 1)
    measured = Measured()
    again = make_evaluator(tmp_path, measured)
    assert [e.step for e in again.evaluate_all()] == [0, 10, 20]
    assert measured.seen == []
    assert best_step(tmp_path) == 10


def test_an_unmeasured_best_is_measured_before_it_can_be_replaced(tmp_path):
    store.copy_checkpoint(save(tmp_path, 7, 0.75), str(tmp_path / "model.ckpt-best"))
    for path in tmp_path.glob("model.ckpt-7.*"):
        path.unlink()
    save(tmp_path, 3, 0.5)
    measured = Measured()
    assert [e.step for e in make_evaluator(tmp_path, measured).evaluate_all()] == [3, 7]
    assert measured.seen == [0.75, 0.5]
    assert best_step(tmp_path) == 7


def test_other_data_repeat_the_evaluation_and_the_selection(tmp_path, caplog):
    save(tmp_path, 0, 0.25)
    make_evaluator(tmp_path).evaluate_all()
    measured = Measured()
    assert "evaluations of other data" not in caplog.text
    found = make_evaluator(tmp_path, measured, "middle only").evaluate_all()
    assert "evaluations.jsonl: 1 evaluations of other data or" in caplog.text
    assert measured.seen == [0.25]
    assert len(found) == 1
    lines = (tmp_path / "evaluations.jsonl").read_text().splitlines()
    assert [json.loads(line)["measured_on"] for line in lines] == ["dev", "middle only"]


def test_another_precision_repeats_the_evaluation_and_is_stated_in_the_results(tmp_path):
    save(tmp_path, 0, 0.25)
    make_evaluator(tmp_path).evaluate_all()
    precision.apply("bfloat16")
    measured = Measured()
    (found,) = make_evaluator(tmp_path, measured).evaluate_all()
    assert measured.seen == [0.25]
    assert evaluation.heading([found]) == (
        "# Computed in bfloat16; --precision=float32 gives Google's numbers.\n"
    )
    lines = (tmp_path / "evaluations.jsonl").read_text().splitlines()
    assert [json.loads(line)["precision"] for line in lines] == ["float32", "bfloat16"]
    precision.apply("float32")
    (found,) = make_evaluator(tmp_path, measured).evaluate_all()
    assert measured.seen == [0.25]
    assert evaluation.heading([found]) == ""


def test_evaluations_without_a_recorded_precision_count(tmp_path):
    save(tmp_path, 0, 0.25)
    make_evaluator(tmp_path).evaluate_all()
    path = tmp_path / "evaluations.jsonl"
    row = json.loads(path.read_text())
    del row["precision"]
    path.write_text(json.dumps(row) + "\n")
    measured = Measured()
    make_evaluator(tmp_path, measured).evaluate_all()
    assert measured.seen == []


def test_a_new_run_discards_the_evaluations_of_an_earlier_one(tmp_path):
    evaluator = make_evaluator(tmp_path)
    for step, value in ((0, 0.25), (10, 0.75), (20, 0.5)):
        evaluate(evaluator, save(tmp_path, step, value))
    for path in tmp_path.glob("model.ckpt-*"):
        path.unlink()
    fresh = make_evaluator(tmp_path)
    fresh.begin(0)
    evaluate(fresh, save(tmp_path, 0, 0.125))
    assert [(e.step, e.metrics[METRIC]) for e in fresh.evaluations] == [(0, 0.125)]
    assert best_step(tmp_path) == 0


def test_resuming_keeps_evaluations_and_adds_missing_ones(tmp_path):
    evaluator = make_evaluator(tmp_path)
    evaluate(evaluator, save(tmp_path, 0, 0.25))
    evaluate(evaluator, save(tmp_path, 10, 0.5))
    for path in tmp_path.glob("model.ckpt-0.*"):
        path.unlink()
    save(tmp_path, 20, 0.75)  # the run stopped before it was evaluated
    measured = Measured()
    again = make_evaluator(tmp_path, measured)
    again.begin(20)
    assert measured.seen == [0.75]
    assert [e.step for e in again.evaluations] == [0, 10, 20]


@pytest.mark.parametrize("name", ["model.ckpt-10", store.BEST])
def test_a_checkpoint_that_another_run_wrote_is_said_to_be_that(tmp_path, name):
    evaluator = make_evaluator(tmp_path)
    for step, value in ((0, 0.25), (10, 0.5)):
        evaluate(evaluator, save(tmp_path, step, value))
    ours, evaluations = containers.digest(f"{tmp_path}/{name}"), tmp_path / "evaluations.jsonl"
    known = evaluations.read_bytes()
    (tmp_path / "other").mkdir()
    store.copy_checkpoint(save(tmp_path / "other", 10, 0.75), f"{tmp_path}/{name}")
    theirs = containers.digest(f"{tmp_path}/{name}")
    message = (
        rf"{name} \(digest {theirs}\) is not the .* step 10 .* \(digest {ours}: eval_acc 0.500"
    )
    for use in (
        lambda: make_evaluator(tmp_path).begin(10),
        make_evaluator(tmp_path).evaluate_all,
        evaluator.evaluate_all,
        lambda: find_best(f"{tmp_path}/"),
    )[: None if name == store.BEST else 3]:
        with pytest.raises(ValueError, match=message):
            use()
    assert evaluations.read_bytes() == known
    evaluations.unlink()
    assert 0.75 in [e.metrics[METRIC] for e in make_evaluator(tmp_path).evaluate_all()]


class KilledError(BaseException):
    """Simulates the end of the process."""


def keep_last(folder, evaluator, step, value):
    """Saves a checkpoint like the training loop with --keep_checkpoint_max=1."""
    prefix = save(folder, step, value)
    store.remove_old_checkpoints(str(folder), 1)
    evaluate(evaluator, prefix)


@pytest.mark.parametrize("suffix", [store.DATA_SUFFIX, ".index", None])
def test_a_kill_while_the_best_is_copied_loses_nothing(tmp_path, monkeypatch, suffix):
    evaluator = make_evaluator(tmp_path)
    keep_last(tmp_path, evaluator, 0, 0.25)
    rename, write = files.rename, store.copy_checkpoint

    def kill_before(source, target):
        if target == f"{tmp_path}/model.ckpt-best{suffix}":
            raise KilledError
        rename(source, target)

    def kill_after(source, target):
        write(source, target)
        raise KilledError

    with monkeypatch.context() as patch:
        if suffix:
            patch.setattr(files, "rename", kill_before)
        else:
            patch.setattr(store, "copy_checkpoint", kill_after)
        with pytest.raises(KilledError):
            keep_last(tmp_path, evaluator, 10, 0.75)
    again = make_evaluator(tmp_path)
    again.begin(10)
    assert best_step(tmp_path) == 10
    keep_last(tmp_path, again, 20, 0.5)
    assert best_step(tmp_path) == again.best.step == 10


def test_a_best_checkpoint_not_yet_copied_is_copied_before_training_resumes(tmp_path):
    evaluator = make_evaluator(tmp_path)
    keep_last(tmp_path, evaluator, 0, 0.25)
    old = {path: path.read_bytes() for path in tmp_path.glob("model.ckpt-best.*")}
    keep_last(tmp_path, evaluator, 10, 0.75)
    for path, content in old.items():
        path.write_bytes(content)
    again = make_evaluator(tmp_path)
    again.begin(10)
    keep_last(tmp_path, again, 20, 0.5)
    assert best_step(tmp_path) == again.best.step == 10


@pytest.mark.parametrize("lost", ["index", "*"])
def test_a_missing_best_checkpoint_is_ignored(tmp_path, caplog, lost):
    evaluator = make_evaluator(tmp_path)
    for step, value in ((0, 0.25), (10, 0.75), (20, 0.5)):
        keep_last(tmp_path, evaluator, step, value)
    data = tmp_path / f"model.ckpt-best{store.DATA_SUFFIX}"
    content = data.read_bytes()
    for path in tmp_path.glob(f"model.ckpt-best.{lost}"):
        path.unlink()
    again = make_evaluator(tmp_path)
    assert [e.step for e in again.evaluate_all()] == [0, 20]
    assert best_step(tmp_path) == again.best.step == 20
    assert (tmp_path / "eval_results.txt").read_text() == "0 0.25\n20 0.5\n"
    assert "best checkpoint, step 10 with eval_accuracy 0.75, is missing or damaged" in caplog.text
    assert [e.step for e in evaluation.read_evaluations(str(tmp_path))] == [0, 10, 20]
    if lost == "index":
        damaged = tmp_path / f"model.ckpt-best.damaged{store.DATA_SUFFIX}"
        assert damaged.read_bytes() == content


def test_several_missing_checkpoints_cause_one_warning(tmp_path, caplog):
    evaluator = make_evaluator(tmp_path)
    for step, value in ((0, 0.25), (10, 0.75), (20, 0.5), (30, 0.375)):
        keep_last(tmp_path, evaluator, step, value)
    for path in tmp_path.glob("model.ckpt-best.*"):
        path.unlink()
    again = make_evaluator(tmp_path)
    assert [e.step for e in again.evaluate_all()] == [0, 30]
    assert best_step(tmp_path) == again.best.step == 30
    assert caplog.text.count("the best checkpoint, step") == 1


def damage(folder, name):
    path = folder / f"{name}{store.DATA_SUFFIX}"
    content = bytearray(path.read_bytes())
    content[0] ^= 1
    path.write_bytes(content)


def test_a_damaged_checkpoint_is_set_aside_and_the_others_are_evaluated(tmp_path, caplog):
    for step, value in ((0, 0.25), (10, 0.75), (20, 0.5)):
        save(tmp_path, step, value)
    damage(tmp_path, "model.ckpt-10")
    assert [e.step for e in make_evaluator(tmp_path).evaluate_all()] == [0, 20]
    assert "model.ckpt-10 is damaged (" in caplog.text
    assert (tmp_path / "model.ckpt-10.damaged.index").exists()
    damage(tmp_path, "model.ckpt-best")
    damage(tmp_path, "model.ckpt-20")
    evaluator = make_evaluator(tmp_path)
    assert [e.step for e in evaluator.evaluate_all()] == [0]
    assert best_step(tmp_path) == 0
    assert "step 20 with eval_accuracy 0.5, is missing or damaged" in caplog.text


def test_damaged_checkpoints_are_not_replaced_by_others(tmp_path):
    (tmp_path / "out").mkdir()
    save(tmp_path / "out", 10, 0.75)
    damage(tmp_path / "out", "model.ckpt-10")
    evaluator = make_evaluator(tmp_path / "out")
    for _ in range(2):
        with pytest.raises(ValueError, match=r"(?s)no checkpoint can be read:.*model\.ckpt-10"):
            evaluator.evaluate_all(save(tmp_path, 4, 0.5))


def test_a_best_checkpoint_from_before_training_causes_a_warning(tmp_path, caplog):
    save(tmp_path, 0, 0.5)
    make_evaluator(tmp_path).evaluate_all()
    assert "before training" not in caplog.text
    save(tmp_path, 10, 0.5)
    make_evaluator(tmp_path).evaluate_all()
    assert (
        "the best checkpoint is that of step 0, before training: no later checkpoint" in caplog.text
    )


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
    found = evaluations_of(0.25, 0.5, 0.5, 0.375)
    for evaluated, loss in zip(found, losses or (), strict=bool(losses)):
        evaluated.metrics["eval_loss"] = loss
    assert evaluation.best_of(found, METRIC, official_order).step == step


def test_no_evaluation_is_best_without_a_value_above_minus_1():
    assert evaluation.best_of(evaluations_of(float("nan"), -1.0), METRIC) is None


def test_initial_weights_are_not_evaluated_unless_in_the_official_order(tmp_path):
    prefix = save(tmp_path, 0, 0.875)
    measured = Measured()
    evaluator = make_evaluator(tmp_path, measured, official_order=False)
    evaluator.begin(0)
    assert not evaluator.after_save(prefix, Curves(str(tmp_path)))
    with pytest.raises(ValueError, match="no checkpoint"):
        evaluator.evaluate_all()
    assert not measured.seen
    save(tmp_path, 10, 0.5)
    assert [e.step for e in evaluator.evaluate_all()] == [10]
    assert measured.seen == [0.5]
    assert best_step(tmp_path) == 10


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


def test_nothing_is_best_if_nothing_can_be_measured(tmp_path):
    save(tmp_path, 0, np.nan)
    evaluator = make_evaluator(tmp_path)
    evaluator.evaluate_all()
    assert evaluator.best is None
    assert not (tmp_path / "model.ckpt-best.index").exists()
    assert evaluation.evaluation_of_best(str(tmp_path)) is None


def test_a_file_of_another_program_is_not_overwritten(tmp_path):
    (tmp_path / "evaluations.jsonl").write_text('{"step": 3}\n')
    with pytest.raises(ValueError, match=r"evaluations\.jsonl, line 1: "):
        make_evaluator(tmp_path)
    assert (tmp_path / "evaluations.jsonl").read_text() == '{"step": 3}\n'


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "evaluations.jsonl",
            '{"step": 3, "metrics": [], "checkpoint": "", "measured_on": "dev"}',
            "line 1",
        ),
        (
            "evaluations.jsonl",
            '{"step": 3, "metrics": {"loss": 1}, "checkpoint": "", "measured_on": "dev"}',
            "the metrics of step 3 lack eval_accuracy",
        ),
        ("results.json", '{"eval": {"step": 3}', "not JSON"),
    ],
)
def test_damaged_files_are_reported_before_evaluating(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=rf"{name}.* {message}"):
        make_evaluator(tmp_path)


def test_digests_depend_on_every_part():
    parts = ("a", 12, True)
    assert evaluation.digest(*parts) == evaluation.digest(*parts)
    assert len({evaluation.digest(*p) for p in (parts, ("b", 12, True), ("a", 12, False))}) == 3


def test_evaluations_are_stored_and_read_back(tmp_path):
    save(tmp_path, 10, 0.7)
    found = make_evaluator(tmp_path).evaluate_all()
    assert evaluation.read_evaluations(str(tmp_path)) == found
    names = {"step", "metrics", "checkpoint", "measured_on", "precision"}
    assert set(dataclasses.asdict(found[0])) == names


def evaluations_of(*values, first_step=0):
    return [
        Evaluation(first_step + 10 * number, {METRIC: value}, str(number), "dev")
        for number, value in enumerate(values)
    ]


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
    stopping = EarlyStopping(patience)
    assert stopping.is_due(evaluations_of(*values), METRIC) == due


def test_an_evaluator_tells_the_training_loop_when_to_stop(tmp_path):
    evaluator = make_evaluator(tmp_path, patience=2)
    told = [
        evaluator.after_save(save(tmp_path, step, value), Curves(str(tmp_path)))
        for step, value in ((0, 0.875), (10, 0.5), (20, 0.25), (30, 0.375))
    ]
    assert told == [False, False, False, True]
    assert evaluator.stops_training


@pytest.mark.ci
def test_metrics_are_weighted_means_over_the_whole_set(tiny_config, tmp_path):
    """The batch size only affects the mean of the batches' losses."""
    write_records(tmp_path / "dev.tfrecord", 23)
    config = dataclasses.replace(tiny_config, num_hidden_layers=1, num_hidden_groups=1)
    task = PretrainingTask(config, SEQ_LENGTH, MAX_PREDICTIONS)
    records = record_files.find_record_files([str(tmp_path / "dev.tfrecord")], task.features)
    tf_keras.utils.set_random_seed(3)
    model = task.build_model()

    def evaluate(batch_size, max_steps=None):
        dataset = input_pipeline.evaluation_dataset(records, task.features, batch_size)
        return Evaluator(model, task, dataset, max_steps).evaluate()

    whole, parts = evaluate(23), evaluate(4)
    for name in whole:
        if name != "loss":
            assert parts[name] == pytest.approx(whole[name], rel=1e-5)
    losses = whole["masked_lm_loss"] + whole["sentence_order_loss"]
    assert whole["loss"] == pytest.approx(losses, rel=1e-5)
    assert evaluate(4, max_steps=2) != parts

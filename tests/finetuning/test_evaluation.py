"""Each checkpoint once, the best kept, the official files. A model of one weight stands in."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints import loading
from albert_tf.finetuning import evaluation
from albert_tf.finetuning.evaluation import CheckpointEvaluator, Evaluation

METRIC = "eval_accuracy"


class OneWeight(tf.Module):
    """Its metric is its weight."""

    def __init__(self):
        super().__init__()
        with tf.name_scope("bert/encoder/transformer/group_0/inner_group_0/LayerNorm"):
            self.weight = tf.Variable([0.0], name="beta")


class Measured:
    """What an evaluator asks of a predictor; remembers what was measured."""

    def __init__(self):
        self.model, self.seen = OneWeight(), []

    def predict(self):
        self.seen.append(round(float(self.model.weight[0]), 3))
        return {"logits": np.array([float(self.model.weight[0])])}


def save(folder, step, value):
    prefix = str(folder / f"model.ckpt-{step}")
    name = loading.variable_name(OneWeight().weight)
    loading.save_checkpoint(
        prefix, {name: np.float32([value]), "global_step": np.int64(step), "x/adam_m": np.ones(2)}
    )
    return prefix


def make_evaluator(folder, predictor=None, measured_on="dev"):
    return CheckpointEvaluator(
        str(folder),
        predictor or Measured(),
        lambda outputs: {METRIC: float(outputs["logits"][0]), "eval_loss": 1.0},
        METRIC,
        measured_on,
    )


def best_step(folder):
    return loading.read_step(str(folder / "model.ckpt-best"))


def test_every_checkpoint_is_evaluated_once_and_the_best_is_kept(tmp_path):
    for step, value in ((0, 0.25), (10, 0.5), (20, 0.5), (30, 0.375)):
        save(tmp_path, step, value)
    predictor = Measured()
    evaluator = make_evaluator(tmp_path, predictor)
    found = evaluator.evaluate_all()
    assert [(e.step, e.metrics[METRIC]) for e in found] == [
        (0, 0.25),
        (10, 0.5),
        (20, 0.5),
        (30, 0.375),
    ]
    assert best_step(tmp_path) == evaluator.best.step == 10
    assert predictor.seen == [0.25, 0.5, 0.5, 0.375]


def test_evaluating_again_measures_nothing_and_changes_nothing(tmp_path):
    for step, value in ((0, 0.25), (10, 0.5)):
        save(tmp_path, step, value)
    make_evaluator(tmp_path).evaluate_all()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    predictor = Measured()
    assert len(make_evaluator(tmp_path, predictor).evaluate_all()) == 2
    assert predictor.seen == []
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_new_checkpoint_is_measured_alone_and_may_become_the_best(tmp_path):
    save(tmp_path, 0, 0.25)
    make_evaluator(tmp_path).evaluate_all()
    predictor = Measured()
    make_evaluator(tmp_path, predictor).evaluate(save(tmp_path, 10, 0.75))
    assert predictor.seen == [0.75]
    assert best_step(tmp_path) == 10


def test_removed_checkpoints_still_count(tmp_path):
    evaluator = make_evaluator(tmp_path)
    for step, value in ((0, 0.25), (10, 0.75), (20, 0.5)):
        evaluator.evaluate(save(tmp_path, step, value))
        loading.remove_old_checkpoints(str(tmp_path), 1)
    predictor = Measured()
    again = make_evaluator(tmp_path, predictor)
    assert [e.step for e in again.evaluate_all()] == [0, 10, 20]
    assert predictor.seen == []
    assert best_step(tmp_path) == 10


def test_an_unmeasured_best_is_measured_before_it_can_be_replaced(tmp_path):
    loading.copy_checkpoint(save(tmp_path, 7, 0.75), str(tmp_path / "model.ckpt-best"))
    for path in tmp_path.glob("model.ckpt-7.*"):
        path.unlink()
    save(tmp_path, 3, 0.5)
    predictor = Measured()
    assert [e.step for e in make_evaluator(tmp_path, predictor).evaluate_all()] == [3, 7]
    assert predictor.seen == [0.75, 0.5]
    assert best_step(tmp_path) == 7


def test_other_data_are_measured_anew_and_choose_anew(tmp_path):
    save(tmp_path, 0, 0.25)
    make_evaluator(tmp_path).evaluate_all()
    predictor = Measured()
    found = make_evaluator(tmp_path, predictor, "middle only").evaluate_all()
    assert predictor.seen == [0.25]
    assert len(found) == 1
    lines = (tmp_path / "evaluations.jsonl").read_text().splitlines()
    assert [json.loads(line)["measured_on"] for line in lines] == ["dev", "middle only"]


def test_a_checkpoint_that_changed_is_another_one(tmp_path):
    save(tmp_path, 10, 0.5)
    make_evaluator(tmp_path).evaluate_all()
    save(tmp_path, 10, 0.75)
    predictor = Measured()
    make_evaluator(tmp_path, predictor).evaluate_all()
    assert predictor.seen == [0.75]
    assert tf.train.load_checkpoint(str(tmp_path / "model.ckpt-best")).get_tensor(
        loading.variable_name(OneWeight().weight)
    ) == np.float32(0.75)


def test_a_run_from_the_start_forgets_what_an_earlier_one_measured(tmp_path):
    evaluator = make_evaluator(tmp_path)
    for step, value in ((0, 0.25), (10, 0.75), (20, 0.5)):
        evaluator.evaluate(save(tmp_path, step, value))
    for path in tmp_path.glob("model.ckpt-*"):
        path.unlink()
    fresh = make_evaluator(tmp_path)
    fresh.begin(0)
    fresh.evaluate(save(tmp_path, 0, 0.125))
    assert [(e.step, e.metrics[METRIC]) for e in fresh.evaluations] == [(0, 0.125)]
    assert best_step(tmp_path) == 0


def test_going_on_keeps_what_was_measured_and_evaluates_what_was_left(tmp_path):
    evaluator = make_evaluator(tmp_path)
    evaluator.evaluate(save(tmp_path, 0, 0.25))
    evaluator.evaluate(save(tmp_path, 10, 0.5))
    for path in tmp_path.glob("model.ckpt-0.*"):
        path.unlink()
    save(tmp_path, 20, 0.75)  # the run stopped before it was evaluated
    predictor = Measured()
    again = make_evaluator(tmp_path, predictor)
    again.begin(20)
    assert predictor.seen == [0.75]
    assert [e.step for e in again.evaluations] == [0, 10, 20]


def test_a_checkpoint_from_elsewhere_is_measured_and_not_copied(tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    evaluator = make_evaluator(folder)
    with pytest.raises(ValueError, match=r"holds no checkpoint to evaluate\. Train first"):
        evaluator.evaluate_all()
    (found,) = evaluator.evaluate_all(save(tmp_path, 4, 0.5))
    assert found.metrics[METRIC] == 0.5
    assert [path.name for path in folder.iterdir()] == ["eval_results.txt"]
    assert "saved" not in (folder / "eval_results.txt").read_text()


def test_nothing_is_best_where_nothing_can_be_measured(tmp_path):
    save(tmp_path, 0, np.nan)
    evaluator = make_evaluator(tmp_path)
    evaluator.evaluate_all()
    assert evaluator.best is None
    assert not (tmp_path / "model.ckpt-best.index").exists()
    assert evaluation.evaluation_of_best(str(tmp_path)) is None


def test_a_file_that_is_not_this_programs_is_left_alone(tmp_path):
    (tmp_path / "evaluations.jsonl").write_text('{"step": 3}\n')
    with pytest.raises(ValueError, match=r"evaluations\.jsonl: not written by this program"):
        make_evaluator(tmp_path)
    assert (tmp_path / "evaluations.jsonl").read_text() == '{"step": 3}\n'


def test_the_file_of_results_is_the_official_one(tmp_path):
    """The lines are those of an official run, but for those of the `.meta` files."""
    metrics = {METRIC: 5 / 11, "eval_loss": 0.69354945, "loss": 0.6936371}
    found = [
        Evaluation(0, metrics, "a", "dev"),
        Evaluation(3, metrics, "b", "dev"),
        Evaluation(6, metrics | {METRIC: 6 / 11}, "c", "dev"),
    ]
    text = evaluation.write_results(str(tmp_path), found, METRIC)
    same = "eval_accuracy = 0.45454547\neval_loss = 0.69354945\n"
    folder, line = tmp_path, "=" * 50
    assert text == (
        f"{same}global_step = 0\nloss = 0.6936371\nbest = -1\n"
        f"saved {folder}/model.ckpt-0.data-00000-of-00001"
        f" to {folder}/model.ckpt-best.data-00000-of-00001\n"
        f"saved {folder}/model.ckpt-0.index to {folder}/model.ckpt-best.index\n{line}\n"
        f"{same}global_step = 3\nloss = 0.6936371\nbest = 0.4545454680919647\n{line}\n"
        "eval_accuracy = 0.54545456\neval_loss = 0.69354945\nglobal_step = 6\n"
        "loss = 0.6936371\nbest = 0.4545454680919647\n"
        f"saved {folder}/model.ckpt-6.data-00000-of-00001"
        f" to {folder}/model.ckpt-best.data-00000-of-00001\n"
        f"saved {folder}/model.ckpt-6.index to {folder}/model.ckpt-best.index\n{line}\n"
    )
    assert (tmp_path / "eval_results.txt").read_text() == text


def test_results_of_the_test_split_carry_the_best_of_the_dev_split(tmp_path):
    metrics = {METRIC: 0.25, "global_step": 10}
    text = evaluation.write_test_results(str(tmp_path), metrics, METRIC)
    header = "***** Predict results *****\neval_accuracy = 0.25\nglobal_step = 10\n"
    assert text == header
    save(tmp_path, 10, 0.7)
    make_evaluator(tmp_path).evaluate_all()
    text = evaluation.write_test_results(str(tmp_path), metrics, METRIC)
    assert text == header + "best = 0.699999988079071\n"
    assert (tmp_path / "predict_results.txt").read_text() == text


def test_digests_differ_where_anything_does():
    parts = ("a", 12, True)
    assert evaluation.digest(*parts) == evaluation.digest(*parts)
    assert len({evaluation.digest(*p) for p in (parts, ("b", 12, True), ("a", 12, False))}) == 3


def test_evaluations_survive_the_file(tmp_path):
    save(tmp_path, 10, 0.7)
    found = make_evaluator(tmp_path).evaluate_all()
    assert evaluation.read_evaluations(str(tmp_path)) == found
    assert set(dataclasses.asdict(found[0])) == {"step", "metrics", "checkpoint", "measured_on"}


def evaluations_of(*values, first_step=0):
    return [
        Evaluation(first_step + 10 * number, {METRIC: value}, str(number), "dev")
        for number, value in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("values", "patience", "min_delta", "due"),
    [
        ((0.9, 0.5, 0.625, 0.625, 0.5), 2, 0.0, True),  # step 0 does not count
        ((0.9, 0.5, 0.625, 0.625, 0.75), 2, 0.0, False),  # it waits for two in a row
        ((0.9, 0.5, 0.625, 0.5, 0.5, 0.875), 2, 0.0, True),  # what came once is not taken back
        ((0.9, 0.5, 0.625, 0.75), 2, 0.25, True),  # too little is not better
        ((0.9, 0.5, 0.4, 0.3, 0.2), 0, 0.0, False),
        ((0.9, float("nan"), float("nan")), 2, 0.0, True),
    ],
)
def test_training_is_given_up_when_checkpoints_in_a_row_are_no_better(
    values, patience, min_delta, due
):
    stopping = evaluation.EarlyStopping(patience, min_delta)
    assert stopping.is_due(evaluations_of(*values), METRIC) == due


def test_an_evaluator_tells_the_training_loop_when_to_stop(tmp_path):
    evaluator = CheckpointEvaluator(
        str(tmp_path),
        Measured(),
        lambda outputs: {METRIC: float(outputs["logits"][0])},
        METRIC,
        "dev",
        early_stopping=evaluation.EarlyStopping(patience=2),
    )
    told = [
        evaluator.after_save(save(tmp_path, step, value))
        for step, value in ((0, 0.875), (10, 0.5), (20, 0.25), (30, 0.375))
    ]
    assert told == [False, False, False, True]
    assert evaluator.stops_training


def test_the_classifiers_files_are_the_official_ones(tmp_path):
    found = [
        Evaluation(0, {METRIC: np.float32(0.45454547).item(), "eval_loss": 0.5}, "a", "dev"),
        Evaluation(6, {METRIC: 0.25, "eval_loss": 0.75}, "b", "dev"),
    ]
    evaluation.write_classifier_results(str(tmp_path), found, METRIC)
    assert (tmp_path / "eval_results.txt").read_text() == (
        "eval_accuracy = 0.45454547\neval_loss = 0.5\nglobal_step = 0\nbest = -1\n"
        + "=" * 50
        + "\neval_accuracy = 0.25\neval_loss = 0.75\nglobal_step = 6\nbest = 0.4545454680919647\n"
        + "=" * 50
        + "\n"
    )
    assert (tmp_path / "best_trial.txt").read_text() == "6:0:0.4545454680919647"
    evaluation.write_classifier_results(str(tmp_path), evaluations_of(float("nan")), METRIC)
    assert (tmp_path / "best_trial.txt").read_text() == "0:-1:-1"

"""The text files of results have the format of Google's programs."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from albert_tf.checkpoints import containers, store
from albert_tf.checkpoints.evaluations import Evaluation, heading
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.finetuning import results

METRIC = "eval_accuracy"


@pytest.fixture(name="folder")
def make_folder(tmp_path):
    return RunFolder(str(tmp_path))


def test_the_results_file_has_googles_format(folder, tmp_path):
    """The lines equal those of a run of Google's program, except for its `.meta` files."""
    metrics = {METRIC: 5 / 11, "eval_loss": 0.69354945, "loss": 0.6936371}
    found = [
        Evaluation(0, metrics, "a", "dev"),
        Evaluation(3, metrics, "b", "dev"),
        Evaluation(6, metrics | {METRIC: 6 / 11}, "c", "dev"),
    ]
    text = results.write_race_results(folder, found, METRIC)
    same = "eval_accuracy = 0.45454547\neval_loss = 0.69354945\n"
    line = "=" * 50
    assert text == (
        f"{same}global_step = 0\nloss = 0.6936371\nbest = -1\n"
        f"saved {tmp_path}/model.ckpt-0.data-00000-of-00001"
        f" to {tmp_path}/model.ckpt-best.data-00000-of-00001\n"
        f"saved {tmp_path}/model.ckpt-0.index to {tmp_path}/model.ckpt-best.index\n{line}\n"
        f"{same}global_step = 3\nloss = 0.6936371\nbest = 0.4545454680919647\n{line}\n"
        "eval_accuracy = 0.54545456\neval_loss = 0.69354945\nglobal_step = 6\n"
        "loss = 0.6936371\nbest = 0.4545454680919647\n"
        f"saved {tmp_path}/model.ckpt-6.data-00000-of-00001"
        f" to {tmp_path}/model.ckpt-best.data-00000-of-00001\n"
        f"saved {tmp_path}/model.ckpt-6.index to {tmp_path}/model.ckpt-best.index\n{line}\n"
    )
    assert (tmp_path / "eval_results.txt").read_text() == text
    in_bfloat16 = [dataclasses.replace(evaluation, precision="bfloat16") for evaluation in found]
    results.write_race_results(folder, in_bfloat16, METRIC)
    assert (tmp_path / "eval_results.txt").read_text() == heading(in_bfloat16) + text


def test_test_results_include_the_best_dev_value(folder, tmp_path):
    metrics = {METRIC: 0.25, "global_step": 10}
    text = results.write_test_results(folder, metrics, METRIC)
    header = "***** Predict results *****\neval_accuracy = 0.25\nglobal_step = 10\n"
    assert text == header
    store.save_checkpoint(folder.best, {"global_step": np.int64(10)})
    value = float(np.float32(0.7))
    evaluation = Evaluation(10, {METRIC: value}, containers.digest(folder.best), "dev")
    folder.add_evaluation(evaluation)
    text = results.write_test_results(folder, metrics, METRIC)
    assert text == header + "best = 0.699999988079071\n"
    assert (tmp_path / "predict_results.txt").read_text() == text


def test_the_files_of_the_classifier_have_googles_format(folder, tmp_path):
    found = [
        Evaluation(0, {METRIC: np.float32(0.45454547).item(), "eval_loss": 0.5}, "a", "dev"),
        Evaluation(6, {METRIC: 0.25, "eval_loss": 0.75}, "b", "dev"),
    ]
    results.write_classifier_results(folder, found, METRIC)
    assert (tmp_path / "eval_results.txt").read_text() == (
        "eval_accuracy = 0.45454547\neval_loss = 0.5\nglobal_step = 0\nbest = -1\n"
        + "=" * 50
        + "\neval_accuracy = 0.25\neval_loss = 0.75\nglobal_step = 6\nbest = 0.4545454680919647\n"
        + "=" * 50
        + "\n"
    )
    assert (tmp_path / "best_trial.txt").read_text() == "6:0:0.4545454680919647"
    undefined = Evaluation(0, {METRIC: float("nan")}, "a", "dev")
    results.write_classifier_results(folder, [undefined], METRIC)
    assert (tmp_path / "best_trial.txt").read_text() == "0:-1:-1"

"""The text files of results have the formats of Google's programs."""

import dataclasses

import numpy as np
import pytest

from albert_tf import race
from albert_tf.checkpoints import containers, store
from albert_tf.checkpoints.evaluations import Evaluation, heading
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.finetuning.classification.task import Classifier
from albert_tf.finetuning.classification.tasks import TASKS
from albert_tf.finetuning.examples import Examples
from albert_tf.finetuning.race.task import MultipleChoice
from albert_tf.finetuning.splits import Split
from albert_tf.finetuning.squad.task import QuestionAnswering

METRIC = "eval_accuracy"
SETTINGS = race.Settings(data_dir="data", output_dir="out")
LINE = "=" * 50 + "\n"


@pytest.fixture(name="folder")
def make_folder(tmp_path):
    return RunFolder(str(tmp_path))


def copies(folder, step):
    """The lines that Google's programs print of a checkpoint that is the best so far."""
    return "".join(
        f"saved {folder}/model.ckpt-{step}{suffix} to {folder}/model.ckpt-best{suffix}\n"
        for suffix in (".data-00000-of-00001", ".index")
    )


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_race_has_a_block_for_each_checkpoint(folder, tmp_path, precision):
    """The lines equal those of a run of Google's program, except for its `.meta` files."""
    metrics = {METRIC: 5 / 11, "eval_loss": 0.69354945, "loss": 0.6936371}
    found = [
        Evaluation(0, metrics, "a", "dev", precision=precision),
        Evaluation(3, metrics, "b", "dev", precision=precision),
        Evaluation(6, metrics | {METRIC: 6 / 11}, "c", "dev", precision=precision),
    ]
    MultipleChoice(SETTINGS, None, None).write_evaluations(folder, found)
    text = (tmp_path / "eval_results.txt").read_text()
    if precision == "bfloat16":
        first, text = text.split("\n", 1)
        assert f"{first}\n" == heading(found) != ""
    same = "eval_accuracy = 0.45454547\neval_loss = 0.69354945\n"
    assert text == (
        f"{same}global_step = 0\nloss = 0.6936371\nbest = -1\n{copies(tmp_path, 0)}{LINE}"
        f"{same}global_step = 3\nloss = 0.6936371\nbest = 0.4545454680919647\n{LINE}"
        "eval_accuracy = 0.54545456\neval_loss = 0.69354945\nglobal_step = 6\n"
        f"loss = 0.6936371\nbest = 0.4545454680919647\n{copies(tmp_path, 6)}{LINE}"
    )


def test_squad_ends_with_the_best_checkpoint(folder, tmp_path):
    evaluations = [
        Evaluation(0, {"f1": 1.0 / 3, "exact_match": 0.0}, "a", "dev"),
        Evaluation(4, {"f1": 0.25, "exact_match": 0.5}, "b", "dev"),
        Evaluation(6, {"f1": 2.0, "exact_match": 1.0}, "c", "dev"),
    ]
    task = QuestionAnswering(SETTINGS, None, None, {}, version_2=False)
    task.write_evaluations(folder, evaluations)
    text = (tmp_path / "eval_results.txt").read_text()
    third = 1 / 3
    assert text == (
        f"exact_match = 0.0\nf1 = {third}\nglobal_step = 0\n{copies(tmp_path, 0)}"
        f"best f1 = {third}\n{LINE}"
        f"exact_match = 0.5\nf1 = 0.25\nglobal_step = 4\nbest f1 = {third}\n{LINE}"
        f"exact_match = 1.0\nf1 = 2.0\nglobal_step = 6\n{copies(tmp_path, 6)}best f1 = 2.0\n{LINE}"
        "exact_match = 1.0\nf1 = 2.0\nbest perf happened at step: 6"
    )
    in_bfloat16 = [dataclasses.replace(found, precision="bfloat16") for found in evaluations]
    task.write_evaluations(folder, in_bfloat16)
    assert (tmp_path / "eval_results.txt").read_text() == heading(in_bfloat16) + text


def test_classification_has_a_trial_file(folder, tmp_path):
    found = [
        Evaluation(0, {METRIC: np.float32(0.45454547).item(), "eval_loss": 0.5}, "a", "dev"),
        Evaluation(6, {METRIC: 0.25, "eval_loss": 0.75}, "b", "dev"),
    ]
    task = Classifier(SETTINGS, None, None, (TASKS["rte"], {}))
    task.write_evaluations(folder, found)
    assert (tmp_path / "eval_results.txt").read_text() == (
        f"eval_accuracy = 0.45454547\neval_loss = 0.5\nglobal_step = 0\nbest = -1\n{LINE}"
        "eval_accuracy = 0.25\neval_loss = 0.75\nglobal_step = 6\nbest = 0.4545454680919647\n"
        f"{LINE}"
    )
    assert (tmp_path / "best_trial.txt").read_text() == "6:0:0.4545454680919647"
    undefined = Evaluation(0, {METRIC: float("nan")}, "a", "dev")
    task.write_evaluations(folder, [undefined])
    assert (tmp_path / "best_trial.txt").read_text() == "0:-1:-1"


def test_test_results_include_the_best_dev_value(folder, tmp_path):
    class Fixed(MultipleChoice):
        def measure(self, split, outputs, batch_size):
            return {METRIC: 0.25}

    task, data = Fixed(SETTINGS, None, None), Examples("test.jsonl", [None], has_labels=True)

    def write():
        split = Split("test", data, None)
        return task.write_test_results(folder, split, {}, step=10)

    header = "***** Predict results *****\neval_accuracy = 0.25\nglobal_step = 10\n"
    assert write() == header
    store.save_checkpoint(folder.best, {"global_step": np.int64(10)})
    value = float(np.float32(0.7))
    evaluation = Evaluation(10, {METRIC: value}, containers.digest(folder.best), "dev")
    folder.add_evaluation(evaluation)
    text = write()
    assert text == header + "best = 0.699999988079071\n"
    assert (tmp_path / "predict_results.txt").read_text() == text

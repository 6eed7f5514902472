"""What all fine-tuning programs promise, as a user runs them, and what RACE adds."""

from __future__ import annotations

import json
import re

import pytest

from albert_tf.checkpoints.run_folder import RunFolder
from tests.cli.fine_tuning_programs import CHOICES, PROGRAMS
from tests.script_runner import logged_rates, tensors

pytestmark = pytest.mark.ci


def contents(folder):
    times = {"run.json", "runs.jsonl"}  # these say when it was run
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "tfevents" not in path.name and path.name not in times
    }


def evaluations(folder):
    """The blocks of eval_results.txt: names and values, and whether it was saved as the best."""
    blocks = (folder / "eval_results.txt").read_text().split("=" * 50 + "\n")[:-1]
    return [(dict(re.findall(r"([\w ]+) = (\S+)\n", block)), "saved" in block) for block in blocks]


def test_the_learning_rate_depends_on_the_finished_steps(program):
    """Of update t that of step t - 1, as in Google's trainer."""
    *_, last = steps = program.row.steps
    expected = {step: 0.01 * (last - step + 1) / last for step in steps[1:]}
    assert logged_rates(program.out) == pytest.approx(expected)


def rank(row, values):
    """The larger, the better: the metric, and the loss where it is measured."""
    return float(values[row.metrics.split()[0]]), -float(values.get("eval_loss", 0.0))


def test_every_checkpoint_is_evaluated_and_the_best_is_kept(program):
    row = program.row
    assert tuple(RunFolder(str(program.out)).checkpoints()) == row.steps
    found = [values for values, _ in evaluations(program.out)]
    evaluated = list(row.steps[1:])  # not the initial weights
    assert [int(values["global_step"]) for values in found] == evaluated
    for values in found:
        assert set(row.metrics.split()) <= set(values)
    ranks = [rank(row, values) for values in found]
    best = evaluated[ranks.index(max(ranks))]
    assert tensors(program.out / "model.ckpt-best")["global_step"] == best


@pytest.mark.parametrize(
    ("name", "key"), [("race", "best"), ("squad_1", "best f1"), ("squad_2", "best f1")]
)
def test_googles_block_says_whether_a_checkpoint_is_the_best_so_far(finished, name, key):
    program = finished(name)
    best = (-1.0, 0.0)
    for values, is_saved in evaluations(program.out):
        after = max(best, rank(program.row, values))
        assert is_saved == (after > best)
        assert float(values[key]) == pytest.approx((best if key == "best" else after)[0])
        best = after


def test_all_files_are_written(program):
    names = {path.name for path in program.out.iterdir() if path.is_file()}
    assert set(program.row.files.split()) <= names
    for name in ("training_curve.png", "confusion_matrix.png"):
        assert (name in names) == (name in program.row.files)
        if name in names:
            assert (program.out / name).read_bytes().startswith(b"\x89PNG")
    for name in ("null_odds.json", "predict_results.txt"):
        assert (name in names) == (name in program.row.files)
    if program.row.assets:
        extra = program.saved_model() / "assets.extra"
        assert {path.name for path in extra.iterdir()} == set(program.row.assets.split())


def test_running_again_changes_nothing(program):
    before = contents(program.out)
    program.run(*program.everything)
    assert contents(program.out) == before


TRAIN = ("--do_train", "--train_step=2")
REFUSALS = [  # program, flags, and what the error names
    *((name, ("--nodo_train", "--nodo_eval", "--nodo_predict"), "nothing") for name in PROGRAMS),
    ("classifier", (*TRAIN, "--max_seq_length=62"), "--max_seq_length=62 .*=61"),
    ("classifier", (*TRAIN, "--task_name=colla"), "colla.*afqmc"),
    ("classifier", (*TRAIN, "--task_name=mrpc"), r"MRPC/train\.tsv"),
    ("classifier", (*TRAIN, "--task_name=ax"), "task ax has no train data"),
    ("classifier", (*TRAIN, "--albert_config_file="), "--albert_config_file"),
    ("classifier", (*TRAIN, "--spm_model_file="), "vocabulary"),
    ("classifier", (*TRAIN, "--num_train_epochs=0.1"), "--train_batch_size=5"),
    ("classifier", (*TRAIN, "--num_runs=2"), "2 runs .*--do_eval"),
    ("classifier", (*TRAIN, "--init_checkpoint=none"), "none: no such checkpoint"),
    ("classifier", (*TRAIN, "--albert_hub_module_handle=https://x/1"), "https://x/1"),
    ("classifier", ("--do_eval",), "out.* no checkpoint"),
    ("classifier", ("--export_dir=/dev/null/x",), "--export_dir: cannot write to"),
    ("race", ("--do_train=False",), "out.* no checkpoint"),
    ("race", ("--middle_only", "--high_only"), "--middle_only and --high_only"),
    ("squad_1", (*TRAIN, "--train_file="), "--do_train requires --train_file"),
    ("squad_1", ("--question=Who?",), "--question and --context"),
    ("squad_1", ("--question=Who?", "--context=Me.", "--predict_file="), "trained model"),
    ("squad_1", (*TRAIN, "--max_seq_length=20"), "--max_seq_length=20"),
    ("squad_2", (*TRAIN, "--start_n_top=54"), "--start_n_top=54"),
]


@pytest.mark.parametrize(("name", "flags", "said"), REFUSALS)
def test_bad_flags_are_refused_before_training(finished, tmp_path, name, flags, said):
    with pytest.raises((ValueError, OSError), match=said):
        finished(name).run(f"--output_dir={tmp_path}/out", *flags)
    assert not list(tmp_path.glob("out/*.index"))


# RACE


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_questions_of_the_test_split_are_answered_and_evaluated(race):
    answers = read_lines(race.out / "race_predictions.jsonl")
    assert [answer["id"] for answer in answers] == ["middle0.txt"] * 3 + ["high0.txt"] * 3
    assert [answer["question"] for answer in answers][:3] == [text for text, *_ in CHOICES]
    right = [answer["answer"] == "ABC"[i % 3] for i, answer in enumerate(answers)]
    text = (race.out / "predict_results.txt").read_text()
    assert text.startswith("***** Predict results *****\neval_accuracy = ")
    values = dict(re.findall(r"(\w+) = (\S+)\n", text))
    assert float(values["eval_accuracy"]) == pytest.approx(sum(right) / 6)
    assert list(values)[-1] == "best"


def test_a_model_can_be_evaluated_and_used_without_training(race, tmp_path):
    race.run(
        *(f"--output_dir={tmp_path}", f"--init_checkpoint={race.out}/model.ckpt-best"),
        *("--do_train=False", "--do_predict", "--middle_only"),
    )
    text = (tmp_path / "eval_results.txt").read_text()
    assert "eval_accuracy_middle" in text
    assert "eval_accuracy_high" not in text
    assert len(read_lines(tmp_path / "race_predictions.jsonl")) == 3
    assert not list(tmp_path.glob("*.index"))

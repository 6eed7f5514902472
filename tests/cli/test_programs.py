"""What all fine-tuning programs promise, as a user runs them."""

from __future__ import annotations

import json
import re

import pytest

from albert_tf import inference
from albert_tf.checkpoints.run_folder import RunFolder
from tests.cli.fine_tuning_programs import (
    CHOICES,
    CONTEXTS,
    LINES,
    PASSAGE,
    QUESTIONS,
    SENTENCES,
)
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
    """The names and values of each block of eval_results.txt."""
    blocks = (folder / "eval_results.txt").read_text().split("=" * 50 + "\n")[:-1]
    return [dict(re.findall(r"([\w ]+) = (\S+)\n", block)) for block in blocks]


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
    found = evaluations(program.out)
    evaluated = list(row.steps[1:])  # not the initial weights
    assert [int(values["global_step"]) for values in found] == evaluated
    for values in found:
        assert set(row.metrics.split()) <= set(values)
    ranks = [rank(row, values) for values in found]
    best = evaluated[ranks.index(max(ranks))]
    assert tensors(program.out / "model.ckpt-best")["global_step"] == best


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


SQUAD = {"question": QUESTIONS[0][2], "context": CONTEXTS[0]}
FIRST_EXAMPLES = {
    "classifier": {"text": SENTENCES[0]},
    "squad_1": SQUAD,
    "squad_2": SQUAD,
    "race": {"passage": PASSAGE, "question": CHOICES[0][0], "options": CHOICES[0][1]},
    "tagger": {"text": LINES[0].replace(".", " .")},
}


def test_a_few_training_examples_are_kept_as_rows_to_predict(program):
    path = program.out / "examples.jsonl"
    kept = list(map(json.loads, path.read_text(encoding="utf-8").splitlines()))
    assert kept[0] == FIRST_EXAMPLES[program.name]
    settings = inference.Settings(model_dir=str(program.out), input_file=str(path))
    assert [row["line"] for row in inference.run(settings)] == [1, 2, 3]


def test_running_again_changes_nothing(program):
    before = contents(program.out)
    program.run(*program.everything)
    assert contents(program.out) == before


@pytest.mark.parametrize(
    ("name", "flags", "said"),
    [
        ("classifier", ("--do_train", "--spm_model_file="), "vocabulary"),
        ("classifier", ("--do_eval",), "out.* no checkpoint"),
        ("squad_2", ("--do_train", "--train_step=2", "--start_n_top=54"), "--start_n_top=54"),
    ],
)
def test_what_only_tensorflow_finds_is_refused_before_training(
    finished, tmp_path, name, flags, said
):
    """Other refusals: test_refusals.py."""
    with pytest.raises((ValueError, OSError), match=said):
        finished(name).run(f"--output_dir={tmp_path}/out", *flags)
    assert not list(tmp_path.glob("out/*.index"))

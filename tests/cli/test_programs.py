"""What all fine-tuning programs promise, as a user runs them."""

from __future__ import annotations

import re

import pytest
from absl import flags as absl_flags

from albert_tf.checkpoints.run_folder import RunFolder
from tests.cli.fine_tuning_programs import ALL, PROGRAMS
from tests.script_runner import logged_rates, tensors

pytestmark = pytest.mark.ci


@pytest.fixture(scope="module", name="program", params=PROGRAMS)
def every_program(request):
    return request.getfixturevalue(request.param)


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
    return float(values[row.metrics[0]]), -float(values.get("eval_loss", 0.0))


def test_every_checkpoint_is_evaluated_and_the_best_is_kept(program):
    row = program.row
    assert tuple(RunFolder(str(program.out)).checkpoints()) == row.steps
    found = [values for values, _ in evaluations(program.out)]
    evaluated = list(row.steps[1:])  # not the initial weights
    assert [int(values["global_step"]) for values in found] == evaluated
    for values in found:
        assert set(row.metrics) <= set(values)
    ranks = [rank(row, values) for values in found]
    best = evaluated[ranks.index(max(ranks))]
    assert tensors(program.out / "model.ckpt-best")["global_step"] == best


@pytest.mark.parametrize(
    ("name", "key"), [("race", "best"), ("squad_1", "best f1"), ("squad_2", "best f1")]
)
def test_googles_block_says_whether_a_checkpoint_is_the_best_so_far(request, name, key):
    program = request.getfixturevalue(name)
    best = (-1.0, 0.0)
    for values, is_saved in evaluations(program.out):
        after = max(best, rank(program.row, values))
        assert is_saved == (after > best)
        assert float(values[key]) == pytest.approx((best if key == "best" else after)[0])
        best = after


def test_all_files_are_written(program):
    names = {path.name for path in program.out.iterdir() if path.is_file()}
    assert program.row.files <= names
    for name in ("training_curve.png", "confusion_matrix.png"):
        assert (name in names) == (name in program.row.files)
        if name in names:
            assert (program.out / name).read_bytes().startswith(b"\x89PNG")
    for name in ("null_odds.json", "predict_results.txt"):
        assert (name in names) == (name in program.row.files)
    if program.row.assets:
        extra = program.saved_model() / "assets.extra"
        assert {path.name for path in extra.iterdir()} == program.row.assets


def test_running_again_changes_nothing(program):
    before = contents(program.out)
    program.run(*program.everything)
    assert contents(program.out) == before


def refusals():
    """Program, flags, and what the error names."""
    nothing = ["--nodo_train", "--nodo_eval", "--nodo_predict"]
    train = ["--do_train", "--train_step=2"]
    rows = [(name, nothing, "nothing to do: ") for name in PROGRAMS if name != "squad_2"]
    return [
        *rows,
        ("classifier", [*train, "--max_seq_length=62"], "--max_seq_length=62 .*=61"),
        ("classifier", [*train, "--max_seq_length=4"], "--max_seq_length=4.* 5 "),
        ("classifier", [*train, "--task_name=colla"], "colla.*afqmc"),
        ("classifier", [*train, "--task_name=mrpc"], r"MRPC/train\.tsv"),
        ("classifier", [*train, "--task_name=ax"], "task ax has no train data"),
        ("classifier", [*train, "--albert_config_file="], "--albert_config_file"),
        ("classifier", [*train, "--spm_model_file="], "vocabulary"),
        ("classifier", [*train, "--num_train_epochs=0.1"], "--train_batch_size=5"),
        ("classifier", [*train, "--num_runs=2"], "2 runs .*--do_eval"),
        ("classifier", [*train, "--learning_rate=1e-5,1e-5"], "--learning_rate=1e-05,1e-05"),
        ("classifier", [*train, "--init_checkpoint=none"], "none: no such checkpoint"),
        ("classifier", [*train, "--use_tpu"], "--use_tpu"),
        (
            "classifier",
            [*train, "--init_checkpoint=a", "--albert_hub_module_handle=b"],
            "init_checkpoint.*albert_hub_module_handle",
        ),
        ("classifier", [*train, "--albert_hub_module_handle=https://x/1"], "https://x/1"),
        ("classifier", ["--do_eval"], "out.* no checkpoint"),
        ("classifier", ["--do_predict"], "out.* no checkpoint"),
        ("classifier", ["--export_dir=/dev/null/x"], "--export_dir: cannot write to"),
        ("race", ["--do_train=False"], "out.* no checkpoint"),
        ("race", ["--middle_only", "--high_only"], "--middle_only and --high_only"),
        ("race", ["--do_eval=False", "--task_name=choice"], r"train\.jsonl"),
        ("squad_1", [*train, "--train_file="], "--do_train requires --train_file"),
        ("squad_1", ["--do_predict", "--predict_file="], "--do_predict requires --predict_file"),
        ("squad_1", ["--question=Who?"], "--question and --context"),
        ("squad_1", ["--question=Who?", "--context=Me.", "--predict_file="], "trained model"),
        ("squad_1", [*train, "--max_seq_length=20"], "--max_seq_length=20"),
        ("squad_2", [*train, "--start_n_top=54"], "--start_n_top=54"),
        ("squad_1", ["--do_predict"], "out.* no checkpoint"),
    ]


@pytest.mark.parametrize(("name", "flags", "named"), refusals())
def test_bad_flags_are_refused_before_training(request, tmp_path, name, flags, named):
    program = request.getfixturevalue(name)
    with pytest.raises((ValueError, OSError), match=named):
        program.run(f"--output_dir={tmp_path}/out", *flags)
    assert not list(tmp_path.glob("out/*.index"))


@pytest.mark.parametrize("rates", ["fast", "-1"])
def test_a_learning_rate_that_is_no_positive_number_is_refused(classifier, tmp_path, rates):
    with pytest.raises(absl_flags.Error, match="--learning_rate"):
        classifier.run(f"--output_dir={tmp_path}", *ALL, f"--learning_rate={rates}")

"""The demo's bookkeeping: steps that are done, chance, results and the plot."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import subprocess
import sys

import demo
import demo_report
import pytest

from tests.conftest import ROOT

STEPS = [demo.Step(name, "x.py", {"n": 1}, "") for name in ("one", "two", "three")]


def steps_in(folder):
    return [dataclasses.replace(step, output=str(folder / step.name)) for step in STEPS]


def finish(progress, steps):
    for step in steps:
        with open(step.output, "w", encoding="utf-8"):
            progress.add(step)


def test_a_second_run_goes_on_behind_what_is_done(tmp_path):
    steps = steps_in(tmp_path)
    finish(demo.Progress(str(tmp_path), "a"), steps[:2])
    again = demo.Progress(str(tmp_path), "a")
    assert [again.covers(step) for step in steps] == [True, True, False]


def test_what_is_gone_is_made_anew_with_all_that_depends_on_it(tmp_path):
    steps = steps_in(tmp_path)
    finish(demo.Progress(str(tmp_path), "a"), steps)
    (tmp_path / "two").unlink()
    again = demo.Progress(str(tmp_path), "a")
    assert [again.covers(step) for step in steps] == [True, False, False]


def test_other_settings_start_anew_and_delete_nothing(tmp_path):
    steps = steps_in(tmp_path)
    finish(demo.Progress(str(tmp_path), "a"), steps)
    again = demo.Progress(str(tmp_path), "b")
    assert not any(again.covers(step) for step in steps)
    (aside,) = tmp_path.glob("earlier-*")
    assert {path.name for path in aside.iterdir()} == {"one", "two", "three", "progress.json"}


def test_a_failing_step_stops_the_demo_and_is_not_done(tmp_path, capfd):
    step = demo.Step("fail", "examples/no_such_program.py", {}, str(tmp_path / "out"))
    progress = demo.Progress(str(tmp_path), "a")
    with pytest.raises(SystemExit, match="exit code 2"):
        demo.run_steps([step], progress)
    assert not progress.done
    assert "no_such_program" in capfd.readouterr().err


def test_a_vocabulary_that_a_killed_step_left_is_replaced():
    (step,) = [s for s in demo.make_steps("d") if s.program.endswith(" train-vocabulary")]
    assert "--overwrite=True" in step.command()


def test_an_empty_folder_is_refused_by_its_flag():
    command = [sys.executable, str(ROOT / "examples" / "demo.py"), "--demo_dir="]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "flag --demo_dir=: expected a folder" in done.stderr
    assert "Traceback" not in done.stderr


def test_every_step_runs_a_program_of_the_repository():
    for step in demo.make_steps("demo"):
        assert step.program.startswith("-m albert_tf ") or (ROOT / step.program).is_file()
        assert step.output.startswith("demo/")


def test_results_are_read_one_checkpoint_after_another(tmp_path):
    path = tmp_path / "eval_results.txt"
    path.write_text(
        "# Computed in bfloat16\nglobal_step = 5\nloss = 7.5\nglobal_step = 2\nloss = 8.5\n"
    )
    assert demo_report.read_results(str(path)) == [
        {"global_step": 2, "loss": 8.5},
        {"global_step": 5, "loss": 7.5},
    ]


def test_chance_is_the_best_constant_answer_and_padding_does_not_count(records):
    chance = demo_report.count_chance(records)
    assert chance.token_id == 7
    assert math.isclose(chance.masked_lm_accuracy, 3 / 6)
    assert math.isclose(chance.sentence_order_accuracy, 2 / 3)


def test_the_plot_and_the_summary_are_made_of_the_files(tmp_path):
    keys = ("loss", "masked_lm_accuracy", "sentence_order_accuracy")
    rows = [{"step": step, **dict.fromkeys(keys, step / 100)} for step in (10, 20, 30)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    results = [{"global_step": 30.0, **dict.fromkeys(keys, 0.25)}]
    chance = demo_report.Chance(7, 0.1, 0.5)
    plot_file = tmp_path / "curve.png"
    demo_report.draw_curves(str(tmp_path), results, chance, str(plot_file))
    assert plot_file.read_bytes().startswith(b"\x89PNG")
    text = demo_report.describe(results[0], chance, "▁the")
    assert 'always "the"' in text
    assert "2.5 times" in text


def test_the_result_of_the_task_stands_beside_the_commonest_package(tmp_path):
    (tmp_path / "task").mkdir()
    (tmp_path / "classifier").mkdir()
    rows = [("A b c.", "email"), ("D e f.", "xml"), ("G h i.", "email")]
    lines = ["sentence\tlabel", *("\t".join(row) for row in rows)]
    (tmp_path / "task" / "dev.tsv").write_text("\n".join(lines) + "\n")
    (tmp_path / "classifier" / "best_trial.txt").write_text("300:200:0.75")
    result = demo_report.read_task_result(str(tmp_path))
    assert result == demo_report.TaskResult(0.75, "email", 2 / 3, 2)
    text = demo_report.describe_task(result)
    assert "0.750   0.667 (always email)" in text


@pytest.mark.parametrize("lacking", [None, "words", "packages"])
def test_the_demo_demands_that_everything_is_learned(lacking):
    learned = {"words": 0.13, "packages": 0.57}
    if lacking:
        learned[lacking] -= 0.02
    results = {"masked_lm_accuracy": learned["words"]}
    chance = demo_report.Chance(7, 0.1, 0.595)
    task_result = demo_report.TaskResult(learned["packages"], "email", 0.4, 3)
    assert demo_report.has_learned(results, chance, task_result) == (lacking is None)


def test_the_figures_of_the_long_run_are_those_of_the_page_it_names():
    page = (ROOT / "docs" / "reproduction.md").read_text("utf-8")
    assert "docs/reproduction.md" in demo_report.LONG_RUN
    for row in (
        "| 5,000 | 0.265 | 0.734 |",
        '| best constant answer | 0.062 (always ".") | 0.574 |',
    ):
        assert row in page
        for figure in re.findall(r"0\.\d+", row):
            assert figure in demo_report.LONG_RUN

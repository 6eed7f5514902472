"""The runs of a sweep, their comparison, and its files."""

from __future__ import annotations

import csv
import dataclasses
import statistics

import pytest

from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.finetuning import sweeps
from albert_tf.finetuning.settings import FineTuningSettings
from albert_tf.finetuning.sweeps import Result

METRIC = "eval_accuracy"
RATES = (1e-5, 2e-5, 5e-5)


def make_settings(output_dir, rates, num_runs=1, seed=7):
    return FineTuningSettings(
        output_dir=str(output_dir), learning_rate=rates, num_runs=num_runs, seed=seed, do_eval=True
    )


def results(folder, values):
    return [
        Result(
            make_settings(f"{folder}/r{i}", rate, seed=seed),
            10 * i,
            {METRIC: value, "eval_loss": 1.5},
        )
        for i, (rate, seed, value) in enumerate(values)
    ]


@pytest.mark.parametrize("rates", [5e-5, (5e-5,)])
def test_a_single_run_writes_to_the_output_directory_itself(rates):
    assert sweeps.plan_runs(make_settings("out", rates)) == [make_settings("out", 5e-5)]


def test_each_learning_rate_and_seed_has_a_separate_folder():
    runs = sweeps.plan_runs(make_settings("out", RATES, 2))
    assert [(run.learning_rate, run.seed) for run in runs] == [
        (rate, seed) for rate in RATES for seed in (7, 8)
    ]
    folders = [run.output_dir for run in runs]
    assert folders[0] == "out/lr1e-05_seed7"
    assert len(set(folders)) == 6
    # A sweep that is extended keeps its existing folders.
    more = sweeps.plan_runs(make_settings("out", (*RATES, 1e-4), 3))
    assert set(folders) < {run.output_dir for run in more}


@pytest.mark.parametrize("rates", [(), (1e-5, 2e-5, 1e-5)])
def test_learning_rates_must_be_distinct(rates):
    with pytest.raises(ValueError, match=r"--learning_rate=.*: expected one or more"):
        sweeps.plan_runs(make_settings("out", rates))


def test_several_runs_require_a_dev_set():
    settings = dataclasses.replace(make_settings("out", 1e-5, 2), do_eval=False)
    with pytest.raises(ValueError, match="2 runs are compared on the dev set: set --do_eval"):
        sweeps.plan_runs(settings)


def test_one_run_has_one_learning_rate():
    assert sweeps.learning_rate_of(make_settings("out", 1e-5)) == 1e-5
    with pytest.raises(ValueError, match="a run has a single learning rate"):
        sweeps.learning_rate_of(make_settings("out", RATES))


def test_the_summary_has_median_mean_and_deviation_for_each_learning_rate():
    values = [0.5, 0.75, 0.625, 0.25]
    found = results("out", [(1e-5, seed, value) for seed, value in enumerate(values)])
    found += results("out", [(2e-5, 0, 0.6875)])
    text = sweeps.format_summary(found, METRIC)
    numbers = [line.split() for line in text.splitlines() if line.strip().startswith(("1e", "2e"))]
    assert [float(row[3]) for row in numbers[:5]] == [*values, 0.6875]
    rate, count, median, mean, deviation, least, largest = map(float, numbers[5])
    assert (rate, count, least, largest) == (1e-5, 4, 0.25, 0.75)
    assert median == pytest.approx(statistics.median(values), abs=1e-4)
    assert mean == pytest.approx(statistics.mean(values), abs=1e-4)
    assert deviation == pytest.approx(statistics.stdev(values), abs=1e-4)
    assert numbers[6] == ["2e-05", "1", "0.6875", "0.6875", "-", "0.6875", "0.6875"]
    assert text.endswith("best: out/r1\n")


def test_the_table_has_a_row_per_run_with_all_metrics(tmp_path):
    found = results(tmp_path, [(1e-5, 7, 0.5), (2e-5, 7, 0.75)])
    found.append(Result(make_settings("bad", 1.0), remark="diverged"))
    sweeps.write_comparison(RunFolder(str(tmp_path)), found, METRIC)
    summary = (tmp_path / "sweep_results.txt").read_text()
    assert summary == sweeps.format_summary(found, METRIC)
    with open(tmp_path / "sweep_results.tsv", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t"))
    assert [row["learning_rate"] for row in rows] == ["1e-05", "2e-05", "1"]
    assert [row[METRIC] for row in rows] == ["0.5", "0.75", ""]
    assert [row["remark"] for row in rows] == ["", "", "diverged"]
    assert rows[1]["eval_loss"] == "1.5"


def test_the_first_of_equal_runs_is_best_and_a_missing_best_is_reported():
    found = results("out", [(1e-5, 7, 0.5), (2e-5, 7, 0.5)])
    assert sweeps.best_result(found, METRIC) is found[0]
    with pytest.raises(ValueError, match="no run has a best checkpoint: diverged"):
        sweeps.best_result([Result(make_settings("a", 1.0), remark="diverged")], METRIC)

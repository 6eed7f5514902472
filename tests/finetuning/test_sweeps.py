"""The runs of a sweep, and the comparison of their results."""

import csv
import statistics

import pytest

from albert_tf.finetuning import sweep
from albert_tf.finetuning.result import RunResult
from albert_tf.finetuning.settings import FineTuningSettings

METRIC = "eval_accuracy"
RATES = (1e-5, 2e-5, 5e-5)


def make_settings(output_dir, rates, num_runs=1, seed=7, do_eval=True):
    return FineTuningSettings(
        output_dir=output_dir, learning_rate=rates, num_runs=num_runs, seed=seed, do_eval=do_eval
    )


def result(name, rate, seed, value):
    settings = make_settings(name, rate, seed=seed)
    return RunResult(settings, 10 * seed, {METRIC: value, "eval_loss": 1.5})


@pytest.mark.parametrize("rates", [5e-5, (5e-5,)])
def test_a_single_run_writes_to_the_output_directory_itself(rates):
    assert make_settings("out", rates).runs() == [make_settings("out", 5e-5)]


def test_each_learning_rate_and_seed_has_its_own_folder():
    runs = make_settings("out", RATES, 2).runs()
    assert [(run.learning_rate, run.seed, run.output_dir) for run in runs] == [
        (rate, seed, f"out/lr{rate}_seed{seed}") for rate in RATES for seed in (7, 8)
    ]


def test_the_files_have_all_metrics_of_each_run_and_statistics_of_each_learning_rate(tmp_path):
    values = [0.5, 0.75, 0.625, 0.25]
    found = [result(f"r{seed}", 1e-5, seed, value) for seed, value in enumerate(values)]
    found.append(result("r4", 2e-5, 0, 0.6875))
    found.append(RunResult(make_settings("bad", 1.0), remark="diverged"))
    sweep.write_comparison(str(tmp_path), found, METRIC)
    with open(tmp_path / "sweep_results.tsv", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t"))
    assert [row["learning_rate"] for row in rows] == ["1e-05"] * 4 + ["2e-05", "1"]
    assert [row[METRIC] for row in rows] == ["0.5", "0.75", "0.625", "0.25", "0.6875", ""]
    assert [row["remark"] for row in rows] == [""] * 5 + ["diverged"]
    assert rows[1]["eval_loss"] == "1.5"

    summary = (tmp_path / "sweep_results.txt").read_text().splitlines()
    assert [line.split() for line in summary] == [
        ["learning_rate", "seed", "step", METRIC],
        *(["1e-05", str(n), str(10 * n), f"{value:.4f}"] for n, value in enumerate(values)),
        ["2e-05", "0", "0", "0.6875"],
        ["1", "7", "0", "diverged"],
        [],
        "learning_rate runs median mean deviation least largest".split(),
        ["1e-05", "4", "0.5625", "0.5312", f"{statistics.stdev(values):.4f}", "0.2500", "0.7500"],
        ["2e-05", "1", "0.6875", "0.6875", "-", "0.6875", "0.6875"],
        ["1", "0", *"-----"],
        ["best:", "r1"],
    ]


def test_the_first_of_equal_runs_is_best_and_a_missing_best_is_reported():
    found = [result("r0", 1e-5, 7, 0.5), result("r1", 2e-5, 7, 0.5)]
    assert sweep.best_result(found, METRIC) is found[0]
    with pytest.raises(ValueError, match="no run has a best checkpoint: diverged"):
        sweep.best_result([RunResult(make_settings("a", 1.0), remark="diverged")], METRIC)

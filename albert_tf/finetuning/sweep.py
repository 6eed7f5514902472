"""Sweeps: a loop around a run, and tables that compare the runs."""

from __future__ import annotations

import csv
import io
import math
import os
import statistics
from collections.abc import Callable, Sequence

from absl import logging

from albert_tf import files
from albert_tf.checkpoints.run_folder import BEST_OF_SWEEP, SWEEP_SUMMARY
from albert_tf.finetuning.result import RunResult
from albert_tf.finetuning.settings import SWEEP_TABLE, FineTuningSettings


def run_all(
    runs: Sequence[FineTuningSettings],
    run_one: Callable[[FineTuningSettings], tuple[RunResult, str]],
    output_dir: str,
    metric: str,
) -> tuple[RunResult, str]:
    """Runs a sweep, and writes the comparison of its runs after each one.

    A run whose loss is not finite does not end the sweep.

    Args:
        runs: the settings of the runs; see `FineTuningSettings.runs`.
        run_one: runs one of them, and returns its result and its text.
        output_dir: folder of the sweep.
        metric: the selection metric.

    Returns:
        The best result, and the texts of all runs.

    Raises:
        ValueError: no run has a best checkpoint.
    """
    results: list[RunResult] = []
    texts = ""
    for number, run in enumerate(runs, 1):
        logging.info("Run %d of %d: %s", number, len(runs), run.output_dir)
        try:
            result, text = run_one(run)
        except ArithmeticError as error:
            logging.error("%s: %s", run.output_dir, error)
            result, text = RunResult(run, remark="diverged"), ""
        results.append(result)
        texts += text if run.output_dir in text else f"{run.output_dir}:\n{text}"
        write_comparison(output_dir, results, metric)
    return best_result(results, metric), texts


def best_result(results: Sequence[RunResult], metric: str) -> RunResult:
    """Returns the result with the largest value of a metric; the first one if there are ties.

    Raises:
        ValueError: no run has a best checkpoint.
    """
    measured = [result for result in results if metric in result.metrics]
    if not measured:
        raise ValueError("no run has a best checkpoint: " + "; ".join(r.remark for r in results))
    return max(measured, key=lambda result: result.metrics[metric])


def format_summary(results: Sequence[RunResult], metric: str) -> str:
    """Returns a text table of all runs, and statistics of the metric for each learning rate.

    The deviation is the sample standard deviation (n - 1), which requires at least two runs.
    """
    lines = [f"{'learning_rate':>13} {'seed':>10} {'step':>8} {metric:>16}"]
    for result in results:
        value = f"{result.metrics[metric]:16.4f}" if metric in result.metrics else result.remark
        seed = result.settings.seed
        lines.append(f"{result.learning_rate:13g} {seed:10d} {result.step:8d} {value:>16}")
    lines.append("")
    heads = ("runs", "median", "mean", "deviation", "least", "largest")
    lines.append(f"{'learning_rate':>13}" + "".join(f"{head:>11}" for head in heads))
    for rate in dict.fromkeys(result.learning_rate for result in results):
        measured = [result.metrics for result in results if result.learning_rate == rate]
        values = [metrics[metric] for metrics in measured if metric in metrics]
        numbers = [math.nan] * 5
        if values:
            deviation = statistics.stdev(values) if len(values) > 1 else math.nan
            median = statistics.median(values)
            mean = statistics.fmean(values)
            numbers = [median, mean, deviation, min(values), max(values)]
        cells = "".join("          -" if math.isnan(x) else f"{x:11.4f}" for x in numbers)
        lines.append(f"{rate:13g}{len(values):11d}{cells}")
    if any(metric in result.metrics for result in results):
        lines.append(BEST_OF_SWEEP + best_result(results, metric).settings.output_dir)
    return "\n".join(lines) + "\n"


def write_comparison(output_dir: str, results: Sequence[RunResult], metric: str) -> None:
    """Writes `sweep_results.tsv`, with all metrics of each run, and `sweep_results.txt`.

    Args:
        output_dir: folder of the sweep, which exists.
        results: the results so far, in the order of the runs.
        metric: the selection metric.
    """
    keys = sorted({key for result in results for key in result.metrics})
    table = io.StringIO()
    writer = csv.writer(table, delimiter="\t", lineterminator="\n")
    writer.writerow(["folder", "learning_rate", "seed", "step", *keys, "remark"])
    for result in results:
        run = result.settings
        numbers = [result.step, *(result.metrics.get(key, "") for key in keys)]
        writer.writerow(
            [run.output_dir, f"{run.single_learning_rate:g}", run.seed, *numbers, result.remark]
        )
    summary = format_summary(results, metric)
    for name, content in ((SWEEP_TABLE, table.getvalue()), (SWEEP_SUMMARY, summary)):
        files.write_file(os.path.join(output_dir, name), content)
    logging.info("Results so far:\n%s", summary)

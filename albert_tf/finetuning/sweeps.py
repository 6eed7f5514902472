"""Runs sweeps over learning rates and seeds, and compares their results.

A single run writes to the output directory itself. Each run of a sweep writes to a subfolder, named
after learning rate and seed, so that finished runs are not repeated when others are added.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import math
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from absl import logging

from albert_tf import files
from albert_tf.finetuning.settings import FineTuningSettings

TABLE_FILE = "sweep_results.tsv"
SUMMARY_FILE = "sweep_results.txt"

SettingsType = TypeVar("SettingsType", bound=FineTuningSettings)


@dataclass(frozen=True)
class Result:
    """The result of a run.

    Attributes:
        settings: the settings of the run, with its folder, learning rate and seed.
        step: the step of its best checkpoint.
        metrics: the metrics of its best checkpoint; empty if there is none.
        remark: the reason if there is none.
    """

    settings: Any
    step: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    remark: str = ""


def plan_runs(settings: SettingsType) -> list[SettingsType]:
    """Returns the settings of each run: each learning rate with `num_runs` seeds from `seed` on.

    Raises:
        ValueError: there is no learning rate or a duplicate one, or several runs and no dev set.
    """
    rates = settings.learning_rate
    if not isinstance(rates, tuple):
        rates = (rates,)
    if not rates or len(set(rates)) < len(rates):
        raise ValueError(
            f"--learning_rate={','.join(f'{rate:g}' for rate in rates)}: expected one or more "
            "different numbers"
        )
    if len(rates) == settings.num_runs == 1:
        return [dataclasses.replace(settings, learning_rate=rates[0])]
    runs = [
        dataclasses.replace(
            settings,
            output_dir=os.path.join(settings.output_dir, f"lr{rate:g}_seed{seed}"),
            learning_rate=rate,
            seed=seed,
        )
        for rate in rates
        for seed in range(settings.seed, settings.seed + settings.num_runs)
    ]
    if "dev" not in settings.splits:
        raise ValueError(f"{len(runs)} runs are compared on the dev set: set --do_eval as well")
    return runs


def run_all(
    runs: Sequence[SettingsType],
    run_one: Callable[[SettingsType], tuple[Result, str]],
    output_dir: str,
    metric: str,
) -> tuple[Result, str]:
    """Runs a sweep, and writes the comparison of its runs after each one.

    A run whose loss is not finite does not end the sweep.

    Args:
        runs: the settings of the runs; see `plan_runs`.
        run_one: runs one of them, and returns its result and its text.
        output_dir: folder of the sweep.
        metric: the selection metric.

    Returns:
        The best result, and the texts of all runs.

    Raises:
        ValueError: no run has a best checkpoint.
    """
    results: list[Result] = []
    texts = ""
    for number, run in enumerate(runs, 1):
        logging.info("Run %d of %d: %s", number, len(runs), run.output_dir)
        try:
            result, text = run_one(run)
        except ArithmeticError as error:
            logging.error("%s: %s", run.output_dir, error)
            result, text = Result(run, remark="diverged"), ""
        results.append(result)
        texts += text if run.output_dir in text else f"{run.output_dir}:\n{text}"
        write_comparison(output_dir, results, metric)
    return best_result(results, metric), texts


def best_result(results: Sequence[Result], metric: str) -> Result:
    """Returns the result with the largest value of a metric; the first one if there are ties.

    Raises:
        ValueError: no run has a best checkpoint.
    """
    measured = [result for result in results if metric in result.metrics]
    if not measured:
        raise ValueError("no run has a best checkpoint: " + "; ".join(r.remark for r in results))
    return max(measured, key=lambda result: result.metrics[metric])


def format_summary(results: Sequence[Result], metric: str) -> str:
    """Returns a text table of all runs, and statistics of the metric for each learning rate.

    The deviation is the sample standard deviation (n - 1), which requires at least two runs.
    """
    lines = [f"{'learning_rate':>13} {'seed':>10} {'step':>8} {metric:>16}"]
    for result in results:
        value = f"{result.metrics[metric]:16.4f}" if metric in result.metrics else result.remark
        seed = result.settings.seed
        lines.append(f"{result.settings.learning_rate:13g} {seed:10d} {result.step:8d} {value:>16}")
    lines.append("")
    heads = ("runs", "median", "mean", "deviation", "least", "largest")
    lines.append(f"{'learning_rate':>13}" + "".join(f"{head:>11}" for head in heads))
    for rate in dict.fromkeys(result.settings.learning_rate for result in results):
        measured = [result.metrics for result in results if result.settings.learning_rate == rate]
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
        lines.append(f"best: {best_result(results, metric).settings.output_dir}")
    return "\n".join(lines) + "\n"


def write_comparison(output_dir: str, results: Sequence[Result], metric: str) -> None:
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
            [run.output_dir, f"{run.learning_rate:g}", run.seed, *numbers, result.remark]
        )
    summary = format_summary(results, metric)
    for name, content in ((TABLE_FILE, table.getvalue()), (SUMMARY_FILE, summary)):
        with files.write_atomically(os.path.join(output_dir, name)) as stream:
            stream.write(content)
    logging.info("Results so far:\n%s", summary)


def read_folders(output_dir: str) -> list[str]:
    """Returns the folders of the runs in `sweep_results.tsv`; [] if there is no such file.

    Args:
        output_dir: the folder of the sweep, which may have been moved with its runs.
    """
    path = os.path.join(output_dir, TABLE_FILE)
    if not files.exists(path):
        return []
    rows = csv.DictReader(files.read_text(path).splitlines(), delimiter="\t")
    return [os.path.join(output_dir, os.path.basename(row["folder"])) for row in rows]

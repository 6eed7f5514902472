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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from absl import logging

from albert_tf import files
from albert_tf.checkpoints.run_folder import RunFolder
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

    settings: FineTuningSettings
    step: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    remark: str = ""

    @property
    def learning_rate(self) -> float:
        """Peak learning rate of the run."""
        return learning_rate_of(self.settings)


def learning_rate_of(run: FineTuningSettings) -> float:
    """Returns the learning rate of a run planned by `plan_runs`."""
    if isinstance(run.learning_rate, tuple):
        raise ValueError(f"learning_rate={run.learning_rate}: a run has a single learning rate")
    return run.learning_rate


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
        lines.append(f"best: {best_result(results, metric).settings.output_dir}")
    return "\n".join(lines) + "\n"


def write_comparison(folder: RunFolder, results: Sequence[Result], metric: str) -> None:
    """Writes `sweep_results.tsv`, with all metrics of each run, and `sweep_results.txt`.

    Args:
        folder: folder of the sweep, which exists.
        results: the results so far, in the order of the runs.
        metric: the selection metric.
    """
    keys = sorted({key for result in results for key in result.metrics})
    table = io.StringIO()
    writer = csv.writer(table, delimiter="\t", lineterminator="\n")
    writer.writerow(["folder", "learning_rate", "seed", "step", *keys, "remark"])
    for result in results:
        output_dir, seed = result.settings.output_dir, result.settings.seed
        numbers = [result.metrics.get(key, "") for key in keys]
        row = [output_dir, f"{result.learning_rate:g}", seed, result.step, *numbers, result.remark]
        writer.writerow(row)
    summary = format_summary(results, metric)
    for name, content in ((TABLE_FILE, table.getvalue()), (SUMMARY_FILE, summary)):
        with files.write_atomically(folder.file(name)) as stream:
            stream.write(content)
    logging.info("Results so far:\n%s", summary)


def read_folders(output_dir: str) -> list[str]:
    """Returns the folders of the runs in `sweep_results.tsv`; [] if there is no such file.

    Args:
        output_dir: the folder of the sweep, which may have been moved with its runs.

    Raises:
        ValueError: the file is damaged.
    """
    path = os.path.join(output_dir, TABLE_FILE)
    if not files.exists(path):
        return []
    header, *rows = csv.reader(files.read_text(path).splitlines() or [""], delimiter="\t")
    if header[:1] != ["folder"] or not all(rows):
        raise ValueError(f"{path}: expected a table of runs whose first column is their folder")
    return [os.path.join(output_dir, os.path.basename(row[0])) for row in rows]

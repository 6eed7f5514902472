"""Several runs of one training: other seeds, other learning rates, and what came of them.

A run that is alone goes into the output directory itself. Several have a folder each in it, named
after what is theirs alone, so that one that is finished is not repeated when others are added.
"""

from __future__ import annotations

import csv
import io
import math
import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from absl import logging

from albert_tf import files

TABLE_FILE = "sweep_results.tsv"
SUMMARY_FILE = "sweep_results.txt"


@dataclass(frozen=True)
class Run:
    """One training.

    Attributes:
        folder: where it goes.
        learning_rate: its peak.
        seed: of weights, dropout and the order of the data.
    """

    folder: str
    learning_rate: float
    seed: int


@dataclass(frozen=True)
class Result:
    """What came of a run.

    Attributes:
        run: which.
        step: of its best checkpoint.
        metrics: of that; empty for a run that has no best checkpoint.
        remark: why it has none.
    """

    run: Run
    step: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    remark: str = ""


def plan_runs(
    output_dir: str, learning_rates: Sequence[float], num_runs: int, seed: int
) -> list[Run]:
    """The runs: each learning rate with the seeds from `seed` to `seed + num_runs - 1`.

    Raises:
        ValueError: no learning rate, or one of them twice.
    """
    if not learning_rates or len(set(learning_rates)) < len(learning_rates):
        raise ValueError(
            f"--learning_rate={','.join(f'{rate:g}' for rate in learning_rates)}: one or more "
            "numbers were expected, each once"
        )
    if len(learning_rates) == num_runs == 1:
        return [Run(output_dir, learning_rates[0], seed)]
    return [
        Run(os.path.join(output_dir, f"lr{rate:g}_seed{number}"), rate, number)
        for rate in learning_rates
        for number in range(seed, seed + num_runs)
    ]


def make_runs(
    runs: Sequence[Run],
    make: Callable[[Run], Result],
    output_dir: str,
    metric: str,
) -> Run:
    """Makes one run after the other, and compares several.

    A run that diverges is noted, and the others go on; if it is alone, its error is raised.

    Args:
        runs: of `plan_runs`.
        make: trains and evaluates.
        output_dir: where the comparison goes.
        metric: what the runs are compared by.

    Returns:
        the best run.

    Raises:
        ValueError: none of several runs came to a best checkpoint.
    """
    if len(runs) == 1:
        make(runs[0])
        return runs[0]
    results: list[Result] = []
    for number, run in enumerate(runs, 1):
        logging.info("Run %d of %d: %s", number, len(runs), run.folder)
        try:
            results.append(make(run))
        except ArithmeticError as error:  # the loss is not finite
            logging.error("%s: %s", run.folder, error)
            results.append(Result(run, remark="diverged"))
        logging.info("Results so far:\n%s", write_comparison(output_dir, results, metric))
    return best_result(results, metric).run


def best_result(results: Sequence[Result], metric: str) -> Result:
    """The result with the largest value of a metric, the first of equal ones.

    Raises:
        ValueError: no run has come to one.
    """
    found = [result for result in results if metric in result.metrics]
    if not found:
        raise ValueError("no run has a best checkpoint: " + "; ".join(r.remark for r in results))
    return max(found, key=lambda result: result.metrics[metric])


def values_by_rate(results: Sequence[Result], metric: str) -> dict[float, list[float]]:
    """Learning rate → the metric in its runs, those left out that have none."""
    values: dict[float, list[float]] = {result.run.learning_rate: [] for result in results}
    for result in results:
        if metric in result.metrics:
            values[result.run.learning_rate].append(result.metrics[metric])
    return values


def format_summary(results: Sequence[Result], metric: str) -> str:
    """All runs, and median, mean and deviation of the metric for each learning rate, as text.

    The deviation is that of a sample, with n - 1; it takes two runs to have one.
    """
    lines = [f"{'learning_rate':>13} {'seed':>10} {'step':>8} {metric:>16}"]
    for result in results:
        run = result.run
        value = f"{result.metrics[metric]:16.4f}" if metric in result.metrics else result.remark
        lines.append(f"{run.learning_rate:13g} {run.seed:10d} {result.step:8d} {value:>16}")
    lines.append("")
    heads = ("runs", "median", "mean", "deviation", "least", "largest")
    lines.append(f"{'learning_rate':>13}" + "".join(f"{head:>11}" for head in heads))
    for rate, values in values_by_rate(results, metric).items():
        deviation = statistics.stdev(values) if len(values) > 1 else math.nan
        numbers = (
            [statistics.median(values), statistics.fmean(values), deviation, min(values)]
            if values
            else [math.nan] * 4
        )
        numbers.append(max(values, default=math.nan))
        cells = "".join("          -" if math.isnan(x) else f"{x:11.4f}" for x in numbers)
        lines.append(f"{rate:13g}{len(values):11d}{cells}")
    if any(metric in result.metrics for result in results):
        lines.append(f"best: {best_result(results, metric).run.folder}")
    return "\n".join(lines) + "\n"


def write_comparison(output_dir: str, results: Sequence[Result], metric: str) -> str:
    """Writes `sweep_results.tsv`, a row a run with all metrics, and `sweep_results.txt`.

    Args:
        output_dir: an existing folder.
        results: in the order of the runs.
        metric: what the runs are compared by.

    Returns:
        the text of `sweep_results.txt`, as `format_summary` makes it.
    """
    keys = sorted({key for result in results for key in result.metrics})
    table = io.StringIO()
    writer = csv.writer(table, delimiter="\t", lineterminator="\n")
    writer.writerow(["folder", "learning_rate", "seed", "step", *keys, "remark"])
    for result in results:
        run = result.run
        numbers = [result.metrics.get(key, "") for key in keys]
        row = [run.folder, f"{run.learning_rate:g}", run.seed, result.step, *numbers, result.remark]
        writer.writerow(row)
    summary = format_summary(results, metric)
    for name, content in ((TABLE_FILE, table.getvalue()), (SUMMARY_FILE, summary)):
        with files.write_atomically(os.path.join(output_dir, name)) as stream:
            stream.write(content)
    return summary

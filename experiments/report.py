"""Reads the description of an experiment, and writes its table and its plot."""

from __future__ import annotations

import dataclasses
import os
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from matplotlib.figure import Figure

from albert_tf import files

TABLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tables")
Results = dict[str, list[dict[str, float]]]  # row → the results of its runs
RESULT = "result.json"
SETTINGS = "settings.json"
PARTS = {"rows": ("config", "data", "training", "phases", "paper"), "held_out": ("data", "config")}
# The results of a run, and those of its evaluation on each of the held-out records.
OF_RUN = ("parameters", "tokens_per_second", "task")
OF_EVALUATION = ("masked", "masked_loss", "sentence")


@dataclasses.dataclass(frozen=True)
class Table:
    """An experiment, as read from its file.

    Attributes:
        title: title of the table.
        source: where the paper's numbers come from.
        rows: name → changes of "config", "data" and "training"; "phases", a list of more changes
            of "config" and "training", trains in several parts, each from the weights of the one
            before; "paper", column → number.
        held_out: name → "data" of the records to evaluate on, and changes of the "config".
        columns: title → result to show: "parameters", "tokens_per_second", "task" (the accuracy
            after fine-tuning, which is only done for this) or one of `evaluate`.
        config: changes of the config in all rows.
        training: changes of the settings of pre-training in all rows.
        fine_tuning: changes of the settings of fine-tuning in all rows.
        vocab_size: size of the vocabulary.
        max_seq_length: length of the sequences.
        max_predictions_per_seq: maximum number of masked tokens of a sequence.
        megabytes: train on the first so many megabytes of the corpus only; 0 for all of it.
    """

    title: str
    source: str
    rows: dict[str, dict[str, Any]]
    held_out: dict[str, dict[str, Any]]
    columns: dict[str, str]
    config: dict[str, Any] = dataclasses.field(default_factory=dict)
    training: dict[str, Any] = dataclasses.field(default_factory=dict)
    fine_tuning: dict[str, Any] = dataclasses.field(default_factory=dict)
    # Short sequences of few different pieces, of which a small model learns more in the same time.
    vocab_size: int = 1000
    max_seq_length: int = 64
    max_predictions_per_seq: int = 10
    megabytes: float = 0.0

    @property
    def lengths(self) -> dict[str, int]:
        """The sizes of sequences, as settings of the programs."""
        return {name: getattr(self, name) for name in ("max_seq_length", "max_predictions_per_seq")}


def read_table(name: str) -> Table:
    """Returns a table.

    Raises:
        ValueError: there is no such table, or its file does not describe one.
    """
    path = name if name.endswith(".json") else os.path.join(TABLES, f"{name}.json")
    if not files.is_file(path):
        tables = sorted(entry[:-5] for entry in os.listdir(TABLES) if entry.endswith(".json"))
        raise ValueError(f"--table={name}: expected a file .json, or one of {', '.join(tables)}")
    try:
        table = Table(**files.read_json(path))
    except TypeError as error:
        raise ValueError(f"{path}: not the description of a table ({error})") from None
    results = [f"{name}/{metric}" for name in table.held_out for metric in OF_EVALUATION]
    for title, key in table.columns.items():
        _check_known(f"{path}, column {title!r}", [key], [*OF_RUN, *results])
    for kind, parts in PARTS.items():
        for entry, changes in getattr(table, kind).items():
            _check_known(f"{path}, {kind}, {entry!r}", changes, parts)
    return table


def _check_known(place: str, names: Iterable[str], expected: Sequence[str]) -> None:
    """Refuses a name that nothing would read."""
    for name in names:
        if name not in expected:
            raise ValueError(f"{place}: unknown {name!r}; expected one of {', '.join(expected)}")


def folder_of(folder: str, row: str, seed: int) -> str:
    """Returns the folder of a run."""
    return os.path.join(folder, f"{row.replace(' ', '_').replace('/', '_')}-{seed}")


def results_of(table: Table, folder: str, seeds: int) -> Results:
    """Returns the results of each row that has any, one for each seed."""
    results: Results = {}
    for row in table.rows:
        places = [folder_of(folder, row, seed) for seed in range(1, seeds + 1)]
        paths = [os.path.join(place, RESULT) for place in places]
        if existing := [files.read_json(path) for path in paths if files.is_file(path)]:
            results[row] = existing
    return results


def keep_settings(table: Table, shared: dict[str, Any], folder: str) -> None:
    """Records what the runs in a folder were trained with, so that results are not mixed up.

    Args:
        table: the experiment.
        shared: what all rows have in common.
        folder: the folder of the table.

    Raises:
        ValueError: there are runs with other settings.
    """
    path = os.path.join(folder, SETTINGS)
    rows = {
        f"row {name!r}": {part: row[part] for part in row if part != "paper"}
        for name, row in table.rows.items()
    }
    of_text = table.lengths | {"vocab_size": table.vocab_size, "megabytes": table.megabytes}
    ours = shared | of_text | rows
    theirs = files.read_json(path) if files.is_file(path) else {}
    changed = [name for name in theirs if theirs[name] != ours.get(name, theirs[name])]
    if changed:
        raise ValueError(
            f"{folder} contains runs with other settings of {', '.join(changed)}; see {path}. "
            "Choose another --output_dir, or move this folder away."
        )
    files.write_json(path, theirs | ours)


def show(name: str, values: list[float]) -> str:
    """Returns mean ± standard deviation of a result, or its only value; of speeds, the highest."""
    if name in ("parameters", "tokens_per_second"):  # other programs only slow a run down
        return f"{max(values):,.0f}"
    mean = statistics.mean(values)
    return f"{mean:.3f}" + (f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else "")


def write_table(
    table: Table, results: Results, constants: dict[str, float], folder: str, scale: float
) -> str:
    """Writes `table.md` and `plot.png` from the runs that are done; returns the table.

    Args:
        table: the experiment.
        results: row → the results of its runs.
        constants: result → what the best constant answer would reach.
        folder: where to write.
        scale: of the runs, for the note below the table.
    """
    of_paper = sorted({name for row in table.rows.values() for name in row.get("paper", {})})
    lines = [
        f"| {' | '.join(['', *table.columns, *(f'paper: {name}' for name in of_paper)])} |",
        "|---" * (1 + len(table.columns) + len(of_paper)) + "|",
    ]
    for row, runs in results.items():
        cells = [show(key, [one[key] for one in runs]) for key in table.columns.values()]
        paper = table.rows[row].get("paper", {})
        cells += [str(paper.get(name, "")) for name in of_paper]
        lines.append(f"| {' | '.join([row, *cells])} |")
    answers = [
        f"{constants[key]:.3f}" if key in constants else "" for key in table.columns.values()
    ]
    lines.append(f"| {' | '.join(['constant answer', *answers, *('' for _ in of_paper)])} |")
    counts = sorted({len(runs) for runs in results.values()})
    note = f"{table.title}, seeds: {'/'.join(map(str, counts))}, scale {scale:g}. Paper: "
    text = "\n".join([*lines, "", note + table.source]) + "\n"
    with files.write_atomically(os.path.join(folder, "table.md")) as stream:
        stream.write(text)
    with files.write_atomically(os.path.join(folder, "plot.png"), "wb") as stream:
        draw(table, results).savefig(stream, format="png", dpi=100)
    return text


def draw(table: Table, results: Results) -> Figure:
    """Draws each accuracy of the table as bars with the standard deviation over the seeds."""
    shown = {title: key for title, key in table.columns.items() if "/" in key or key == "task"}
    figure = Figure(figsize=(3.2 * len(shown), 0.5 * len(results) + 1.5), layout="constrained")
    axes = figure.subplots(1, len(shown), sharey=True, squeeze=False)[0]
    for axis, (title, key) in zip(axes, shown.items(), strict=True):
        values = [[one[key] for one in runs] for runs in results.values()]
        errors = [statistics.stdev(some) if len(some) > 1 else 0.0 for some in values]
        means = list(map(statistics.mean, values))
        axis.barh(list(results), means, xerr=errors, color="tab:blue", alpha=0.7, capsize=3)
        margin = 0.3 * (max(means) - min(means)) + max(errors) + 0.002
        axis.set_xlim(max(0.0, min(means) - 2 * margin), max(means) + margin)
        axis.set_title(title)
    axes[0].invert_yaxis()  # and with it all others; the first row is at the top
    return figure

r"""Plots the results of a run: training curves, confusion matrix, null odds and sweep.

    python tools/plot_results.py --output_dir=mrpc_model

Writes the plots whose source files exist to the folder:

* `training_curve.png`: losses and metrics over the steps, from `metrics.jsonl` and
  `evaluations.jsonl`;
* `confusion_matrix.png`: the confusion matrix of a classifier, from `dev_predictions.tsv`;
* `null_odds.png`: the null odds of the SQuAD 2.0 questions with and without an answer, from
  `null_odds.json`, `eval_results.txt` and the question file recorded in `runs.jsonl`;
* `sweep.png`: the metric over the learning rate, from `sweep_results.tsv`. The plots of the sweep's
  runs are written to their own folders.

The pre-training and fine-tuning programs do this when they finish.
"""

from __future__ import annotations

import dataclasses
import os
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from absl import logging
from numpy.typing import NDArray

from albert_tf import files
from albert_tf.checkpoints import run_record
from albert_tf.cli import program
from albert_tf.sentence_objectives import OBJECTIVES
from albert_tf.settings import REQUIRED, SettingsGroup, setting
from albert_tf.squad.reading import SquadData, read_squad
from albert_tf.training.settings import RunSettings

TRAINING_CURVE = "training_curve.png"
CONFUSION_MATRIX = "confusion_matrix.png"
NULL_ODDS = "null_odds.png"
SWEEP = "sweep.png"

# Selection metrics, by priority: if a run has several of these, the first one is used.
SELECTION_METRICS = ("matthew_corr", "pearson", "eval_accuracy", "f1", "masked_lm_accuracy")
THRESHOLD = "null_score_diff_threshold"

MOST_NAMES = 30  # with more labels, names and counts would be too small to read
_COUNT_SIZES = {5: 11, 10: 9, 20: 7, MOST_NAMES: 5}  # maximum number of labels -> font size (pt)
_CHINESE_FONTS = (
    "Noto Sans CJK SC",
    "Noto Sans SC",
    "Source Han Sans SC",
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
    "SimHei",
    "Microsoft YaHei",
    "PingFang SC",
    "Arial Unicode MS",
)
_NULL_ODDS_BINS = 40
_TRAIN_COLOR, _DEV_COLOR = "tab:blue", "tab:orange"

Row = Mapping[str, Any]


class Result(Protocol):
    """The result of a program."""

    @property
    def has_files(self) -> bool:
        """Whether there is anything to plot; with several workers, only on the first one."""


SettingsType = TypeVar("SettingsType", bound=RunSettings)
ResultType = TypeVar("ResultType", bound=Result)


def run_and_plot(run: Callable[[SettingsType], ResultType], settings: SettingsType) -> ResultType:
    """Runs a program, and plots its results if it trained or evaluated.

    A plot that cannot be drawn is a warning, because the results are complete by then.

    Args:
        run: the function that runs the program, such as `classification.run`.
        settings: the settings of the program.

    Raises:
        ValueError: the settings enable no phase.
    """
    settings.require_a_phase()
    result = run(settings)
    if settings.plots and result.has_files:
        try:
            plot_run(settings.output_dir)
        except Exception as error:
            is_expected = isinstance(error, (ValueError, OSError))
            logging.warning("Not all plots were drawn: %s", error, exc_info=not is_expected)
    return result


def plot_run(folder: str, predict_file: str | None = None) -> list[str]:
    """Draws all plots whose source files are in a folder.

    Args:
        folder: the output folder of a run or of a sweep.
        predict_file: the questions of `null_odds.json`, if the file was moved after the run.

    Returns:
        The paths of the plots.

    Raises:
        FileNotFoundError: the question file no longer exists.
        ValueError: a file of the run is damaged.
    """
    drawn = []
    if plot_training_curve(folder):
        drawn.append(TRAINING_CURVE)
    if plot_confusion_matrix(folder):
        drawn.append(CONFUSION_MATRIX)
    if plot_null_odds(folder, predict_file):
        drawn.append(NULL_ODDS)
    runs = _read_sweep(folder)
    if plot_sweep(folder, runs):
        drawn.append(SWEEP)
    paths = [os.path.join(folder, name) for name in drawn]
    for run in runs:
        paths += plot_run(os.path.join(folder, os.path.basename(run["folder"])), predict_file)
    return paths


# Reading the files of a run


def _read(folder: str, name: str) -> str | None:
    """Returns the text of a file of the run; None if the file does not exist."""
    try:
        return files.read_text(os.path.join(folder, name))
    except FileNotFoundError:
        return None


def _read_table(folder: str, name: str) -> list[list[str]]:
    """Returns the rows of a tab-separated file, including the header; [] if there is no file.

    Raises:
        ValueError: a row has more or fewer cells than the header.
    """
    text = _read(folder, name)
    if text is None:
        return []
    rows = [line.split("\t") for line in text.split("\n") if line]
    for number, row in enumerate(rows, 1):
        if len(row) != len(rows[0]):
            raise ValueError(
                f"{os.path.join(folder, name)}:{number}: expected {len(rows[0])} cells, as in the "
                f"header, got {len(row)}"
            )
    return rows


def read_evaluations(folder: str) -> list[dict[str, float]]:
    """Returns the metrics of a run's checkpoints on the data that was last used for evaluation.

    Returns:
        The metrics and the `step` of each checkpoint, sorted by step.
    """
    fields = {"step": int, "metrics": dict[str, float], "measured_on": str}
    rows = files.read_own_json_lines(os.path.join(folder, "evaluations.jsonl"), fields)
    found = [
        row["metrics"] | {"step": row["step"]}
        for row in rows
        if row["measured_on"] == rows[-1]["measured_on"]
        and row.get("precision") in (None, rows[-1].get("precision"))
    ]
    return sorted(found, key=lambda row: row["step"])


def selection_metric(rows: Iterable[Row]) -> str | None:
    """Returns the metric that selects the best checkpoint or run; None if no row has one."""
    names = {name for row in rows for name in row}
    return next((metric for metric in SELECTION_METRICS if metric in names), None)


# The training curves


def plot_training_curve(folder: str) -> bool:
    """Draws the losses and the main metrics over the steps.

    The main metrics are the selection metric and, for pre-training, masked-LM loss and accuracy and
    the accuracy of the sentence objective.

    Returns:
        False if nothing was trained or evaluated.
    """
    training = files.read_own_json_lines(
        os.path.join(folder, "metrics.jsonl"), {"step": int}, is_appended_to=True
    )
    evaluations = read_evaluations(folder)
    if not training and not evaluations:
        return False
    known = {name for row in [*training, *evaluations] for name in row}
    of_pairs = [objective.accuracy_name for objective in OBJECTIVES.values()]
    of_pretraining = ["masked_lm_loss", "masked_lm_accuracy", *of_pairs]
    names = [name for name in of_pretraining if name in known]
    metric = selection_metric(evaluations)
    if metric and metric not in names:
        names.insert(0, metric)
    columns = min(1 + len(names), 2)
    rows = -(-(1 + len(names)) // columns)
    figure = _new_figure(5.5 * columns, 4 * rows)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    dev_loss = "eval_loss" if any("eval_loss" in row for row in evaluations) else "loss"
    _draw_panel(panels[0], "loss", _points(training, "loss"), _points(evaluations, dev_loss))
    for axes, name in zip(panels[1:], names, strict=False):
        _draw_panel(axes, name, _points(training, name), _points(evaluations, name))
        best_step = _best_step(folder, evaluations, metric) if name == metric else None
        if best_step is not None:
            axes.axvline(best_step, color="gray", linestyle="--", label=f"best: step {best_step}")
    for axes in panels[: 1 + len(names)]:
        _finish(axes)
    for axes in panels[1 + len(names) :]:
        axes.remove()
    _save(figure, os.path.join(folder, TRAINING_CURVE))
    return True


def _best_step(folder: str, evaluations: Sequence[Row], metric: str) -> int | None:
    """Returns the step of the best checkpoint, breaking ties as the program does.

    Among equal values, token classification selects the last step, all other programs the first.
    """
    found = [row for row in evaluations if row[metric] > -1]
    best = max((row[metric] for row in found), default=None)
    steps = [row["step"] for row in found if row[metric] == best]
    takes_last = "token_labels" in run_record.content(folder).get(run_record.TASK, {})
    return steps[-1 if takes_last else 0] if steps else None


Points = tuple[list[float], list[float]]


def _points(rows: Iterable[Row], key: str) -> Points:
    """Returns the steps and the values of the rows that have the key, sorted by step."""
    found = sorted((row["step"], row[key]) for row in rows if key in row)
    return [step for step, _ in found], [value for _, value in found]


def _draw_panel(axes: Any, title: str, training: Points, evaluations: Points) -> None:
    if training[0]:
        axes.plot(*training, color=_TRAIN_COLOR, label="training batches")
    if evaluations[0]:
        axes.plot(*evaluations, "o-", color=_DEV_COLOR, label="evaluation")
    axes.set(title=title, xlabel="step")


# The confusion matrix


def plot_confusion_matrix(folder: str) -> bool:
    """Draws the confusion matrix of a classifier.

    Returns:
        False if the run is not a classifier's.
    """
    rows = _read_table(folder, "dev_predictions.tsv")
    # Regression has no labels, and the predictions of token classification have no header.
    if not rows or rows[0][2:4] != ["label", "prediction"] or rows[0][4:] == ["score"]:
        return False
    labels = rows[0][4:]
    ids = {label: number for number, label in enumerate(labels)}
    matrix = np.zeros((len(labels), len(labels)), np.int64)
    for _, _, label, prediction, *_ in rows[1:]:
        matrix[ids[label], ids[prediction]] += 1
    draw_confusion_matrix(os.path.join(folder, CONFUSION_MATRIX), matrix, labels)
    return True


def draw_confusion_matrix(path: str, matrix: NDArray[np.int64], labels: Sequence[str]) -> None:
    """Draws a confusion matrix.

    Args:
        path: path of the plot, PNG.
        matrix: counts, [K, K], with a row per true label and a column per predicted label.
        labels: names of the K labels.
    """
    size = min(4 + 0.35 * len(labels), 12)
    figure = _new_figure(size + 1, size)
    axes = figure.subplots()
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    figure.colorbar(image, ax=axes, label="share of the right label")
    hits, total = int(np.trace(matrix)), int(matrix.sum())
    title = f"{hits} of {total} right ({100 * hits / max(total, 1):.1f} %)"
    axes.set(xlabel="predicted", ylabel="right", title=title)
    if len(labels) <= MOST_NAMES:
        names, fonts = _drawable_names(labels)
        axes.set_xticks(range(len(labels)), names, rotation=90, fontfamily=fonts)
        axes.set_yticks(range(len(labels)), names, fontfamily=fonts)
        points = next(points for most, points in _COUNT_SIZES.items() if len(labels) <= most)
        style = {"fontsize": points, "ha": "center", "va": "center"}
        for (row, column), count in np.ndenumerate(matrix):
            color = "white" if shares[row, column] > 0.5 else "black"
            axes.text(column, row, str(count), color=color, **style)
    _save(figure, path)


def _drawable_names(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Returns names that can be drawn, and the fonts for them.

    A name with characters that no installed font has is replaced by its number.
    """
    from matplotlib import font_manager

    installed = set(font_manager.get_font_names())
    fonts = ["DejaVu Sans", *(font for font in _CHINESE_FONTS if font in installed)]
    characters: set[int] = set()
    for font in fonts:
        characters |= set(font_manager.get_font(font_manager.findfont(font)).get_charmap())
    shown = []
    for number, name in enumerate(names):
        text = name if set(map(ord, name)) <= characters else f"label {number}"
        text = text if len(text) <= 24 else text[:23] + "…"
        shown.append(text.replace("$", r"\$"))  # matplotlib would read a dollar sign as math
    return shown, fonts


# The null odds


def plot_null_odds(folder: str, predict_file: str | None = None) -> bool:
    """Draws the null odds of the SQuAD 2.0 questions.

    Args:
        folder: output folder of the run.
        predict_file: as in `plot_run`.

    Returns:
        False if there are no null odds, the correct answers are not known, or the threshold is that
        of other questions, which were evaluated later.

    Raises:
        FileNotFoundError: the question file no longer exists at the path that the run used.
        ValueError: the questions are not those of `null_odds.json`, or a file is damaged.
    """
    path, results = os.path.join(folder, "null_odds.json"), _read(folder, "eval_results.txt")
    if results is None or not files.exists(path):
        return False
    predicted, evaluated = _find_question_files(folder)
    if evaluated not in (None, predicted):
        return False
    data = _read_questions(folder, predict_file or predicted)
    if not data.has_answers:
        return False
    null_odds = files.read_own_json(path, {})
    odds: dict[bool, list[float]] = {True: [], False: []}
    for example in data.examples:
        if example.qas_id not in null_odds:
            raise ValueError(
                f"{path} has no entry for question {example.qas_id} of {data.path}: set "
                "--predict_file to the file that was used for prediction"
            )
        odds[bool(example.answers)].append(null_odds[example.qas_id])
    # The last block describes the best checkpoint, which predicted these null odds.
    thresholds = re.findall(rf"^{THRESHOLD} = (-?\d\S*)$", results, re.MULTILINE)
    if not thresholds:
        raise ValueError(
            f"{os.path.join(folder, 'eval_results.txt')} has no line '{THRESHOLD} = …', which "
            "evaluations of SQuAD 2.0 write: evaluate again with --do_eval"
        )
    draw_null_odds(os.path.join(folder, NULL_ODDS), odds[True], odds[False], float(thresholds[-1]))
    return True


def _find_question_files(folder: str) -> tuple[str | None, str | None]:
    """Returns the files of the questions that were last predicted, and last evaluated."""
    # The runs of a sweep are described in its folder, the parent of theirs.
    places = (folder, os.path.dirname(folder))
    path = next(filter(files.exists, (os.path.join(place, "runs.jsonl") for place in places)), "")
    last: dict[str, str | None] = {"do_predict": None, "do_eval": None}
    fields = {"directory": str, "flags": dict}
    for run in files.read_own_json_lines(path, fields) if path else ():
        for phase in last:
            if run["flags"].get(phase) and run["flags"].get("predict_file"):
                last[phase] = files.join(run["directory"], run["flags"]["predict_file"])
    return last["do_predict"], last["do_eval"]


def _read_questions(folder: str, path: str | None) -> SquadData:
    """Returns the questions of a file."""
    try:
        return read_squad(path or "", is_training=False)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{folder}: the null odds belong to the questions of {path or 'an unknown file'}, "
            "which does not exist: set --predict_file to the question file"
        ) from None


def draw_null_odds(
    path: str, answerable: Sequence[float], unanswerable: Sequence[float], threshold: float
) -> None:
    """Draws the distribution of the null odds of questions with and without an answer.

    Args:
        path: path of the plot, PNG.
        answerable: null odds of the questions that have an answer.
        unanswerable: null odds of the questions that have none.
        threshold: questions with larger null odds are not answered.
    """
    everything = np.array([*answerable, *unanswerable])
    # A question without features has null odds of a million. Such outliers are drawn at the edge,
    # as is a distant threshold, such as one that answers every question.
    low, high = np.percentile(everything, (0.5, 99.5))
    room = max(high - low, 1.0)
    shown = float(np.clip(threshold, low - room, high + room))
    low, high = min(low, shown), max(high, shown)
    edges = np.linspace(low, high if high > low else low + 1, _NULL_ODDS_BINS + 1)
    answered = sum(odds <= threshold for odds in answerable)
    refused = sum(odds > threshold for odds in unanswerable)
    figure = _new_figure(7, 4)
    axes = figure.subplots()
    for odds, color, label in (
        (answerable, _TRAIN_COLOR, f"with an answer: {answered} of {len(answerable)} answered"),
        (unanswerable, _DEV_COLOR, f"without: {refused} of {len(unanswerable)} not answered"),
    ):
        axes.hist(np.clip(odds, edges[0], edges[-1]), edges, color=color, alpha=0.6, label=label)
    axes.axvline(shown, color="gray", linestyle="--", label=f"threshold {threshold:.3g}")
    axes.set(xlabel="null odds", ylabel="questions", title="Which questions are answered")
    _finish(axes)
    _save(figure, path)


# The sweep


def _read_sweep(folder: str) -> list[dict[str, str]]:
    """Returns the rows of `sweep_results.tsv`, one per run; [] if there was no sweep."""
    header, *rows = _read_table(folder, "sweep_results.tsv") or [[]]
    return [dict(zip(header, row, strict=True)) for row in rows]


def plot_sweep(folder: str, runs: Sequence[Mapping[str, str]]) -> bool:
    """Draws the metric of a sweep over the learning rate, with one point per run and the medians.

    Args:
        folder: output folder of the sweep.
        runs: the rows of its results table.

    Returns:
        False if there is nothing to compare.
    """
    metric = selection_metric(runs)
    if metric is None:  # no sweep, or all runs diverged
        return False
    values: dict[float, list[float]] = {}
    for run in runs:
        if run[metric]:
            values.setdefault(float(run["learning_rate"]), []).append(float(run[metric]))
    figure = _new_figure(6, 4)
    axes = figure.subplots()
    rates = sorted(values)
    for rate in rates:
        label = "runs" if rate == rates[0] else None
        found = values[rate]
        axes.plot([rate] * len(found), found, "o", color=_TRAIN_COLOR, alpha=0.6, label=label)
    medians = [float(np.median(values[rate])) for rate in rates]
    axes.plot(rates, medians, "_-", color=_DEV_COLOR, markersize=16, label="median")
    if len(rates) > 1 and rates[0] > 0:
        axes.set_xscale("log")
    axes.set_xticks(rates, [f"{rate:g}" for rate in rates])
    axes.set_xticks([], minor=True)
    axes.set(xlabel="learning rate", ylabel=metric, title=f"{metric} of the best checkpoints")
    _finish(axes)
    _save(figure, os.path.join(folder, SWEEP))
    return True


# Figures


def _new_figure(width: float, height: float) -> Any:
    """Returns a figure that does not use pyplot's global state."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _finish(axes: Any) -> None:
    axes.grid(alpha=0.3)
    if axes.get_legend_handles_labels()[0]:  # matplotlib warns of an empty legend
        axes.legend(fontsize="small")


def _save(figure: Any, path: str) -> None:
    with files.write_atomically(path, "wb") as stream, warnings.catch_warnings():
        # On a busy machine, placing the legend takes a second, which matplotlib warns of.
        warnings.filterwarnings("ignore", "Creating legend")
        figure.savefig(stream, format="png", dpi=120)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(SettingsGroup):
    """What to plot."""

    output_dir: str = setting(REQUIRED, "Folder of the run or of the sweep.")
    predict_file: str | None = setting(
        None,
        "JSON file with the questions of null_odds.json; if not given, the path that the run used.",
    )


def run(settings: Settings) -> str:
    """Draws the plots of a folder and returns their paths."""
    paths = plot_run(settings.output_dir, settings.predict_file)
    if not paths:
        raise ValueError(
            f"--output_dir={settings.output_dir}: nothing to plot; expected metrics.jsonl, "
            "evaluations.jsonl, dev_predictions.tsv, null_odds.json or sweep_results.tsv"
        )
    return "\n".join(paths)


def main() -> None:
    """Runs the command line of this process."""
    program.start(Settings, run, __doc__)


if __name__ == "__main__":
    main()

r"""Plots the results of a run: training curves and confusion matrix.

    albert plot-results --output_dir=mrpc_model

Writes the plots whose source files exist to the folder:

* `training_curve.png`: losses and metrics over the steps, from `metrics.jsonl` and
  `evaluations.jsonl`, if one of them has two points of the curve or more;
* `confusion_matrix.png`: the confusion matrix of a classifier with precision, recall and F1 of
  each label, from `dev_predictions.tsv`.

The plots of a sweep's runs are written to their own folders. The pre-training and fine-tuning
programs do all this when they finish.
"""

from __future__ import annotations

import csv
import dataclasses
import os
import warnings
from collections.abc import Iterable, Mapping
from pathlib import PureWindowsPath
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from absl import logging
from numpy.typing import NDArray

from albert_tf import files
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.run_record import SELECTION_METRIC
from albert_tf.finetuning.classification.prediction_files import read_dev_predictions
from albert_tf.finetuning.metrics import scores_of_labels
from albert_tf.finetuning.settings import SWEEP_TABLE
from albert_tf.model.objectives import OBJECTIVES
from albert_tf.settings import REQUIRED, SettingsGroup, setting
from albert_tf.training.settings import RunSettings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ReportRow = Mapping[str, float]
Points = tuple[list[float], list[float]]

_SCORES_WIDTH = 2.4  # inches, beside the confusion matrix
MOST_NAMES = 30  # with more labels, names and counts would be too small to read


@runtime_checkable
class PlottedResult(Protocol):
    """The result of a program that trains."""

    @property
    def has_files(self) -> bool:
        """Whether this process wrote the files of the run."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(SettingsGroup):
    """What to plot."""

    output_dir: str = setting(REQUIRED, "Folder of the run or of the sweep.")


def run(settings: Settings) -> str:
    """Draws the plots of a folder and returns their paths."""
    files.check_directory(settings.output_dir, "--output_dir")
    paths = plot_run(settings.output_dir)
    if not paths:
        raise ValueError(
            f"--output_dir={settings.output_dir}: nothing to plot; expected two lines or "
            "more in metrics.jsonl or evaluations.jsonl, or dev_predictions.tsv"
        )
    return "\n".join(paths)


def plot_result(settings: RunSettings, result: PlottedResult) -> None:
    """Plots the results of a program that trained or evaluated.

    A plot that cannot be drawn is a warning, because the results are complete by then.

    Args:
        settings: the settings of the program.
        result: its result. With several workers, only the first one has files to plot.
    """
    if not settings.plots or not result.has_files:
        return
    try:
        plot_run(settings.output_dir)
    except Exception as error:
        is_expected = isinstance(error, (ValueError, OSError))
        logging.warning("Not all plots were drawn: %s", error, exc_info=not is_expected)


def plot_run(folder: str) -> list[str]:
    """Draws all plots whose source files are in a folder.

    Args:
        folder: the output folder of a run or of a sweep.

    Returns:
        The paths of the plots.

    Raises:
        ValueError: a file of the run is damaged; the message names it.
    """
    paths: list[str] = []
    for run_folder in map(RunFolder, [folder, *_runs_of_sweep(folder)]):
        figures = {
            "training_curve.png": draw_training_curve(run_folder),
            "confusion_matrix.png": draw_confusion_matrix(run_folder),
        }
        for name, figure in figures.items():
            if figure is not None:
                paths.append(os.path.join(run_folder.path, name))
                _save(figure, paths[-1])
    return paths


def _runs_of_sweep(folder: str) -> list[str]:
    """Returns the folders of the runs of a sweep, which may have been moved with it; or else [].

    Raises:
        ValueError: the table of the runs is damaged.
    """
    table = os.path.join(folder, SWEEP_TABLE)
    if not files.exists(table):
        return []
    lines = files.read_text(table).splitlines()
    try:
        rows = [row.get("folder") for row in csv.DictReader(lines, delimiter="\t")]
    except csv.Error as error:
        raise ValueError(f"{table}: not a table: {error}") from None
    names = [PureWindowsPath(path).name for path in rows if path]  # of any system
    if len(names) < len(rows):
        raise ValueError(f"{table}: a row has no 'folder', expected that of a run in each")
    return [files.inside(folder, name, table, is_name=True) for name in names]


def _save(figure: Figure, path: str) -> None:
    with files.write_atomically(path, "wb") as stream, warnings.catch_warnings():
        # On a busy machine, placing the legend takes a second, which matplotlib warns of.
        warnings.filterwarnings("ignore", "Creating legend")
        figure.savefig(stream, format="png", dpi=120)


# The losses and metrics of a run over its steps.


def draw_training_curve(run: RunFolder) -> Figure | None:
    """Draws the losses and the main metrics over the steps.

    The main metrics are the selection metric that the run recorded and, for pre-training, masked-LM
    loss and accuracy and the accuracy of the sentence objective. Of the evaluations, only those of
    the last data count.

    Returns:
        The figure; None if there are no two points of training or evaluation to connect.
    """
    from matplotlib.figure import Figure  # without pyplot's global state

    training = run.metrics()
    measured = run.evaluations()
    evaluations = [
        entry.metrics | {"step": entry.step}
        for entry in measured
        if entry.measured_on == measured[-1].measured_on
        and entry.precision == measured[-1].precision
    ]
    if max(len(training), len(evaluations)) < 2:  # a point, but no curve
        return None
    best = run.best_evaluation
    reported = {name for row in [*training, *evaluations] for name in row}
    of_pairs = [objective.accuracy_name for objective in OBJECTIVES.values()]
    metric = run.record.task.get(SELECTION_METRIC)
    main = [metric, "masked_lm_loss", "masked_lm_accuracy", *of_pairs]
    names = [name for name in dict.fromkeys(main) if name in reported]
    columns = min(1 + len(names), 2)
    rows = -(-(1 + len(names)) // columns)
    figure = Figure(figsize=(5.5 * columns, 4 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    dev_loss = "eval_loss" if any("eval_loss" in row for row in evaluations) else "loss"
    _draw_panel(panels[0], "loss", _points(training, "loss"), _points(evaluations, dev_loss))
    for axes, name in zip(panels[1:], names, strict=False):
        best_step = best.step if best is not None and name == metric else None
        _draw_panel(axes, name, _points(training, name), _points(evaluations, name), best_step)
    for axes in panels[1 + len(names) :]:
        axes.remove()
    return figure


def _points(rows: Iterable[ReportRow], key: str) -> Points:
    """Returns the steps and the values of the rows that have the key, sorted by step."""
    points = sorted((row["step"], row[key]) for row in rows if key in row)
    return [step for step, _ in points], [value for _, value in points]


def _draw_panel(
    axes: Axes, title: str, training: Points, evaluations: Points, best_step: int | None = None
) -> None:
    if training[0]:
        axes.plot(*training, color="tab:blue", label="training batches")
    if evaluations[0]:
        axes.plot(*evaluations, "o-", color="tab:orange", label="evaluation")
    if best_step is not None:
        axes.axvline(best_step, color="gray", linestyle="--", label=f"best: step {best_step}")
    axes.set(title=title, xlabel="step")
    axes.grid(alpha=0.3)
    if axes.get_legend_handles_labels()[0]:  # matplotlib warns of an empty legend
        axes.legend(fontsize="small")


# The confusion matrix of a classifier.


def draw_confusion_matrix(run: RunFolder) -> Figure | None:
    """Draws the confusion matrix of a classifier, and precision, recall and F1 of each label.

    The matrix has a row for each true label.

    Returns:
        The figure; None if the run is not a classifier's.
    """
    from matplotlib.figure import Figure  # without pyplot's global state

    labels, pairs = read_dev_predictions(run)
    if not pairs:
        return None
    ids = {label: number for number, label in enumerate(labels)}
    matrix = np.zeros((len(labels), len(labels)), np.int64)
    for label, prediction in pairs:
        matrix[ids[label], ids[prediction]] += 1
    has_names = len(labels) <= MOST_NAMES
    size = min(4 + 0.35 * len(labels), 12)
    width = size + 1 + (_SCORES_WIDTH if has_names else 0)
    figure = Figure(figsize=(width, size), layout="constrained")
    if has_names:
        ratios = (size + 1, _SCORES_WIDTH)
        axes, beside = figure.subplots(1, 2, sharey=True, width_ratios=ratios)
        _write_scores(beside, matrix)
    else:
        axes = figure.subplots()
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    figure.colorbar(image, ax=axes, label="share of the true label")
    hits = int(np.trace(matrix))
    title = f"{hits} of {len(pairs)} correct ({100 * hits / len(pairs):.1f} %)"
    axes.set(xlabel="predicted label", ylabel="true label", title=title)
    if has_names:
        names = list(map(_drawable_name, labels))
        axes.set_xticks(range(len(labels)), names, rotation=90)
        axes.set_yticks(range(len(labels)), names)
        font_size = min(11, 150 / len(labels))  # in points, so that counts fit into their cells
        for (row, column), count in np.ndenumerate(matrix):
            color = "white" if shares[row, column] > 0.5 else "black"
            axes.text(
                column, row, str(count), color=color, fontsize=font_size, ha="center", va="center"
            )
    return figure


def _write_scores(axes: Axes, matrix: NDArray[np.int64]) -> None:
    """Writes the scores of the labels beside the rows of their matrix."""
    scores = scores_of_labels(np.diag(matrix), matrix.sum(axis=0), matrix.sum(axis=1))
    axes.set_axis_off()
    axes.set(xlim=(-0.5, len(scores) - 0.5), title="   ".join(scores))
    for column, values in enumerate(scores.values()):
        for row, value in enumerate(values):
            axes.text(column, row, f"{value:.2f}", ha="center", va="center")


def _drawable_name(name: str) -> str:
    """Returns a label, shortened, without the dollar signs that matplotlib reads as math."""
    return (name if len(name) <= 24 else name[:23] + "…").replace("$", r"\$")

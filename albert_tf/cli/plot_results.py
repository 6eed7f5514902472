r"""Plots the results of a run: training curves and confusion matrix.

    albert plot-results --output_dir=mrpc_model

Writes the plots whose source files exist to the folder:

* `training_curve.png`: losses and metrics over the steps, from `metrics.jsonl` and
  `evaluations.jsonl`;
* `confusion_matrix.png`: the confusion matrix of a classifier, from `dev_predictions.tsv`.

The plots of a sweep's runs are written to their own folders. The pre-training and fine-tuning
programs do all this when they finish.
"""

from __future__ import annotations

import csv
import dataclasses
import os
import warnings
from pathlib import PureWindowsPath
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from absl import logging

from albert_tf import files
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.cli.confusion_matrix import draw_confusion_matrix
from albert_tf.cli.training_curve import draw_training_curve
from albert_tf.finetuning.settings import SWEEP_TABLE
from albert_tf.settings import REQUIRED, SettingsGroup, setting
from albert_tf.training.settings import RunSettings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PLOTS = {
    "training_curve.png": draw_training_curve,
    "confusion_matrix.png": draw_confusion_matrix,
}


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
    paths = plot_run(settings.output_dir)
    if not paths:
        raise ValueError(
            f"--output_dir={settings.output_dir}: nothing to plot; expected metrics.jsonl, "
            "evaluations.jsonl or dev_predictions.tsv"
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
        for name, draw in _PLOTS.items():
            if figure := draw(run_folder):
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

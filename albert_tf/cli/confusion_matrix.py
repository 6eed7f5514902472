"""Draws the confusion matrix of a classifier."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.finetuning.classification.prediction_files import read_dev_predictions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_NAMES = 30  # with more labels, names and counts would be too small to read


def draw_confusion_matrix(run: RunFolder) -> Figure | None:
    """Draws the confusion matrix of a classifier, with a row for each true label.

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
    size = min(4 + 0.35 * len(labels), 12)
    figure = Figure(figsize=(size + 1, size), layout="constrained")
    axes = figure.subplots()
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    figure.colorbar(image, ax=axes, label="share of the true label")
    hits = int(np.trace(matrix))
    title = f"{hits} of {len(pairs)} correct ({100 * hits / len(pairs):.1f} %)"
    axes.set(xlabel="predicted label", ylabel="true label", title=title)
    if len(labels) <= MOST_NAMES:
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


def _drawable_name(name: str) -> str:
    """Returns a label, shortened, without the dollar signs that matplotlib reads as math."""
    return (name if len(name) <= 24 else name[:23] + "…").replace("$", r"\$")

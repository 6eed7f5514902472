"""Draws the losses and metrics of a run over its steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.run_record import SELECTION_METRIC
from albert_tf.model.objectives import OBJECTIVES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ReportRow = Mapping[str, float]
Points = tuple[list[float], list[float]]


def draw_training_curve(run: RunFolder) -> Figure | None:
    """Draws the losses and the main metrics over the steps.

    The main metrics are the selection metric that the run recorded and, for pre-training, masked-LM
    loss and accuracy and the accuracy of the sentence objective. Of the evaluations, only those of
    the last data count.

    Returns:
        The figure; None if nothing was trained or evaluated.
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
    if not training and not evaluations:
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

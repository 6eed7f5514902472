"""Pictures of fine-tuning: the training curve, the confusion matrix, and the runs of a sweep.

Drawing needs matplotlib, which is imported when the first picture is drawn.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from albert_tf import files

MOST_NAMES = 30  # with more labels than this, neither their names nor the counts can be read
_COUNT_SIZES = {5: 11, 10: 9, 20: 7, MOST_NAMES: 5}  # labels at most → points
_CHINESE_FONTS = (
    *("Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "WenQuanYi Micro Hei"),
    *("WenQuanYi Zen Hei", "SimHei", "Microsoft YaHei", "PingFang SC", "Arial Unicode MS"),
)
NULL_ODDS_BINS = 40
_BLUE, _ORANGE = "tab:blue", "tab:orange"


def require_matplotlib() -> None:
    """Imports matplotlib.

    Raises:
        ValueError: it is not installed.
    """
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise ValueError("pictures need matplotlib: pip install 'albert-tf2[plot]'") from None


def _new_figure(width: float, height: float) -> Any:
    """A figure without a window: nothing of pyplot's global state is touched."""
    require_matplotlib()
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _save(figure: Any, path: str) -> None:
    with files.write_atomically(path, "wb") as stream:
        figure.savefig(stream, format="png", dpi=120)


def draw_training_curve(
    path: str,
    metrics_file: str,
    evaluations: Sequence[Mapping[str, float]],
    metric: str,
    best_step: int | None = None,
) -> None:
    """Draws the loss of training and of the dev set, and the metric of the dev set, over the steps.

    Args:
        path: the picture, PNG.
        metrics_file: JSON lines of the training loop, each with `step` and `loss`; it need not
            exist.
        evaluations: of checkpoints, each with `step`, the metric and perhaps `eval_loss`.
        metric: the one that picks the best checkpoint.
        best_step: step of that; it is marked.
    """
    try:
        training = [json.loads(line) for line in files.read_text(metrics_file).splitlines()]
    except FileNotFoundError:  # a model that was trained elsewhere
        training = []
    figure = _new_figure(11, 4)
    losses, metrics = figure.subplots(1, 2)
    losses.plot(*_points(training, "loss"), color=_BLUE, label="training batches")
    losses.plot(*_points(evaluations, "eval_loss"), "o-", color=_ORANGE, label="dev set")
    losses.set(title="loss", xlabel="step")
    metrics.plot(*_points(evaluations, metric), "o-", color=_ORANGE, label="dev set")
    metrics.set(title=metric, xlabel="step")
    if best_step is not None:
        metrics.axvline(best_step, color="gray", linestyle="--", label=f"best: step {best_step}")
    for axes in (losses, metrics):
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    _save(figure, path)


def _points(rows: Iterable[Mapping[str, float]], key: str) -> tuple[list[float], list[float]]:
    """Steps and values of the rows that have the key, by step."""
    found = sorted((row["step"], row[key]) for row in rows if key in row)
    return [step for step, _ in found], [value for _, value in found]


def draw_confusion_matrix(path: str, matrix: NDArray[np.int64], labels: Sequence[str]) -> None:
    """Draws how often each label was taken for which.

    Args:
        path: the picture, PNG.
        matrix: [K, K], a row for each right label, a column for each predicted one.
        labels: K names.

    Raises:
        ValueError: the matrix does not go with the labels.
    """
    if matrix.shape != (len(labels), len(labels)):
        raise ValueError(f"a confusion matrix of shape {matrix.shape} for {len(labels)} labels")
    size = min(4 + 0.35 * len(labels), 12)
    figure = _new_figure(size + 1, size)
    axes = figure.subplots()
    totals = matrix.sum(axis=1, keepdims=True)
    shares = matrix / np.maximum(totals, 1)
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    figure.colorbar(image, ax=axes, label="share of the right label")
    axes.set(xlabel="predicted", ylabel="right", title=_title(matrix))
    if len(labels) <= MOST_NAMES:
        names, font = _drawable_names(labels)
        axes.set_xticks(range(len(labels)), names, rotation=90, fontfamily=font)
        axes.set_yticks(range(len(labels)), names, fontfamily=font)
        points = next(points for most, points in _COUNT_SIZES.items() if len(labels) <= most)
        for (row, column), count in np.ndenumerate(matrix):
            color = "white" if shares[row, column] > 0.5 else "black"
            axes.text(
                column, row, str(count), color=color, fontsize=points, ha="center", va="center"
            )
    _save(figure, path)


def _title(matrix: NDArray[np.int64]) -> str:
    hits, total = int(np.trace(matrix)), int(matrix.sum())
    return f"{hits} of {total} right ({100 * hits / max(total, 1):.1f} %)"


def _drawable_names(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Names, and fonts that have their characters; numbers in place of what no font here has."""
    from matplotlib import font_manager

    installed = set(font_manager.get_font_names())
    fonts = ["DejaVu Sans", *(font for font in _CHINESE_FONTS if font in installed)]
    characters: set[int] = set()
    for font in fonts:
        characters |= set(font_manager.get_font(font_manager.findfont(font)).get_charmap())
    shown = [
        # A dollar sign would begin a formula.
        name.replace("$", r"\$") if {*map(ord, name)} <= characters else f"label {number}"
        for number, name in enumerate(names)
    ]
    return [name if len(name) <= 24 else name[:23] + "…" for name in shown], fonts


def draw_null_odds(
    path: str, answerable: Sequence[float], unanswerable: Sequence[float], threshold: float
) -> None:
    """Draws how the null odds of questions with and without an answer lie round the threshold.

    Args:
        path: the picture, PNG.
        answerable: null odds of the questions that have an answer.
        unanswerable: of those that have none.
        threshold: questions with more are not answered.
    """
    everything = np.array([*answerable, *unanswerable])
    # A question without features has odds of a million: it is drawn at the edge, and so is a
    # threshold far away, such as one that answers everything.
    low, high = np.percentile(everything, (0.5, 99.5))
    room = max(high - low, 1.0)
    shown = float(np.clip(threshold, low - room, high + room))
    low, high = min(low, shown), max(high, shown)
    edges = np.linspace(low, high if high > low else low + 1, NULL_ODDS_BINS + 1)
    answered = sum(odds <= threshold for odds in answerable)
    refused = sum(odds > threshold for odds in unanswerable)
    figure = _new_figure(7, 4)
    axes = figure.subplots()
    for odds, color, label in (
        (answerable, _BLUE, f"with an answer: {answered} of {len(answerable)} answered"),
        (unanswerable, _ORANGE, f"without: {refused} of {len(unanswerable)} not answered"),
    ):
        axes.hist(np.clip(odds, edges[0], edges[-1]), edges, color=color, alpha=0.6, label=label)
    axes.axvline(shown, color="gray", linestyle="--", label=f"threshold {threshold:.3g}")
    axes.set(xlabel="null odds", ylabel="questions", title="Which questions are answered")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    _save(figure, path)


def draw_sweep(path: str, values: Mapping[float, Sequence[float]], metric: str) -> None:
    """Draws a metric against the learning rate: a point a run, and their medians.

    Args:
        path: the picture, PNG.
        values: learning rate → the metric in its runs.
        metric: its name.
    """
    figure = _new_figure(6, 4)
    axes = figure.subplots()
    rates = sorted(rate for rate, found in values.items() if found)
    for rate in rates:
        label = "runs" if rate == rates[0] else None
        found = values[rate]
        axes.plot([rate] * len(found), found, "o", color=_BLUE, alpha=0.6, label=label)
    medians = [float(np.median(values[rate])) for rate in rates]
    axes.plot(rates, medians, "_-", color=_ORANGE, markersize=16, label="median")
    if len(rates) > 1 and rates[0] > 0:
        axes.set_xscale("log")
    axes.set_xticks(rates, [f"{rate:g}" for rate in rates])
    axes.set_xticks([], minor=True)
    axes.set(xlabel="learning rate", ylabel=metric, title=f"{metric} of the best checkpoints")
    axes.grid(alpha=0.3)
    if rates:
        axes.legend(fontsize="small")
    _save(figure, path)

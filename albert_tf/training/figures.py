"""Figures in messages: names and values of metrics, and times."""

from __future__ import annotations

from collections.abc import Mapping

from albert_tf.model.objectives import OBJECTIVES
from albert_tf.training.metric_names import RESERVED

_ABBREVIATIONS = {"masked_lm": "mlm", "accuracy": "acc"}


def format_figures(values: Mapping[str, float], percentages: tuple[str, ...] = ()) -> str:
    """Returns abbreviated names and values with three digits, for a message.

    Names that end as one of `percentages` get the sign %.

    >>> format_figures({"loss": 6.2751, "masked_lm_accuracy": 0.1})
    'loss 6.28  mlm_acc 0.100'
    >>> format_figures({"f1": 5.553, "best_f1_thresh": -1.5}, ("f1",))
    'f1 5.55%  best_f1_thresh -1.50'
    """
    texts = []
    objectives = {objective.name: objective.abbreviation for objective in OBJECTIVES.values()}
    for name, value in values.items():
        unit = "%" if name.endswith(percentages) else ""
        for long, short in (_ABBREVIATIONS | objectives).items():
            name = name.replace(long, short)
        text = f"{value:.0f}" if abs(value) >= 1000 else f"{value:#.3g}".rstrip(".")
        texts.append(f"{name} {text}{unit}")
    return "  ".join(texts)


def format_seconds(seconds: float) -> str:
    """Returns a time in hours, minutes and seconds.

    >>> format_seconds(146), format_seconds(111662)
    ('2:26', '31:01:02')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def most_telling(values: Mapping[str, float]) -> dict[str, float]:
    """Returns the metrics to show in a message: the loss first, without its terms."""
    first = {"loss": values["loss"]} if "loss" in values else {}
    hidden = RESERVED - {"skipped_steps"}
    if first:
        hidden |= {name for name in values if name.endswith("_loss")}
    shown = {name: x for name, x in values.items() if name not in hidden}
    return first | shown

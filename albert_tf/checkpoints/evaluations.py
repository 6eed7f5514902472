"""Evaluations of checkpoints, as in `evaluations.jsonl`, and the choice of the best one."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Iterable, Sequence

LOSS = "eval_loss"  # the metric that decides between equally good checkpoints
_DIGEST_LENGTH = 16


def digest_of_data(*parts: object) -> str:
    """Returns a short hash of everything that a result depends on."""
    return hashlib.sha256(repr(parts).encode("utf-8")).hexdigest()[:_DIGEST_LENGTH]


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The metrics of one checkpoint.

    Attributes:
        step: `global_step` of the checkpoint.
        metrics: name → value.
        checkpoint: digest of the checkpoint; "" for one outside the output directory.
        measured_on: digest of the data and settings that the metrics depend on.
        precision: compute dtype, such as "float32".
    """

    step: int
    metrics: dict[str, float]
    checkpoint: str
    measured_on: str
    precision: str = "float32"

    @property
    def key(self) -> tuple[int, str, str]:
        """What two evaluations of the same checkpoint, trained again, have in common."""
        return self.step, self.measured_on, self.precision


def best_of(
    evaluations: Iterable[Evaluation], metric: str, official_order: bool = False
) -> Evaluation | None:
    """Returns the evaluation with the largest value of a metric above -1.

    Of several with the same value, it is the one with the lowest `eval_loss`, if that is measured;
    of those with the same loss, the first one.

    Args:
        evaluations: evaluations ordered by step.
        metric: name of the metric.
        official_order: whether it is the first one whatever its loss, as in Google's programs.
    """
    best = None
    best_rank = (-1.0, math.inf)  # Google's programs start with -1
    for evaluation in evaluations:
        loss = 0.0 if official_order else evaluation.metrics.get(LOSS, 0.0)
        rank = evaluation.metrics[metric], -loss
        if rank > best_rank:
            best = evaluation
            best_rank = rank
    return best


def heading(evaluations: Sequence[Evaluation]) -> str:
    """Returns the first line of a results file: a comment that states the precision.

    It is "" for float32, so that the file equals Google's. It does not have the form `key = value`,
    because scripts expect numbers as values.
    """
    name = evaluations[-1].precision if evaluations else "float32"
    if name == "float32":
        return ""
    return f"# Computed in {name}; --precision=float32 gives Google's numbers.\n"

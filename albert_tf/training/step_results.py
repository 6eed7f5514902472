"""The results of the steps between two reports: their means, and whether they end the run.

The loop does not wait for the result of each step: results stay on the device until a report is
due. With the policy "stop", a bad step blocks all later updates meanwhile, so that nothing is
trained on from a NaN.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf
from absl import logging

from albert_tf.training.step import StepResult
from albert_tf.training.task import LossTask, add_derived

# Even with the policy "skip", the run stops if this many steps contain no good one.
MAX_SKIPPED_STEPS = 20


class StepResults:
    """The results since the last report. Adding one does not wait for it.

    Args:
        task: the task, which may derive metrics from the means of others.
        stops: whether a bad step ends the run, instead of being skipped.
    """

    def __init__(self, task: LossTask, stops: bool) -> None:
        self._task = task
        self._stops = stops
        self._results: dict[int, StepResult] = {}  # by the number of steps before

    def __len__(self) -> int:
        return len(self._results)

    def add(self, step: int, result: StepResult) -> None:
        """Adds the result of a step.

        Args:
            step: number of steps before it.
            result: the result.
        """
        self._results[step] = result

    @property
    def _last(self) -> StepResult:
        return next(reversed(self._results.values()))

    def wait(self) -> None:
        """Waits until the last step, which runs asynchronously on a GPU, has been computed."""
        bool(self._last.is_finite)

    @property
    def blocked_at(self) -> int | None:
        """Number of steps before the one that blocks all updates; None if none does."""
        if not self._stops or not self._results or self._last.is_applied:
            return None
        return min(step for step, result in self._results.items() if not result.is_applied)

    @property
    def failed_at(self) -> int | None:
        """Number of steps before the one that ends the run, if a report is due; else None.

        That is `blocked_at`, or the first of at least MAX_SKIPPED_STEPS without a good one.
        """
        blocked = self.blocked_at
        are_many = len(self._results) >= MAX_SKIPPED_STEPS
        if blocked is not None or not are_many:
            return blocked
        is_any_good = any(result.is_finite for result in self._results.values())
        return None if is_any_good else min(self._results)

    def take_means(self) -> tuple[dict[str, float], float]:
        """Returns the mean metrics of the good steps, and their mean tokens, and forgets them."""
        results, self._results = list(self._results.values()), {}
        good = [result for result in results if result.is_finite]
        skipped = len(results) - len(good)
        if not good:
            return {"skipped_steps": float(skipped)}, 0.0
        pairs = [result.metrics | {"loss": result.loss} for result in good]
        means = {name: _mean([pair[name] for pair in pairs]) for name in pairs[0]}
        means = add_derived(self._task, means)
        means["gradient_norm"] = sum(float(r.gradient_norm) for r in good) / len(good)
        if skipped:
            logging.warning("Skipped %d of %d steps: not finite", skipped, len(results))
            means["skipped_steps"] = float(skipped)
        tokens = sum(float(result.tokens) for result in good) / len(good)
        return dict(sorted(means.items())), tokens


def _mean(pairs: Sequence[tf.Tensor]) -> float:
    """Returns the sum of sums over the sum of weights, of pairs [2] of both."""
    sums, weights = zip(*(pair.numpy().tolist() for pair in pairs), strict=True)
    return float(sum(sums) / max(sum(weights), 1e-9))

"""Names of metrics that every run has, and that no task or hook may give to its own."""

from __future__ import annotations

from collections.abc import Iterable

# Names that a line of `metrics.jsonl` has besides the metrics of the task.
RESERVED = frozenset(
    (
        *("step", "loss", "gradient_norm", "learning_rate", "skipped_steps"),
        *("examples_per_second", "tokens_per_second"),
    )
)


def check_names(names: Iterable[str], what: str) -> None:
    """Raises ValueError if one of the names of metrics is reserved.

    Args:
        names: the names.
        what: what has them, for the message.
    """
    if taken := RESERVED.intersection(names):
        raise ValueError(
            f"{what} {min(taken)!r} has the name of a metric of every run: give it another one"
        )

"""The error that ends a run whose loss or weights are no longer finite, and its messages."""

from __future__ import annotations

from collections.abc import Sequence


class NonFiniteLossError(ArithmeticError):
    """The loss, a gradient or an updated weight is NaN or infinite."""


def loss_error(step: int, last_checkpoint: str) -> NonFiniteLossError:
    """Returns the error of a step whose loss or gradient is not finite.

    Args:
        step: number of steps before it.
        last_checkpoint: prefix of the newest checkpoint.
    """
    return NonFiniteLossError(
        f"the loss or its gradient is not finite at step {step}; the last good checkpoint is "
        f"{last_checkpoint}. Lower --learning_rate, lengthen the warm-up, or skip such steps with "
        "--nan_policy=skip. tf.debugging.enable_check_numerics() finds the tensor."
    )


def state_error(names: Sequence[str], step: int, last_checkpoint: str) -> NonFiniteLossError:
    """Returns the error of a state that is not saved.

    Args:
        names: names of the weights and moments that are not finite.
        step: number of updates; 0 for the initial weights.
        last_checkpoint: prefix of the newest checkpoint.
    """
    origin = f"update {step}" if step else "initialization"
    advice = (
        "Lower --learning_rate or lengthen the warm-up." if step else "Check --init_checkpoint."
    )
    return NonFiniteLossError(
        f"{len(names)} weights and moments are not finite after {origin}; the first is {names[0]}. "
        f"They are not saved; the last good checkpoint is {last_checkpoint}. {advice}"
    )

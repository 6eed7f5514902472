"""Decides where the accelerated form of a formula runs.

The formulas are in `ops.py`, their accelerated forms in `fused.py`. `plain` is the only switch.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

_is_plain = contextvars.ContextVar("_is_plain", default=False)


class Formula:
    """An operation in plain TensorFlow, in whose place an accelerated form may run.

    Attributes:
        function: the operation.
        accelerator: the `fused.Accelerator` that is registered for it, or None.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.accelerator: Any = None
        functools.update_wrapper(self, function)

    @tf.autograph.experimental.do_not_convert  # which takes time to trace
    def __call__(self, *arguments: Any) -> Any:
        """Returns the result of the accelerated form where it applies, else of the operation."""
        form = self.accelerator
        if form is not None and is_accelerated() and form.applies(*arguments):
            return form.function(*arguments)
        return self.function(*arguments)


def formula(function: Callable[..., Any]) -> Formula:
    """Decorator for an operation that `fused.accelerates` may register an accelerated form for."""
    return Formula(function)


@contextlib.contextmanager
def plain() -> Iterator[None]:
    """Context manager in which only the formulas run, as exported models need it."""
    token = _is_plain.set(True)
    try:
        yield
    finally:
        _is_plain.reset(token)


def is_plain() -> bool:
    """Returns whether this code runs within `plain`."""
    return _is_plain.get()


def is_accelerated() -> bool:
    """Returns whether accelerated forms may replace formulas: in graphs for CPUs, outside XLA."""
    return (
        not is_plain()
        and tf.inside_function()
        and not is_inside_xla()
        and not (tf.config.list_physical_devices("GPU") or tf.config.list_physical_devices("TPU"))
    )


def is_inside_xla() -> bool:
    """Returns whether XLA compiles the function that is being traced, or one around it."""
    return tf.__internal__.get_enclosing_xla_context() is not None

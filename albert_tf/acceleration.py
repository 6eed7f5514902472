"""Decides where the accelerated form of a formula runs.

The formulas are in `ops.py`, their accelerated forms in `fused.py` for graphs on CPUs, and in
`fused_xla.py` for XLA programs on any device. `plain` is the only switch for users.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

# Targets of accelerated forms.
CPU = "cpu"
XLA = "xla"
TPU = "tpu"
_is_plain = contextvars.ContextVar("_is_plain", default=False)
_is_for_tpu = contextvars.ContextVar("_is_for_tpu", default=False)


class Formula:
    """An operation in plain TensorFlow, in whose place an accelerated form may run.

    Attributes:
        function: the operation.
        forms: target, CPU, XLA or TPU, → the `fused.Accelerator` that is registered for it.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.forms: dict[str, Any] = {}
        functools.update_wrapper(self, function)

    @tf.autograph.experimental.do_not_convert  # which takes time to trace
    def __call__(self, *arguments: Any) -> Any:
        """Returns the result of the accelerated form where it applies, else of the operation."""
        form = self._find_form() if self.forms else None
        if form is not None and form.applies(*arguments):
            return form.function(*arguments)
        return self.function(*arguments)

    def _find_form(self) -> Any:
        """Returns the form for what is being traced; that for XLA if there is none for TPUs."""
        wanted = target()
        if wanted == TPU and TPU not in self.forms:
            wanted = XLA
        return self.forms.get(wanted)


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


@contextlib.contextmanager
def for_tpu() -> Iterator[None]:
    """Context manager that traces XLA programs for a TPU on a machine without one."""
    token = _is_for_tpu.set(True)
    try:
        yield
    finally:
        _is_for_tpu.reset(token)


def target() -> str:
    """Returns what the code that is being traced is for, as far as forms are made for it.

    Returns:
        TPU or XLA inside programs that XLA compiles whole, for TPUs and for other devices; CPU in
        other graphs on machines without an accelerator; otherwise "": in eager execution, and
        within `plain`.
    """
    if is_plain() or not tf.inside_function():
        return ""
    if is_inside_xla():
        return TPU if _is_for_tpu.get() or tf.config.list_physical_devices("TPU") else XLA
    devices = tf.config.list_physical_devices("GPU") + tf.config.list_physical_devices("TPU")
    return "" if devices else CPU


def is_inside_xla() -> bool:
    """Returns whether XLA compiles the function that is being traced, or one around it."""
    return tf.__internal__.get_enclosing_xla_context() is not None

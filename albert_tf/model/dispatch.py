"""Runs kernels in the place of operations, where they apply.

Inside a `tf.function`, kernels replace the operations decorated with `op`: some on CPUs, others
where XLA compiles the whole program, as it does on GPUs and TPUs; some of these call what only
NVIDIA GPUs run, and are used within `for_gpu`. In eager execution and in exported models,
operations run as they stand in `ops.py`, and within `uncompiled`. `plain` is the only switch for
users.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import functools
from collections.abc import Callable, Collection, Iterator
from typing import Any, Generic, ParamSpec, TypeVar

import tensorflow as tf

from albert_tf.model.tensorflow_internals import is_inside_xla

# Targets of kernels.
CPU = "cpu"
XLA = "xla"
TPU = "tpu"
GPU = "gpu"
# Target → the targets whose kernels are tried for it, in order.
_TRIED = {CPU: (CPU,), XLA: (XLA,), TPU: (TPU, XLA), GPU: (GPU, XLA)}

# What a function decorated with `tf.custom_gradient` returns beside its result.
Gradient = Callable[..., object]

P = ParamSpec("P")  # parameters of an operation, which its kernels have as well
R = TypeVar("R")  # its result
T = TypeVar("T")  # the value of a context variable

_is_plain = contextvars.ContextVar("_is_plain", default=False)
_is_uncompiled = contextvars.ContextVar("_is_uncompiled", default=False)
_is_for_tpu = contextvars.ContextVar("_is_for_tpu", default=False)
# Names of the operations that run their kernels for GPUs.
_on_gpu: contextvars.ContextVar[Collection[str]] = contextvars.ContextVar("_on_gpu", default=())


class Op(Generic[P, R]):
    """An operation in plain TensorFlow, in whose place a kernel may run.

    Attributes:
        function: the operation.
        name: its name.
        kernels: target, CPU, XLA, TPU or GPU, → the kernel that is registered for it.
    """

    def __init__(self, function: Callable[P, R]) -> None:
        self.function = function
        self.name = function.__name__
        self.kernels: dict[str, Kernel[P, R]] = {}
        functools.update_wrapper(self, function)

    @tf.autograph.experimental.do_not_convert  # conversion takes time to trace
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Returns the result of the kernel if one applies, else that of the operation."""
        for tried in _TRIED.get(target(), ()) if self.kernels else ():
            kernel = self.kernels.get(tried)
            if tried == GPU and self.name not in _on_gpu.get():
                continue
            if kernel is not None and kernel.applies(*args, **kwargs):
                return kernel.function(*args, **kwargs)
        return self.function(*args, **kwargs)


def op(function: Callable[P, R]) -> Op[P, R]:
    """Decorator for an operation that `register_kernel` may register kernels for."""
    return Op(function)


@dataclasses.dataclass(frozen=True)
class Kernel(Generic[P, R]):
    """A faster implementation of an operation.

    Attributes:
        op: the operation.
        target: CPU, XLA, TPU or GPU, the graphs in which the kernel is used.
        function: computes the same as the operation, from the same arguments.
        applies: returns whether the kernel is used, given the operation's arguments.
    """

    op: Op[P, R]
    target: str
    function: Callable[P, R]
    applies: Callable[P, bool]


KERNELS: list[Kernel[..., Any]] = []  # of all operations


def _always(*_: object, **__: object) -> bool:
    return True


def register_kernel(
    op: Op[P, R], target: str, when: Callable[P, bool] = _always
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator that registers a function as the kernel of an operation.

    Args:
        op: a function decorated with `op` that has no kernel for the target yet.
        target: CPU, XLA, TPU or GPU.
        when: returns whether the kernel is used, given the operation's arguments.

    Raises:
        TypeError: `op` is not decorated with `op`, or has a kernel for the target.
    """
    if not isinstance(op, Op) or target in op.kernels:
        raise TypeError(f"{op!r} must be decorated with op, and have no kernel for {target} yet")

    def register(function: Callable[P, R]) -> Callable[P, R]:
        kernel = Kernel(op, target, function, when)
        op.kernels[target] = kernel
        KERNELS.append(kernel)
        return function

    return register


@contextlib.contextmanager
def _in_context(variable: contextvars.ContextVar[T], value: T) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


# Context manager and decorator with which no kernel runs, as exported models need it.
plain = functools.partial(_in_context, _is_plain, True)
# Context manager for functions without gradients that answer soon after they are traced: no kernel
# runs, since XLA would compile it for each shape, and blocks are functions that are called.
uncompiled = functools.partial(_in_context, _is_uncompiled, True)
# Context manager that traces XLA programs for a TPU on a machine without one.
for_tpu = functools.partial(_in_context, _is_for_tpu, True)


def for_gpu(operations: Collection[str] | None = None) -> contextlib.AbstractContextManager[None]:
    """Context manager that traces XLA programs for an NVIDIA GPU.

    Some of its kernels run nowhere else, and XLA compiles functions for CPUs too, on machines with
    a GPU as well.

    Args:
        operations: the names of the operations that run their kernels for GPUs; None for all. With
            none of them, it is as without this context.
    """
    return _in_context(_on_gpu, with_kernels_for(GPU) if operations is None else operations)


def with_kernels_for(target: str) -> frozenset[str]:
    """Returns the names of the operations that have a kernel for a target."""
    return frozenset(kernel.op.name for kernel in KERNELS if kernel.target == target)


def is_plain() -> bool:
    """Returns whether this code runs within `plain`."""
    return _is_plain.get()


def is_uncompiled() -> bool:
    """Returns whether this code runs within `uncompiled`."""
    return _is_uncompiled.get()


def target() -> str:
    """Returns the target of the function that is being traced; "" if there are no kernels for it.

    Returns:
        TPU, GPU or XLA inside programs that XLA compiles whole, for TPUs, within `for_gpu`, and for
        other devices; CPU in other graphs on machines without an accelerator; otherwise "": in
        eager execution, and within `plain` and `uncompiled`.
    """
    if is_plain() or is_uncompiled() or not tf.inside_function():
        return ""
    if is_inside_xla():
        if _is_for_tpu.get() or tf.config.list_physical_devices("TPU"):
            return TPU
        return GPU if _on_gpu.get() else XLA
    devices = tf.config.list_physical_devices("GPU") + tf.config.list_physical_devices("TPU")
    return "" if devices else CPU

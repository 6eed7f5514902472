"""Leaves weights without values until it is known which of them a file has.

Random numbers for the 223 million weights of an xxlarge model take nine seconds, and a model that
is loaded from a file does not need them. Inside of `deferred`, the kernels of new models have
memory, but no values. `set_value` gives them those of a file. At the end of the block, the others
get the numbers that they would have had from the start.

    with initialization.deferred():
        model = AlbertForPretraining(config)
        load_checkpoint(model, path)
"""

from __future__ import annotations

import contextlib
import contextvars
import warnings
from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf

Initializer = Callable[..., tf.Tensor]  # of Keras: of a shape and a dtype
# id → variable without a value, and what makes it.
_Unset = dict[int, tuple[tf.Variable, Initializer]]

_unset: contextvars.ContextVar[_Unset | None] = contextvars.ContextVar("_unset", default=None)


@contextlib.contextmanager
def without_values() -> Iterator[_Unset]:
    """Context manager in which new kernels have no values, also afterwards.

    Nothing may read them before `set_value` was called for them. Yields those that have none.
    """
    unset: _Unset = {}
    token = _unset.set(unset)
    try:
        yield unset
    finally:
        _unset.reset(token)


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Context manager in which new kernels have no values; those without one get it at the end.

    They have the same random numbers as if they were initialized at once. After an error they have
    none, and the model cannot be used.
    """
    with without_values() as unset:
        yield
    for variable, initializer in unset.values():
        with tf.device(variable.device), warnings.catch_warnings():
            # Keras warns that a second call of an initializer returns the numbers of the first.
            warnings.simplefilter("ignore", UserWarning)
            variable.assign(initializer(variable.shape, dtype=variable.dtype))


def add_weight(
    add: Callable[..., tf.Variable], name: str, shape: Sequence[int], initializer: Initializer
) -> tf.Variable:
    """Returns a new weight, without a value if it is deferred.

    Args:
        add: `add_weight` of a Keras layer.
        name: name of the weight.
        shape: its shape.
        initializer: returns the value.
    """
    unset = _unset.get()
    if unset is None:
        return add(name, shape, initializer=initializer)

    def leave_empty(shape: Sequence[int], dtype: tf.DType, **_: object) -> tf.Tensor:
        initializer((1,), dtype=dtype)  # draws the seed, in the order of the weights
        return tf.raw_ops.Empty(shape=shape, dtype=dtype)

    variable = add(name, shape, initializer=leave_empty)
    unset[id(variable)] = variable, initializer
    return variable


def set_value(variable: tf.Variable, value: tf.Tensor) -> None:
    """Assigns a variable, which then has a value."""
    variable.assign(tf.cast(value, variable.dtype))
    if (unset := _unset.get()) is not None:
        unset.pop(id(variable), None)

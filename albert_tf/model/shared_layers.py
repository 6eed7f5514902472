"""Applies shared layers repeatedly, without repeating the overhead, and recomputes activations.

Calling one block twelve times would read and cast its weights twelve times, add up twelve float32
gradients for each weight, and trace the block twelve times. With `apply_repeatedly`,

* each weight is read and cast once, and the gradients of the calls are added up in the compute
  dtype, each as soon as it is computed;
* each block is traced once for all calls with the same signature.

A layer takes part by declaring its weights as `Weight`. Layers of other libraries inside a block,
such as a wrapper around one of its dense layers, read their variables themselves.
"""

from __future__ import annotations

import collections
import contextvars
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import overload

import tensorflow as tf
import tf_keras

from albert_tf.model import dispatch, ops
from albert_tf.model.dispatch import Gradient
from albert_tf.model.tensorflow_internals import is_inside_xla

Block = tf_keras.layers.Layer
# A block as a function of `x`, its weights and the other arguments.
Call = Callable[..., tf.Tensor]

_cast_weights: contextvars.ContextVar[Mapping[int, tf.Tensor]]
_cast_weights = contextvars.ContextVar("_cast_weights", default={})  # noqa: B039, never written to


class Weight:
    """Attribute of a Keras layer that holds a variable.

    It reads as the variable itself, except while `apply_repeatedly` applies the layer: then it
    reads as the tensor, in the compute dtype, that all calls of the layer share.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._key = f"_weight_{name}"

    def __set__(self, layer: tf_keras.layers.Layer, variable: tf.Variable) -> None:
        layer.__dict__[self._key] = variable

    @overload
    def __get__(self, layer: None, owner: type) -> Weight: ...
    @overload
    def __get__(self, layer: tf_keras.layers.Layer, owner: type | None = None) -> tf.Tensor: ...
    def __get__(
        self, layer: tf_keras.layers.Layer | None, owner: type | None = None
    ) -> Weight | tf.Tensor:
        if layer is None:
            return self
        variable = self.variable(layer)
        return _cast_weights.get().get(id(variable), variable)

    def __delete__(self, layer: tf_keras.layers.Layer) -> None:
        del layer.__dict__[self._key]

    def variable(self, layer: tf.Module) -> tf.Variable:
        """Returns the variable of a layer, or raises AttributeError if it has none."""
        try:
            return layer.__dict__[self._key]
        except KeyError:
            name = self._key.removeprefix("_weight_")
            raise AttributeError(f"{type(layer).__name__} has no {name!r}") from None


def _weights_of(block: tf.Module) -> list[tf.Variable]:
    """Returns the variables that the layers of a block declare as `Weight`."""
    variables = {}
    for layer in (block, *block.submodules):
        for base in type(layer).__mro__:
            for attribute in vars(base).values():
                if isinstance(attribute, Weight):
                    variable = attribute.variable(layer)
                    variables[id(variable)] = variable
    return list(variables.values())


@tf.autograph.experimental.do_not_convert  # conversion takes seconds for these loops
def apply_repeatedly(blocks: Sequence[Block], is_recomputed: bool = False) -> Call:
    """Returns a function `apply(block, x, **others)` that computes `block(x, **others)`.

    Args:
        blocks: Keras layers, each as often as it will be applied. They have no randomness besides
            the seeds that are passed to them.
        is_recomputed: whether to use gradient checkpointing: store only the inputs of each call,
            and recompute the call in the backward pass. The result does not change.

    Returns:
        A function of a block, `x` and the other arguments, differentiable with respect to `x` and
        the weights.
    """
    different = {id(block): block for block in blocks}
    variables = {key: _weights_of(block) for key, block in different.items()}
    uses = collections.Counter(id(x) for block in blocks for x in variables[id(block)])
    weights = {id(variable): variable for own in variables.values() for variable in own}
    copies = {key: _copies(tf.convert_to_tensor(x), uses[key]) for key, x in weights.items()}
    calls = {key: _call(x, variables[key], is_recomputed) for key, x in different.items()}

    @tf.autograph.experimental.do_not_convert
    def apply(block: Block, x: tf.Tensor, **others: object) -> tf.Tensor:
        weights = [next(copies[id(variable)]) for variable in variables[id(block)]]
        return calls[id(block)](x, weights, **others)

    return apply


def _call(block: Block, variables: list[tf.Variable], is_recomputed: bool) -> Call:
    """Returns `block` as a function of `x`, its weights and the other arguments."""

    def compute(x: tf.Tensor, weights: list[tf.Tensor], **others: object) -> tf.Tensor:
        pairs = zip(variables, weights, strict=True)
        token = _cast_weights.set({id(variable): tensor for variable, tensor in pairs})
        try:
            return block(x, **others)
        finally:
            _cast_weights.reset(token)

    # XLA needs the values of some inputs when it compiles, such as the permutation of a transpose.
    # If the gradient of a function receives one from the function itself, XLA takes all inputs of
    # that function for such values, and compiles the training step again whenever a weight changes.
    if tf.inside_function() and not dispatch.is_plain() and not is_inside_xla():
        # Inlined, the blocks of all layers would be optimized one by one before the first answer.
        attributes = {"_noinline": True} if dispatch.is_uncompiled() else None
        call: Call = tf.function(compute, autograph=False, experimental_attributes=attributes)
    else:
        call = compute
    return _recomputed(call) if is_recomputed else call


def _copies(weight: tf.Tensor, count: int) -> Iterator[tf.Tensor]:
    """Yields a weight `count` times or more, with one addition of gradients per time.

    TensorFlow would keep the gradients of all calls until it adds them up at the end. For the
    xxlarge model (2 x 128 tokens, bfloat16), that needs 3 GB more memory.
    """
    # Vectors take little memory, and each addition takes time to trace.
    has_gradients = weight.shape.rank > 1 and not dispatch.is_uncompiled()
    for _ in range(count - 1 if has_gradients else 0):
        copy, weight = _fork(weight)
        yield copy
    while True:
        yield weight


@tf.custom_gradient
def _fork(x: tf.Tensor) -> tuple[tuple[tf.Tensor, tf.Tensor], Gradient]:
    """Returns the tensor twice; the gradient is the sum of both gradients."""
    return (tf.identity(x), tf.identity(x)), tf.add


def _recomputed(function: Call) -> Call:
    """Returns the function with gradient checkpointing.

    `tf.recompute_grad` makes all inputs including the weights depend on `dy`: that needs the same
    memory and 3 % more CPU time.
    """

    def call(x: tf.Tensor, weights: list[tf.Tensor], **others: object) -> tf.Tensor:
        @tf.custom_gradient
        def run(x: tf.Tensor, *weights: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
            def gradient(
                *dy: tf.Tensor, variables: Sequence[tf.Variable] = ()
            ) -> tuple[list[tf.Tensor], list[tf.Tensor]] | list[tf.Tensor]:
                again = ops.depend_on(x, dy[0])
                sources = [again, *weights, *variables]  # variables of other libraries' layers
                with tf.GradientTape() as tape:
                    tape.watch(sources)
                    y = tf.nest.flatten(function(again, list(weights), **others))
                gradients: list[tf.Tensor]
                gradients = tape.gradient(y, sources, list(dy), unconnected_gradients="zero")
                count = 1 + len(weights)
                return (gradients[:count], gradients[count:]) if variables else gradients

            return function(x, list(weights), **others), gradient

        return run(x, *weights)

    return call

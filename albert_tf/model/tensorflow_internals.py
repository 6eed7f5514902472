"""Functions of TensorFlow that have no public name, and what would break without them.

Two are in `tf.__internal__`, the interface that TensorFlow keeps for Keras, in 2.16 to 2.21:

* `get_enclosing_xla_context`: without it, functions that XLA compiles would lose their kernels,
  such as the fused attention of GPUs, and get those of CPUs on machines without an accelerator.
* `distribute.interim.maybe_merge_call`: `merge_call` of a replica's context, which is public, works
  in its place except in functions that XLA compiles for several replicas.

Others are operations of XLA, in `gen_xla_ops`, a module that TensorFlow generates from its list of
operations:

* `xla_optimization_barrier`: without it, the compiled step of a GPU writes the gradient of GELU in
  float32, and takes 2 % longer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, ParamSpec

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

Arguments = ParamSpec("Arguments")


def is_inside_xla() -> bool:
    """Returns whether XLA compiles the function that is being traced, or one around it."""
    return tf.__internal__.get_enclosing_xla_context() is not None


def call_for_all_replicas(
    function: Callable[Concatenate[tf.distribute.Strategy, Arguments], None],
    *args: Arguments.args,
    **kwargs: Arguments.kwargs,
) -> None:
    """Calls a function with the strategy of this replica, once for all replicas where it can be.

    Args:
        function: updates variables by `strategy.extended.update`.
        *args: arguments of it, of each replica.
        **kwargs: the same.
    """
    strategy = tf.distribute.get_strategy()
    tf.__internal__.distribute.interim.maybe_merge_call(function, strategy, *args, **kwargs)


def optimization_barrier(x: tf.Tensor) -> tf.Tensor:
    """Returns `x`, whose uses XLA does not combine with what it was computed from."""
    result: tf.Tensor
    (result,) = gen_xla_ops.xla_optimization_barrier([x])
    return result

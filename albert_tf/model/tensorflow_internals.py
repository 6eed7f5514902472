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
* `xla_call_module`, and `stablehlo`, which writes what it takes: without them, or before TensorFlow
  2.18, attention on GPUs is XLA's own, and writes its scores to memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Concatenate, ParamSpec

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

try:
    from tensorflow.compiler.mlir.stablehlo import stablehlo
except ImportError:
    stablehlo = None

Arguments = ParamSpec("Arguments")

_FIRST_MODULES = (2, 18)  # the release of TensorFlow that embeds modules as 2.20 does
_MODULE_VERSION = 9  # of the arguments of `xla_call_module`, from TensorFlow 2.18 on


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


def optimization_barrier(*tensors: tf.Tensor) -> list[tf.Tensor]:
    """Returns tensors whose uses XLA does not combine with anything before, each as it is."""
    results: list[tf.Tensor] = gen_xla_ops.xla_optimization_barrier(tensors)
    return results


def embeds_modules() -> bool:
    """Returns whether `call_module` works with this release of TensorFlow."""
    release = tuple(map(int, tf.__version__.split(".")[:2]))
    return stablehlo is not None and release >= _FIRST_MODULES


def call_module(
    module: str,
    operands: Sequence[tf.Tensor],
    shapes: Sequence[tuple[int, ...]],
    dtypes: Sequence[tf.DType],
) -> list[tf.Tensor]:
    """Returns the results of a program for NVIDIA GPUs, compiled with what is around it.

    Args:
        module: a module of StableHLO whose function `main` takes the operands.
        operands: tensors of static shape.
        shapes: those of the results.
        dtypes: those of the results.

    Raises:
        ValueError: the module is no StableHLO.
    """
    program = stablehlo.serialize_portable_artifact_str(module, stablehlo.get_minimum_version())
    results: list[tf.Tensor] = gen_xla_ops.xla_call_module(
        list(operands),
        version=_MODULE_VERSION,
        module=program,
        Sout=list(shapes),
        Tout=list(dtypes),
        platforms=["CUDA"],
    )
    return results

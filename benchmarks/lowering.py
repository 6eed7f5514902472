"""Lowers functions of TensorFlow to the HLO programs that GPUs and TPUs compile, without a device.

`tf.function` can lower to HLO for a platform that this machine lacks, but only if no variable is
involved, because variables are memory of a device. `without_variables` therefore runs a function
whose variables are arguments and results instead, as they are in the HLO program of a real device.

"GPU" needs the ordinary TensorFlow. "TPU" needs `tensorflow-tpu` without `libtpu`, which would look
for a TPU.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import record
from tensorflow.python.ops import gen_resource_variable_ops

from albert_tf.model import dispatch


class _Values:
    """The values of variables, by variable, while a function is traced."""

    def __init__(self, variables: Sequence[tf.Variable], values: Sequence[tf.Tensor]) -> None:
        self._handles = [variable.handle for variable in variables]
        self._values = list(values)
        self._graph = tf.compat.v1.get_default_graph()

    def results(self) -> list[tf.Tensor]:
        """Returns the values after the last assignment."""
        return list(self._values)

    def _index(self, handle: tf.Tensor) -> int:
        for index, known in enumerate(self._handles):
            if handle is known:
                return index
        raise ValueError("the function uses a variable that is not among its arguments")

    def read_variable_op(self, resource: tf.Tensor, dtype: tf.DType, name: Any = None) -> Any:
        del dtype, name
        return tf.identity(self._values[self._index(resource)])

    def resource_gather(self, resource: tf.Tensor, indices: Any, **_: Any) -> Any:
        value = self._values[self._index(resource)]
        rows = tf.gather(value, indices)

        def gradient(dy: tf.Tensor) -> list[Any]:
            flat = tf.reshape(dy, (-1, *value.shape[1:]))
            return [tf.IndexedSlices(flat, tf.reshape(indices, (-1,)), tf.shape(value))]

        record.record_operation("ResourceGather", [rows], [resource], gradient)
        return rows

    def assign_variable_op(self, resource: tf.Tensor, value: tf.Tensor, **_: Any) -> Any:
        if tf.compat.v1.get_default_graph() is not self._graph:
            raise ValueError("a variable is assigned inside of a nested function")
        value = tf.identity(value)
        self._values[self._index(resource)] = value
        return value.op

    def assign_add_variable_op(self, resource: tf.Tensor, value: tf.Tensor, **_: Any) -> Any:
        return self.assign_variable_op(resource, self._values[self._index(resource)] + value)

    def assign_sub_variable_op(self, resource: tf.Tensor, value: tf.Tensor, **_: Any) -> Any:
        return self.assign_variable_op(resource, self._values[self._index(resource)] - value)

    def disable_copy_on_read(self, resource: tf.Tensor, name: Any = None) -> None:
        del resource, name


@contextlib.contextmanager
def _as_values(variables: Sequence[tf.Variable], values: Sequence[tf.Tensor]) -> Iterator[_Values]:
    """Context manager in which the operations on variables use and replace their values."""
    held = _Values(variables, values)
    names = [name for name in vars(_Values) if not name.startswith("_") and name != "results"]
    operations = {name: getattr(held, name) for name in names}
    with mock.patch.multiple(gen_resource_variable_ops, **operations):
        yield held


def without_variables(
    function: Callable[..., Any], variables: Sequence[tf.Variable]
) -> Callable[..., Any]:
    """Returns `function(*args)` as a function of `(values, *args)` → `(result, new values)`."""

    def call(values: Sequence[tf.Tensor], *args: Any) -> Any:
        with _as_values(variables, values) as held:
            result = function(*args)
            return result, held.results()

    return call


def lower(
    function: Callable[..., Any],
    variables: Sequence[tf.Variable],
    platform: str,
    *args: Any,
    stage: str = "hlo_serialized",
    returns_values: bool = True,
) -> Any:
    """Returns the HLO program of a function.

    Its parameters are the values of the variables, then the arguments; its results are those of
    the function, then the new values of the variables.

    Args:
        function: called as `function(*args)`.
        variables: all variables that it uses.
        platform: "CPU", "GPU" or "TPU".
        *args: arguments, nested structures of arrays or tensors; only shapes and dtypes matter.
        stage: "hlo_serialized" for a serialized `HloModuleProto`, bytes; "hlo" for its text;
            "stablehlo" for the text of the same program in StableHLO.
        returns_values: whether the values of the variables are results.

    Raises:
        ValueError: an operation of the function cannot run on the platform.
    """
    flat = [tf.convert_to_tensor(value) for value in tf.nest.flatten(args)]
    count = len(variables)

    def call(*inputs: tf.Tensor) -> Any:
        rest = tf.nest.pack_sequence_as(args, list(inputs[count:]))
        result, values = without_variables(function, variables)(inputs[:count], *rest)
        return (result, values) if returns_values else result

    compiled = tf.function(call, jit_compile=True, autograph=False)
    specs = [tf.TensorSpec(value.shape, value.dtype) for value in (*variables, *flat)]
    contexts: dict[str, Any] = {"TPU": dispatch.for_tpu, "GPU": dispatch.for_gpu}
    with contexts.get(platform, contextlib.nullcontext)():
        generate = compiled.experimental_get_compiler_ir(*specs)
        return generate(stage=stage, platform_name=platform)


def lower_step(step: Any, batch: Any, platform: str, stage: str = "hlo_serialized") -> Any:
    """Returns the HLO program of a `TrainStep`, with the update; see `lower`."""
    flags = np.array(True), np.array(False)
    return lower(step._run, variables_of(step), platform, batch, *flags, stage=stage)


def variables_of(step: Any) -> list[tf.Variable]:
    """Returns all variables that a `TrainStep` reads or assigns, each once."""
    optimizer = step.optimizer
    scale = step.loss_scale
    variables = [*step.model.variables, *optimizer.variables, optimizer.iterations]
    variables += [optimizer._current_learning_rate]
    variables += [scale.value, scale.good_steps] if scale is not None else []
    return each_once(variables)


def each_once(variables: Iterable[tf.Variable]) -> list[tf.Variable]:
    """Returns variables without those that occurred before."""
    return list({id(variable): variable for variable in variables}.values())

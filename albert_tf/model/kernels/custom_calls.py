"""Calls of what XLA runs on NVIDIA GPUs but TensorFlow has no operation for.

XLA calls cuDNN and kernels of Triton by the name of a target and a text of options. The call stands
in a small program in StableHLO, which `XlaCallModule` embeds into the one that TensorFlow compiles.
Unlike TensorFlow's own operation for such calls, StableHLO can say how results lie in memory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from albert_tf.model import tensorflow_internals

_TYPES = {
    tf.bfloat16: "bf16",
    tf.float16: "f16",
    tf.float32: "f32",
    tf.int32: "i32",
    tf.uint8: "ui8",
}


@dataclasses.dataclass(frozen=True)
class CallResult:
    """A result of a call.

    Attributes:
        shape: its shape.
        dtype: its dtype.
        order: its axes as they lie in memory, from the slowest to the fastest; None for 0, 1, …
            The result of `call` has them in this order.
    """

    shape: tuple[int, ...]
    dtype: tf.DType
    order: tuple[int, ...] | None = None

    @property
    def axes(self) -> tuple[int, ...]:
        """The axes as they lie in memory."""
        return self.order or tuple(range(len(self.shape)))

    @property
    def shape_in_memory(self) -> tuple[int, ...]:
        """The shape with the axes in the order in which they lie in memory."""
        return tuple(self.shape[axis] for axis in self.axes)


def call(
    target: str, options: str, operands: Sequence[tf.Tensor], results: Sequence[CallResult]
) -> list[tf.Tensor]:
    """Returns the results of a call, each with its axes in the order that they have in memory.

    Only a function that XLA compiles for an NVIDIA GPU may call this.

    Args:
        target: the name by which XLA knows what is called.
        options: what the target reads of how it is called.
        operands: tensors of static shape.
        results: what it returns.
    """
    module = _module(
        target, options, [CallResult(tuple(x.shape), x.dtype) for x in operands], results
    )
    shapes = [result.shape_in_memory for result in results]
    return tensorflow_internals.call_module(module, operands, shapes, [x.dtype for x in results])


def _module(
    target: str, options: str, operands: Sequence[CallResult], results: Sequence[CallResult]
) -> str:
    """Returns a program in StableHLO whose only work is a call."""
    inputs = [_type(x.shape, x.dtype) for x in operands]
    called = [_type(x.shape, x.dtype) for x in results]
    outputs = [_type(x.shape_in_memory, x.dtype) for x in results]
    names = ", ".join(f"%a{number}" for number in range(len(inputs)))
    parameters = ", ".join(f"%a{number}: {text}" for number, text in enumerate(inputs))
    attributes = ", ".join(
        (
            f'backend_config = "{escaped(options)}"',
            "api_version = 2 : i32",
            f"operand_layouts = [{', '.join(_layout(x.axes) for x in operands)}]",
            f"result_layouts = [{', '.join(_layout(x.axes) for x in results)}]",
        )
    )
    values = [f"%r#{number}" for number in range(len(results))] if len(results) > 1 else ["%r"]
    count = f":{len(results)}" if len(results) > 1 else ""
    lines = [
        f"%r{count} = stablehlo.custom_call @{target}({names}) {{{attributes}}} : "
        f"({', '.join(inputs)}) -> ({', '.join(called)})"
    ]
    for number, result in enumerate(results):
        if result.order is not None:
            dims = ", ".join(map(str, result.order))
            lines.append(
                f"%t{number} = stablehlo.transpose {values[number]}, dims = [{dims}] : "
                f"({called[number]}) -> {outputs[number]}"
            )
            values[number] = f"%t{number}"
    lines.append(f"return {', '.join(values)} : {', '.join(outputs)}")
    main = f"func.func public @main({parameters}) -> ({', '.join(outputs)})"
    return "\n".join(("module @call {", f"{main} {{", *lines, "}", "}"))


def _type(shape: Sequence[int], dtype: tf.DType) -> str:
    """Returns the type of an array, as in "tensor<5x11xbf16>"."""
    return f"tensor<{'x'.join((*map(str, shape), _TYPES[dtype]))}>"


def _layout(axes: Sequence[int]) -> str:
    """Returns the layout of axes that lie in memory in this order; the fastest comes first."""
    return f"dense<[{', '.join(map(str, reversed(axes)))}]> : tensor<{len(axes)}xindex>"


def escaped(text: str) -> str:
    """Returns a text as it stands in a string of MLIR."""
    return "".join(x if " " <= x <= "~" and x not in '"\\' else f"\\{ord(x):02X}" for x in text)

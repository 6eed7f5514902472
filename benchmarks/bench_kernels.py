"""What lies between the products: TensorFlow's operations, and one XLA loop with its own gradient.

    python benchmarks/bench_kernels.py

Forward and backward of each function of `kernels.py`, in bfloat16, at the sizes of ALBERT base. The
two ways take turns. Prints one JSON line: milliseconds of processor time, the fastest of all.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import contenders
import tensorflow as tf

from albert_tf import kernels

HIDDEN, INTERMEDIATE, HEADS = 768, 3072, 12


def half(*shape: int) -> tf.Tensor:
    """Random numbers in bfloat16."""
    return tf.cast(tf.random.normal(shape), tf.bfloat16)


def cases(rows: int, length: int) -> dict[str, tuple[Any, ...]]:
    """Name → function and its tensors."""
    size, wide, norm = rows * length, tf.zeros(INTERMEDIATE), (tf.zeros(HIDDEN), tf.ones(HIDDEN))
    mask, head_size = tf.zeros((rows, 1, 1, length)), HIDDEN // HEADS
    return {
        "gelu": (lambda x: kernels.activate(x, wide, "gelu"), half(size, INTERMEDIATE)),
        "layer_norm": (
            lambda x, residual: kernels.add_and_norm(x, norm[0], residual, norm),
            half(size, HIDDEN),
            half(size, HIDDEN),
        ),
        "softmax": (
            lambda x: kernels.masked_softmax(x, mask, head_size),
            half(rows, HEADS, length, length),
        ),
    }


def make(function: Callable[..., Any], tensors: tuple[tf.Tensor, ...]) -> Callable[[], Any]:
    """A graph of the function and its gradient."""

    @tf.function(autograph=False)
    def run(*tensors: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            y = function(*tensors)
        return y, tape.gradient(y, tensors, tensors[0])

    run.get_concrete_function(*tensors)
    return lambda: run(*tensors)


def main() -> None:
    """Measures every function."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", default="8x128", help="rows x tokens")
    parser.add_argument("--rounds", type=int, default=15)
    flags = parser.parse_args()
    rows, length = map(int, flags.shape.split("x"))
    found: dict[str, dict[str, float]] = {}
    for name, (function, *tensors) in cases(rows, length).items():
        ways = {"fused": make(function, tuple(tensors))}
        with kernels.plain():
            ways["plain"] = make(function, tuple(tensors))
        times: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(flags.rounds):
            for way, call in ways.items():
                cpu = time.process_time()
                call()
                times[way].append(time.process_time() - cpu)
        found[name] = {way: round(1000 * min(seconds), 1) for way, seconds in times.items()}
    line = {"benchmark": "kernels", "shape": flags.shape, "milliseconds": found}
    print(json.dumps(line | contenders.machine()))


if __name__ == "__main__":
    main()

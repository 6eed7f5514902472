"""Compares the kernels in `model/kernels/` with the operations in plain TensorFlow.

    python benchmarks/bench_kernels.py

Measures the forward and backward pass of the largest ones, in bfloat16 and with the sizes of ALBERT
base. The measurements of both variants alternate. Prints one JSON line: the minimum
CPU time in milliseconds, and `matmul_seconds`, the wall time of the matmuls of all layers, forward
and backward, run one at a time. No step can be faster without faster matmuls.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import reporting
import tensorflow as tf

from albert_tf.model import dispatch, kernels, ops  # noqa: F401, registers the kernels

HIDDEN = 768
INTERMEDIATE = 3072
HEADS = 12
LAYERS = 12
# Query, key and value; attention output; intermediate layer; output of the feed-forward network.
KERNELS = [(HIDDEN, 3 * HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, INTERMEDIATE), (INTERMEDIATE, HIDDEN)]


def half(*shape: int) -> tf.Tensor:
    """Returns random numbers in bfloat16."""
    return tf.cast(tf.random.normal(shape), tf.bfloat16)


def cases(rows: int, length: int) -> dict[str, tuple[Any, ...]]:
    """Returns name → function and its arguments."""
    size = rows * length
    gamma = tf.ones(HIDDEN)
    beta = tf.zeros(HIDDEN)
    mask = tf.ones((rows, length))
    head_size = HIDDEN // HEADS
    return {
        "feed_forward": (
            lambda x, kernel, output_kernel: ops.feed_forward(
                x, kernel, tf.zeros(INTERMEDIATE), "gelu", output_kernel, beta
            ),
            half(size, HIDDEN),
            half(HIDDEN, INTERMEDIATE),
            half(INTERMEDIATE, HIDDEN),
        ),
        "add_and_norm": (
            lambda x, residual: ops.add_and_norm(x, residual, gamma, beta),
            half(size, HIDDEN),
            half(size, HIDDEN),
        ),
        "attention": (
            lambda query, key, value: ops.attention(query, key, value, mask),
            *[half(rows, HEADS, length, head_size) for _ in range(3)],
        ),
    }


def make(function: Callable[..., Any], tensors: tuple[tf.Tensor, ...]) -> Callable[[], Any]:
    """Returns a graph function that computes the function and its gradient."""

    def compute(*tensors: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            y = function(*tensors)
        return y, tape.gradient(y, tensors, y)

    run = tf.function(compute, autograph=False)
    run.get_concrete_function(*tensors)
    return lambda: run(*tensors)


def matmuls(rows: int, length: int) -> list[tuple[tf.Tensor, tf.Tensor, dict[str, bool]]]:
    """Returns the matmuls of a layer, forward and backward: factors, and which is transposed."""
    operands: list[tuple[tf.Tensor, tf.Tensor, dict[str, bool]]] = []
    for inputs, outputs in KERNELS:
        x = half(rows * length, inputs)
        dy = half(rows * length, outputs)
        kernel = half(inputs, outputs)
        operands += [(x, kernel, {}), (dy, kernel, {"transpose_b": True})]
        operands += [(x, dy, {"transpose_a": True})]
    heads = half(rows, HEADS, length, HIDDEN // HEADS)
    probs = half(rows, HEADS, length, length)
    # Each occurs twice: scores and gradient of the probabilities; context and gradient of the
    # queries; gradients of values and keys.
    attention = [(heads, heads, {"transpose_b": True}), (probs, heads, {})]
    return operands + 2 * [*attention, (probs, heads, {"transpose_a": True})]


def seconds_of(factors: tuple[tf.Tensor, tf.Tensor, dict[str, bool]], rounds: int) -> float:
    """Returns the median wall time of a matmul."""
    a, b, transposed = factors
    matmul = tf.function(lambda a, b: tf.matmul(a, b, **transposed))
    matmul(a, b)
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        matmul(a, b)
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def fastest(ways: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Returns the minimum CPU time of each variant in milliseconds; measurements alternate."""
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, call in ways.items():
            cpu = time.process_time()
            call()
            times[way].append(time.process_time() - cpu)
    return {way: round(1000 * min(seconds), 1) for way, seconds in times.items()}


def table_of(
    shape: str, results: dict[str, dict[str, float]], matmul_seconds: float
) -> list[dict[str, Any]]:
    """Returns the rows of a table: the CPU time of each operation, and the time of the matmuls."""
    rows: list[dict[str, Any]] = []
    for name, times in results.items():
        row = {f"{way}, CPU ms": milliseconds for way, milliseconds in times.items()}
        share = {"kernel / plain": times["kernel"] / times["plain"]}
        rows.append({"shape": shape, "operation": name} | row | share)
    matmuls = {"operation": "all matmuls", "wall time, ms": 1000 * matmul_seconds}
    return [*rows, {"shape": shape} | matmuls]


def main() -> None:
    """Measures every function."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", default="8x128", help="rows x tokens")
    parser.add_argument("--rounds", type=int, default=15)
    reporting.add_flag(parser)
    flags = parser.parse_args()
    rows, length = map(int, flags.shape.split("x"))
    results: dict[str, dict[str, float]] = {}
    for name, (function, *tensors) in cases(rows, length).items():
        ways = {"kernel": make(function, tuple(tensors))}
        with dispatch.plain():
            ways["plain"] = make(function, tuple(tensors))
        results[name] = fastest(ways, flags.rounds)
    layer = sum(seconds_of(factors, flags.rounds) for factors in matmuls(rows, length))
    seconds = round(LAYERS * layer, 2)
    reporting.print_line("kernels", shape=flags.shape, milliseconds=results, matmul_seconds=seconds)
    reporting.write_table(flags.results, table_of(flags.shape, results, seconds))


if __name__ == "__main__":
    main()

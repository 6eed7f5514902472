r"""Compares the roofline of pre-training steps on this CPU with measured steps.

    python benchmarks/bench_roofline.py

tells how far the roofline of `tools/plan_run.py` is from reality: it measures the rate of a matmul
of base, and the bandwidth of a large copy, and divides the bound that follows from them by the time
of real steps in float32. They alternate, and the fastest of several counts, so that other programs
change the figures little.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Callable
from typing import Any

sys.path.insert(
    0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tools")
)

import numpy as np
import plan_run
import reporting
import tensorflow as tf
import training_steps

from albert_tf import costs, included
from albert_tf.config import AlbertConfig
from albert_tf.costs import StepShape
from albert_tf.training import precision

SHAPE = (1024, 768, 3072)  # of the matmul: tokens, H and I of base
COPIED = 2**26  # float32 values of the copy, 256 MiB
STEPS = (("albert_tiny_zh", 32, 128), ("albert_base", 8, 128), ("albert_base", 2, 512))
ROUNDS = 9  # the fastest counts
PREDICTIONS = 20


def seconds_of(run: Callable[[], Any]) -> float:
    """Returns the time of a call."""
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def make_step(name: str, rows: int, length: int) -> tuple[Callable[[], Any], float, float]:
    """Returns a step, its FLOPs, and its bytes in float32: twice those in bfloat16."""
    config = AlbertConfig.from_json_file(included.config_file(name))
    shape = StepShape(rows, length, PREDICTIONS)
    batch = training_steps.random_batch(rows, length, PREDICTIONS, config.vocab_size)
    step, inputs = training_steps.make_step(tf.distribute.get_strategy(), config, batch)
    flops = costs.step_flops(config, shape)
    moved = 2 * plan_run.step_bytes(config, shape, "tpu")
    return lambda: step(inputs)["loss"].numpy(), flops, moved


def main() -> None:
    """Measures, and prints a JSON line for each step."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    reporting.add_flag(parser)
    args = parser.parse_args()
    precision.apply("float32")
    rng = np.random.default_rng(0)
    tokens, width, wide = SHAPE
    activations = tf.constant(rng.standard_normal((tokens, width), np.float32))
    kernel = tf.constant(rng.standard_normal((width, wide), np.float32))
    vector = tf.constant(rng.standard_normal(COPIED, np.float32))

    def multiply() -> None:
        tf.matmul(activations, kernel)[0, 0].numpy()

    def copy() -> None:
        (vector + 1.0)[0].numpy()

    multiply()  # the first calls allocate memory
    copy()
    rows = []
    for name, batch_rows, length in STEPS:
        step, flops, moved = make_step(name, batch_rows, length)
        step()  # traces
        times = [[seconds_of(run) for run in (multiply, copy, step)] for _ in range(ROUNDS)]
        of_matmul, of_copy, of_step = (min(column) for column in zip(*times, strict=True))
        bounds = flops * of_matmul / (2 * math.prod(SHAPE)), moved * of_copy / (2 * 4 * COPIED)
        figures = {
            "step": f"{name}, {batch_rows} x {length}",
            "computing / step": bounds[0] / of_step,
            "memory / step": bounds[1] / of_step,
            "roofline / step": max(bounds) / of_step,
        }
        reporting.print_line("roofline", **figures)
        rows.append(figures)
    reporting.write_table(args.results, rows)


if __name__ == "__main__":
    main()

"""Measures time and memory of pre-training steps against other implementations.

    ALBERT_PEER_PYTHON=venv/bin/python python benchmarks/bench_train_step.py --shapes=8x128,4x512
    python benchmarks/bench_train_step.py --shapes=8x512 --rounds=3 --steps=1 \
        --contenders="ours; ours, recompute; ours, micro-batches of 1; Hugging Face"

A step consists of the forward and backward pass, gradient clipping and AdamW, on random words
without padding and without dropout. It has 20 masked words for 128 tokens or 76 for 512, and
computes the logits of these only. The contenders alternate within one run. `--precision=float32` is
for processors without bfloat16. Prints a JSON line for each config and shape: the median seconds
per step, the ratios to ours, and `share_of_matmul_rate`, the FLOP/s of our step divided by the
FLOP/s of a large matmul in the same process. `own_megabytes` is the peak memory of a process minus
the memory after importing its libraries; `step_megabytes` is the peak minus the memory before the
first step, which leaves activations and gradients.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import os
import tempfile
from typing import Any

import contenders
import reporting
from contenders import HUGGING_FACE, OURS, Job

from albert_tf.model.config import AlbertConfig
from albert_tf.model.costs import StepShape, step_flops

PREDICTIONS = {128: 20, 512: 76}


def jobs_of(batches: str, config: dict[str, int], rows: int, precision: str) -> dict[str, Job]:
    """Returns the jobs of the contenders by name, in the order of their turns."""
    job = functools.partial(Job, batches=batches, config=config, precision=precision)
    jobs = {
        "ours": job(OURS),
        "ours, float32": Job(OURS, batches, config, precision="float32"),
        "ours, recompute": job(OURS, recompute=True),
        "ours, micro-batches of 8": job(OURS, micro_batches=-(-rows // 8)),
        "ours, micro-batches of 1": job(OURS, micro_batches=rows),
        "Hugging Face": job(HUGGING_FACE),
        "Hugging Face, compiled": job(HUGGING_FACE, compiled=True),
        "Hugging Face, checkpointing": job(HUGGING_FACE, recompute=True),
    }
    if precision == "float32":
        del jobs["ours, float32"]  # the same as "ours"
    return jobs


def measure(path: str, shape: str, flags: argparse.Namespace) -> dict[str, Any]:
    """Measures, prints and returns the results of a shape: name of a contender → measurements."""
    with open(os.path.join(contenders.ROOT, path), encoding="utf-8") as stream:
        config = json.load(stream)
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    rows, length = map(int, shape.split("x"))
    predictions = PREDICTIONS.get(length, max(1, round(0.15 * length)))
    with tempfile.TemporaryDirectory() as folder:
        batch = contenders.pretraining_batch(rows, length, predictions, config["vocab_size"])
        batches = contenders.save_batches(os.path.join(folder, "batches.npz"), [batch])
        jobs = contenders.chosen(jobs_of(batches, config, rows, flags.precision), flags.contenders)
        results = contenders.race(jobs, flags.rounds, dict.fromkeys(jobs, flags.steps))
    for result in results.values():
        if "imported_megabytes" in result:
            result["own_megabytes"] = result["peak_megabytes"] - result["imported_megabytes"]
        if "matmul_flops" in result:
            flops = step_flops(AlbertConfig.from_dict(config), StepShape(rows, length, predictions))
            rate = flops / result["seconds"]
            result["share_of_matmul_rate"] = round(rate / result["matmul_flops"], 2)
    keys = ("seconds", "cpu", "peak_megabytes", "own_megabytes", "step_megabytes")
    times = {key: contenders.divided(results, key) for key in keys}
    reporting.print_line(
        "train_step",
        config=path,
        shape=shape,
        precision=flags.precision,
        results=results,
        times_the_first=times,
    )
    return results


def table_of(path: str, shape: str, results: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the rows of a table, with the time and memory of the first contender as shares."""
    name_of_first, first = next(iter(results.items()))
    rows: list[dict[str, Any]] = []
    for name, result in results.items():
        row = {"config": os.path.basename(path), "shape": shape, "contender": name}
        if "skipped" in result:
            rows.append(row | {"seconds": f"skipped: {result['skipped']}"})
            continue
        row |= {"seconds": result["seconds"], "own MB": result["own_megabytes"]}
        if "seconds" in first:
            time, memory = (first[key] / result[key] for key in ("seconds", "own_megabytes"))
            row[f"time, {name_of_first} / this"] = time
            row[f"own memory, {name_of_first} / this"] = memory
        if "share_of_matmul_rate" in result:
            row["FLOP/s / those of a large matmul"] = result["share_of_matmul_rate"]
        rows.append(row)
    return rows


def main() -> None:
    """Measures every config and shape."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--configs", default="configs/albert_base_v2.json")
    parser.add_argument("--shapes", default="8x128,4x512", help="rows x tokens")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=2, help="steps per turn")
    parser.add_argument("--precision", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--contenders", default="", help="names, separated by ';'; default: all")
    reporting.add_flag(parser)
    flags = parser.parse_args()
    rows: list[dict[str, Any]] = []
    versions: dict[str, str] = {}
    for path, shape in itertools.product(flags.configs.split(","), flags.shapes.split(",")):
        results = measure(path, shape, flags)
        rows += table_of(path, shape, results)
        versions |= contenders.versions_of(results)
    reporting.write_table(flags.results, rows, versions)


if __name__ == "__main__":
    main()

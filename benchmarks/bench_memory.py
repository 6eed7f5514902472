"""Memory and time of a pre-training step, with and without --recompute, and in micro-batches.

    ALBERT_PEER_PYTHON=venv/bin/python python benchmarks/bench_memory.py --shape=8x512

Each way runs in a process of its own, in turn. `peak_megabytes` is what the process held at most;
`own_megabytes` is that without what it held once its libraries were imported: weights, moments,
gradients, activations; `activations_megabytes` is without all that it held before the first step.
Hugging Face's checkpointing runs beside. With --accumulate=4096 there is one more way: a batch of
so many rows in micro-batches of the shape's. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from typing import Any

import contenders
from contenders import HUGGING_FACE, OURS, Job

PLAIN = "plain"
PEERS = ("Hugging Face", "Hugging Face, checkpointing")


def measure(jobs: dict[str, Job], flags: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """What each way takes, and that divided by what the plain one does."""
    results = contenders.race(jobs, flags.rounds, flags.steps)
    keys = ("peak_megabytes", "own_megabytes", "activations_megabytes", "seconds", "cpu")
    for found in results.values():
        if "imported_megabytes" in found:
            found["own_megabytes"] = found["peak_megabytes"] - found["imported_megabytes"]
        if "megabytes_before" in found:
            found["activations_megabytes"] = found["peak_megabytes"] - found["megabytes_before"]
    for found in results.values():
        found["divided_by_plain"] = {
            key: round(found[key] / results[PLAIN][key], 2) for key in keys if key in found
        }
    return results


def main() -> None:
    """Measures all ways."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", default="configs/albert_base_v2.json")
    parser.add_argument("--shape", default="8x512", help="rows x tokens")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1, help="of a turn")
    parser.add_argument("--accumulate", type=int, default=0, help="rows of a batch in parts")
    parser.add_argument("--ways", default="", help="names, between semicolons; all by default")
    flags = parser.parse_args()
    rows, length = map(int, flags.shape.split("x"))
    with open(os.path.join(contenders.ROOT, flags.config), encoding="utf-8") as stream:
        config = json.load(stream)
    with tempfile.TemporaryDirectory() as folder:
        predictions = round(0.15 * length)

        def save(rows: int) -> str:
            batch = contenders.pretraining_batch(rows, length, predictions, config["vocab_size"])
            return contenders.save_batches(os.path.join(folder, f"{rows}.npz"), [batch])

        batches = save(rows)
        jobs = {
            PLAIN: Job(OURS, batches, config),
            "recompute": Job(OURS, batches, config, recompute=True),
            f"{rows} micro-batches": Job(OURS, batches, config, micro_batches=rows),
        }
        if flags.accumulate:
            name = f"{flags.accumulate} rows in parts of {rows}"
            parts = flags.accumulate // rows
            jobs[name] = Job(OURS, save(flags.accumulate), config, micro_batches=parts)
        if contenders.PEER_PYTHON in os.environ:
            for name, recompute in zip(PEERS, (False, True), strict=True):
                jobs[name] = Job(HUGGING_FACE, batches, config, recompute=recompute)
        names = [name.strip() for name in flags.ways.split(";") if name.strip()]
        jobs = {name: job for name, job in jobs.items() if name == PLAIN or name in (names or jobs)}
        results = measure(jobs, flags)
    line = {"benchmark": "memory", "shape": flags.shape, "results": results}
    print(json.dumps(line | contenders.machine()))


if __name__ == "__main__":
    main()

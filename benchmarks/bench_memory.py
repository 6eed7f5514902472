"""Memory and time of a pre-training step, with and without --recompute, and in micro-batches.

    ALBERT_PEER_PYTHON=venv/bin/python python benchmarks/bench_memory.py --shape=8x512

Each way runs in a process of its own, in turn. `peak_megabytes` is what the process held at most;
`activations_megabytes` is that without what it held before the first step, which is TensorFlow,
weights and moments. Hugging Face's checkpointing runs beside. Prints one JSON line.
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
    keys = ("peak_megabytes", "activations_megabytes", "seconds", "cpu")
    for found in results.values():
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
    flags = parser.parse_args()
    rows, length = map(int, flags.shape.split("x"))
    with open(os.path.join(contenders.ROOT, flags.config), encoding="utf-8") as stream:
        config = json.load(stream)
    with tempfile.TemporaryDirectory() as folder:
        predictions = round(0.15 * length)
        batch = contenders.pretraining_batch(rows, length, predictions, config["vocab_size"])
        batches = contenders.save_batches(os.path.join(folder, "batches.npz"), [batch])
        jobs = {
            PLAIN: Job(OURS, batches, config),
            "recompute": Job(OURS, batches, config, recompute=True),
            f"{rows} micro-batches": Job(OURS, batches, config, micro_batches=rows),
        }
        if contenders.PEER_PYTHON in os.environ:
            for name, recompute in zip(PEERS, (False, True), strict=True):
                jobs[name] = Job(HUGGING_FACE, batches, config, recompute=recompute)
        results = measure(jobs, flags)
    line = {"benchmark": "memory", "shape": flags.shape, "results": results}
    print(json.dumps(line | contenders.machine()))


if __name__ == "__main__":
    main()

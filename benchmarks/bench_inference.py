"""Predictions for LCQMC: examples a second, ours and Hugging Face's.

    ALBERT_PEER_PYTHON=venv/bin/python python benchmarks/bench_inference.py

Real sentence pairs, from the data beside the repository; batches sorted by length, as we predict,
and in random order padded to their longest row, as Hugging Face does. Hugging Face's model is in
bfloat16 altogether, which is faster than converting. Prints a JSON line for each config.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from typing import Any

import bench_finetune
import contenders
import lcqmc_batches
from contenders import HUGGING_FACE, OURS, Job


def main() -> None:
    """Measures every config."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--configs", default=bench_finetune.CONFIGS)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20, help="batches of a turn")
    flags = parser.parse_args()
    features, size, steps = lcqmc_batches.read_features("dev"), flags.batch_size, flags.steps
    batches = {
        "sorted": lcqmc_batches.by_length(features, size, steps),
        "dynamic": lcqmc_batches.dynamic(features, size, steps),
    }
    for path in flags.configs.split(","):
        with open(os.path.join(contenders.ROOT, path), encoding="utf-8") as stream:
            config = json.load(stream)
        with tempfile.TemporaryDirectory() as folder:
            by_length, dynamic = (
                contenders.save_batches(os.path.join(folder, f"{name}.npz"), found)
                for name, found in batches.items()
            )
            shared: dict[str, Any] = {"task": "classification", "training": False}
            half = "Hugging Face, bfloat16"
            jobs = {
                "ours, bfloat16": Job(OURS, by_length, config, **shared),
                "ours, float32": Job(OURS, by_length, config, precision="float32", **shared),
                f"{half}, dynamic": Job(HUGGING_FACE, dynamic, config, **shared),
                f"{half}, compiled, dynamic": Job(
                    HUGGING_FACE, dynamic, config, compiled=True, **shared
                ),
            }
            results = contenders.race(jobs, flags.rounds, steps)
        lengths = {name: lcqmc_batches.mean_length(found) for name, found in batches.items()}
        bench_finetune.report(path, results, size, lengths, "inference")


if __name__ == "__main__":
    main()

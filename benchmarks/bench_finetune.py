"""Fine-tuning on LCQMC, batch 32, max_seq_length 128: examples a second, ours and Hugging Face's.

    ALBERT_PEER_PYTHON=venv/bin/python python benchmarks/bench_finetune.py

Real sentence pairs, from the data beside the repository. Ours trains as run_classifier.py does, on
batches of like lengths in bfloat16; beside it our float32 with all rows padded to 128, which is the
official program's way, and Hugging Face with batches padded to their longest row. Every contender
goes through as many examples. Prints a JSON line for each config.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile

import contenders
import lcqmc_batches
from contenders import HUGGING_FACE, OURS, Job

CONFIGS = "configs/albert_tiny_zh.json,configs/albert_base_zh.json"
BASELINE = "ours, float32, padded"


def main() -> None:
    """Measures every config."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--configs", default=CONFIGS)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--steps", type=int, default=16, help="of a turn; of padded batches a fourth"
    )
    parser.add_argument("--no_compiled", action="store_true", help="without torch.compile")
    flags = parser.parse_args()
    features, size, steps = lcqmc_batches.read_features("train"), flags.batch_size, flags.steps
    batches = {
        "padded": lcqmc_batches.padded(features, size, max(steps // 4, 1)),
        "dynamic": lcqmc_batches.dynamic(features, size, steps),
        "bucketed": lcqmc_batches.bucketed(features, size, steps),
    }
    for path in flags.configs.split(","):
        with open(os.path.join(contenders.ROOT, path), encoding="utf-8") as stream:
            config = json.load(stream)
        with tempfile.TemporaryDirectory() as folder:
            files = {
                name: contenders.save_batches(os.path.join(folder, f"{name}.npz"), found)
                for name, found in batches.items()
            }
            task = "classification"
            jobs = {
                "ours, bfloat16": Job(OURS, files["bucketed"], config, task),
                BASELINE: Job(OURS, files["padded"], config, task, precision="float32"),
                "Hugging Face, bfloat16, dynamic": Job(
                    HUGGING_FACE, files["dynamic"], config, task
                ),
                "Hugging Face compiled, bfloat16, dynamic": Job(
                    HUGGING_FACE, files["dynamic"], config, task, compiled=True
                ),
            }
            if flags.no_compiled:
                del jobs["Hugging Face compiled, bfloat16, dynamic"]
            turns = {name: len(batches["padded"]) if name == BASELINE else steps for name in jobs}
            results = contenders.race(jobs, flags.rounds, turns)
        report(path, results, size, {k: lcqmc_batches.mean_length(v) for k, v in batches.items()})


def report(
    path: str,
    results: dict[str, dict],
    batch_size: int,
    lengths: dict[str, float],
    benchmark: str = "finetune",
) -> None:
    """Prints the line of a config: rates, and how many times faster ours is than each."""
    rates = {
        name: round(batch_size / found["mean"], 1)
        for name, found in results.items()
        if "mean" in found
    }
    ours = next(iter(results))
    line = {
        "benchmark": benchmark,
        "config": path,
        "batch_size": batch_size,
        "mean_padded_length": lengths,
        "examples_per_second": rates,
        "times_faster": {
            name: round(rates[ours] / rate, 2) for name, rate in rates.items() if name != ours
        }
        if ours in rates
        else {},
        "results": results,
    }
    print(json.dumps(line | contenders.machine()))


if __name__ == "__main__":
    main()

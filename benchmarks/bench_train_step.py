"""A pre-training step of ALBERT base: ours, Hugging Face's, the Model Garden's, keras-hub's.

    ALBERT_PEER_PYTHON=venv/bin/python python benchmarks/bench_train_step.py --shapes=8x128,4x512

Forward, backward, clipping and AdamW over random words without padding, 20 masked words of 128
tokens and 76 of 512, scores at these only, no dropout. The contenders take turns in one run. Prints
a JSON line for each shape: seconds a step (the median), how ours compares with each, and `share`,
the floating-point rate of our step divided by that of a large product in the same process.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile

import contenders
from contenders import HUGGING_FACE, KERAS, OURS, Job

PREDICTIONS = {128: 20, 512: 76}


def flops_of_step(config: dict[str, int], rows: int, length: int, predictions: int) -> float:
    """Of all products of a step as it is defined: three times those of its forward pass."""
    E, H = config["embedding_size"], config["hidden_size"]  # noqa: N806
    I, V = config["intermediate_size"], config["vocab_size"]  # noqa: E741, N806
    layer = 4 * H * H + 2 * H * I + 2 * length * H
    encoder = rows * length * (E * H + config["num_hidden_layers"] * layer)
    return 6.0 * (encoder + rows * predictions * (H * E + E * V))


def jobs_of(batches: str, config: dict[str, int], names: list[str]) -> dict[str, Job]:
    """The contenders that are asked for; the order of their turns."""
    found = {
        "ours, bfloat16": Job(OURS, batches, config),
        "Hugging Face compiled, bfloat16": Job(HUGGING_FACE, batches, config, compiled=True),
        "Hugging Face, bfloat16": Job(HUGGING_FACE, batches, config),
        "ours, float32": Job(OURS, batches, config, precision="float32"),
        "Model Garden, bfloat16": Job(KERAS, batches, config, library="model_garden"),
        "keras-hub, bfloat16": Job(KERAS, batches, config, library="keras_hub"),
    }
    return {name: job for name, job in found.items() if not names or name in names}


def main() -> None:
    """Measures every shape."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--config", default=os.path.join(contenders.ROOT, "configs/albert_base_v2.json")
    )
    parser.add_argument("--shapes", default="8x128,4x512", help="rows x tokens")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=2, help="of a contender's turn")
    parser.add_argument(
        "--contenders", default="", help="names, between semicolons; all by default"
    )
    flags = parser.parse_args()
    names = [name.strip() for name in flags.contenders.split(";") if name.strip()]
    with open(flags.config, encoding="utf-8") as stream:
        config = json.load(stream) | dict.fromkeys(
            ("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0
        )
    for shape in flags.shapes.split(","):
        rows, length = map(int, shape.split("x"))
        predictions = PREDICTIONS.get(length, max(1, round(0.15 * length)))
        with tempfile.TemporaryDirectory() as folder:
            batch = contenders.pretraining_batch(rows, length, predictions, config["vocab_size"])
            batches = contenders.save_batches(os.path.join(folder, "batches.npz"), [batch])
            results = contenders.race(jobs_of(batches, config, names), flags.rounds, flags.steps)
        ours = "ours, bfloat16"
        line = {"benchmark": "train_step", "shape": shape, "results": results}
        if "seconds" in results.get(ours, {}):
            rate = flops_of_step(config, rows, length, predictions) / results[ours]["seconds"]
            line["share_of_product_rate"] = round(rate / results[ours]["product_flops"], 2)
            line["our_time_divided_by_theirs"] = {
                name: contenders.ratio(results, ours, name) for name in results if name != ours
            }
        print(json.dumps(line | contenders.machine()))


if __name__ == "__main__":
    main()

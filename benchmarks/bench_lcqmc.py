"""Measures fine-tuning on LCQMC and prediction, in examples per second, against Hugging Face.

    ALBERT_PEER_PYTHON=venv/bin/python python benchmarks/bench_lcqmc.py

Uses real sentence pairs from the data next to the repository. Our model trains and predicts in
bfloat16 on batches of similar lengths, as run_classifier.py does; Hugging Face's uses random
batches padded to their longest row. A third contender is our model in float32, which in training
pads all rows to 128, as the official program does. For prediction, all weights of Hugging Face's
model are bfloat16, which is faster than autocasting, and OpenVINO runs both models: ours on our
batches, as `load_predictor` does for many rows, and Hugging Face's on its and on ours.
`--precision=float32` is for processors without bfloat16, and `--pad_to_multiple=4,8` adds a
contender for each further multiple. Prints a JSON line for each config and phase.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import contenders
import numpy as np
import reporting
from absl import logging
from contenders import HUGGING_FACE, OURS, Job

from albert_tf.finetuning import batching
from albert_tf.finetuning.batching import Padding, TrainingOrder
from albert_tf.finetuning.classification import Settings
from albert_tf.finetuning.classification.reading import read_data
from albert_tf.finetuning.classification.task import Classifier
from albert_tf.finetuning.token_sequences import TokenSequences
from albert_tf.model.config import AlbertConfig
from albert_tf.model.tokenization import FullTokenizer

MAX_SEQ_LENGTH = 128
BATCHES_TO_SORT = 32  # the default of run_classifier.py
CONFIGS = "configs/albert_tiny_zh.json,configs/albert_base_zh.json"

Batches = dict[str, Sequence[contenders.Batch]]


def read_features(split: str) -> TokenSequences:
    """Returns LCQMC's pairs as token ids; exits with a message if the data is missing."""
    folder = os.path.join(contenders.SHARED, "data", "lcqmc")
    if not os.path.isdir(folder):
        sys.exit(f"skipped: no LCQMC at {folder}")
    logging.set_verbosity(logging.WARNING)
    vocabulary = os.path.join(contenders.SHARED, "vocab", "vocab_chinese.txt")
    settings = Settings(
        task_name="lcqmc",
        data_dir=folder,
        output_dir="unused",
        max_seq_length=MAX_SEQ_LENGTH,
        do_train=split == "train",
        do_eval=split == "dev",
        do_predict=split == "test",
    )
    tokenizer = FullTokenizer(vocab_file=vocabulary)
    data = read_data(settings, tokenizer)
    classifier = Classifier(settings, AlbertConfig(tokenizer.vocab_size), tokenizer, data)
    return classifier.make_features(data[1][split], split)


def random_batches(
    features: TokenSequences, size: int, count: int, multiple: int = 1, batches_to_sort: int = 1
) -> Sequence[contenders.Batch]:
    """Returns random batches, padded to the longest row rounded up to a multiple."""
    order = TrainingOrder(size, batches_to_sort=batches_to_sort)
    padding = Padding(MAX_SEQ_LENGTH, multiple)
    return list(itertools.islice(batching.training_batches(features, order, padding), count))


def sorted_batches(
    features: TokenSequences, size: int, count: int, multiple: int
) -> Sequence[contenders.Batch]:
    """Returns `count` evenly spaced batches of those used for prediction, sorted by length."""
    padding = Padding(MAX_SEQ_LENGTH, multiple)
    in_order = [batch for _, batch in batching.evaluation_batches(features, size, padding)]
    places = np.linspace(0, len(in_order) - 2, count).round().astype(int)  # the last one is smaller
    return [in_order[place] for place in places]


def make_batches(phase: str, size: int, count: int, multiples: Sequence[int]) -> Batches:
    """Returns batching method → batches; `multiples` are those of the lengths of ours."""
    if phase == "predict":
        dev = read_features("dev")
        ours = {ours_with(m, multiples): sorted_batches(dev, size, count, m) for m in multiples}
        return ours | {"padded": ours["ours"], "dynamic": random_batches(dev, size, count)}
    train = read_features("train")
    ours = {
        ours_with(m, multiples): random_batches(train, size, count, m, BATCHES_TO_SORT)
        for m in multiples
    }
    padded = random_batches(train, size, max(count // 4, 1), multiple=MAX_SEQ_LENGTH)
    return ours | {"padded": padded, "dynamic": random_batches(train, size, count)}


def ours_with(multiple: int, multiples: Sequence[int]) -> str:
    """Returns the name of the contender whose lengths are multiples of `multiple`."""
    return "ours" if multiple == multiples[0] else f"ours, multiples of {multiple}"


def make_jobs(
    phase: str, config: dict[str, Any], paths: Mapping[str, str], precision: str
) -> dict[str, Job]:
    """Returns the jobs of the contenders by name, in the order of their turns.

    Args:
        phase: "train" or "predict".
        config: keys of `albert_config.json`.
        paths: batching method, as in `make_batches` → file of the batches.
        precision: "bfloat16" or "float32".
    """
    common: dict[str, Any] = {
        "config": config,
        "task": "classification",
        "training": phase == "train",
        "precision": precision,
    }
    dynamic = paths["dynamic"]
    jobs = {name: Job(OURS, path, **common) for name, path in paths.items() if "ours" in name}
    if precision != "float32" or phase == "train":
        jobs["ours, float32"] = Job(OURS, paths["padded"], **common | {"precision": "float32"})
    jobs |= {
        "Hugging Face": Job(HUGGING_FACE, dynamic, **common),
        "Hugging Face, compiled": Job(HUGGING_FACE, dynamic, **common, compiled=True),
    }
    if phase == "predict":
        jobs["OpenVINO"] = Job(HUGGING_FACE, dynamic, **common, engine="openvino")
        ours = paths["ours"]
        jobs["ours, OpenVINO"] = Job(OURS, ours, **common, engine="openvino")
        jobs["OpenVINO, our batches"] = Job(HUGGING_FACE, ours, **common, engine="openvino")
    return jobs


def measure(path: str, phase: str, batches: Batches, flags: argparse.Namespace) -> dict[str, Any]:
    """Measures, prints and returns the results of a config and phase: contender → measurements."""
    with open(os.path.join(contenders.ROOT, path), encoding="utf-8") as stream:
        config = json.load(stream)
    with tempfile.TemporaryDirectory() as folder:
        paths = {
            way: contenders.save_batches(os.path.join(folder, f"{way}.npz"), chosen)
            for way, chosen in batches.items()
        }
        jobs = make_jobs(phase, config, paths, flags.precision)
        jobs = contenders.chosen(jobs, flags.contenders)
        steps = dict.fromkeys(jobs, flags.steps) | {"ours, float32": len(batches["padded"])}
        results = contenders.race(jobs, flags.rounds, steps)
    reporting.print_line(
        "lcqmc",
        phase=phase,
        config=path,
        batch_size=flags.batch_size,
        precision=flags.precision,
        mean_padded_length={
            way: round(float(np.mean([batch["input_ids"].shape[1] for batch in chosen])), 1)
            for way, chosen in batches.items()
        },
        examples_per_second={
            name: round(flags.batch_size / result["mean"], 1)
            for name, result in results.items()
            if "mean" in result
        },
        times_faster=contenders.divided(results, "mean"),
        results=results,
    )
    return results


def table_of(
    path: str, phase: str, results: dict[str, Any], batch_size: int
) -> list[dict[str, Any]]:
    """Returns the rows of a table: examples per second, and how many times faster the first is."""
    first = next(iter(results))
    times_faster = contenders.divided(results, "mean")
    rows: list[dict[str, Any]] = []
    for name, result in results.items():
        row: dict[str, Any] = {"phase": phase, "config": os.path.basename(path), "contender": name}
        if "skipped" in result:
            row["examples per second"] = f"skipped: {result['skipped']}"
        else:
            row["examples per second"] = batch_size / result["mean"]
        if name in times_faster:
            row[f"{first} is faster, times"] = times_faster[name]
        rows.append(row)
    return rows


def multiples_of(text: str) -> list[int]:
    """Returns the numbers of a list such as "4,8"; its errors are those of argparse's types."""
    numbers = [int(word) for word in text.split(",")]
    if min(numbers) < 1:
        raise ValueError(text)
    return numbers


def main() -> None:
    """Measures every config in training and prediction."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--configs", default=CONFIGS)
    parser.add_argument("--phases", default="train,predict")
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--precision", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument(
        "--pad_to_multiple",
        type=multiples_of,
        default=[2],
        help="of our lengths; one contender for each of several multiples, such as 4,8",
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=16, help="steps per turn")
    parser.add_argument("--contenders", default="", help="names, separated by ';'; default: all")
    reporting.add_flag(parser)
    flags = parser.parse_args()
    rows: list[dict[str, Any]] = []
    versions: dict[str, str] = {}
    for phase in flags.phases.split(","):
        batches = make_batches(phase, flags.batch_size, flags.steps, flags.pad_to_multiple)
        for path in flags.configs.split(","):
            results = measure(path, phase, batches, flags)
            rows += table_of(path, phase, results, flags.batch_size)
            versions |= contenders.versions_of(results)
    reporting.write_table(flags.results, rows, versions)


if __name__ == "__main__":
    main()

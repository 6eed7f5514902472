"""Measures what it takes to open and to convert a model, beside transformers on the same folder.

    ALBERT_PEER_PYTHON=peers/bin/python python benchmarks/bench_opening.py --before=../base

Each model has random weights, and is a folder of this package and one of Hugging Face. Every act
has a process of its own, which imports its packages first, then opens tokenizer and model, and adds
up all weights, because a file may be mapped and not yet read. The acts alternate. The table has the
medians of the CPU seconds, of all threads in user and kernel mode, of the seconds, and of the
megabytes by which the peak of the memory grows. Another checkout of this repository, given by
`--before`, opens the models as well. On Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from typing import Any

import contenders
import reporting

CONFIGS = "configs/albert_base.json,configs/albert_large.json,configs/albert_xxlarge.json"
VOCABULARY = os.path.join(contenders.SHARED, "vocab", "30k-clean.model")
TENSORFLOW, HUGGING_FACE = "tensorflow", "huggingface"
MAKE = """
import sys
import albert_tf
from albert_tf.checkpoints import store
from albert_tf.export import convert
from albert_tf.checkpoints.weight_names import by_name
config = albert_tf.AlbertConfig.from_json_file(sys.argv[1])
model = albert_tf.AlbertForPretraining(config)
store.save_checkpoint(sys.argv[2] + "/model.ckpt-best", by_name(model.variables))
config.to_json_file(sys.argv[2] + "/albert_config.json")
list(convert.run(convert.Settings(sys.argv[2], sys.argv[3], "huggingface")))
"""


def make_models(config_file: str, folder: str) -> dict[str, str]:
    """Writes a model with random weights in two formats; returns format → folder."""
    paths = {name: os.path.join(folder, name) for name in (TENSORFLOW, HUGGING_FACE)}
    os.mkdir(paths[TENSORFLOW])
    shutil.copy(VOCABULARY, paths[TENSORFLOW])
    run(sys.executable, contenders.ROOT, "-c", MAKE, config_file, *paths.values())
    return paths


def run(python: str, checkout: str, *arguments: str) -> str:
    """Runs Python with a checkout of this repository; returns its last line."""
    done = subprocess.run(
        [python, *arguments],
        env=os.environ | {"PYTHONPATH": checkout, "TF_CPP_MIN_LOG_LEVEL": "3"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return (done.stdout.splitlines() or [""])[-1]


def make_acts(models: dict[str, str], before: str) -> dict[str, tuple[str, ...]]:
    """Returns name → Python, checkout, and the arguments of `worker_opening.py`."""
    theirs = os.environ.get(contenders.PEER_PYTHON, sys.executable)
    acts: dict[str, tuple[str, ...]] = {
        "transformers": (theirs, contenders.ROOT, "transformers", models[HUGGING_FACE])
    }
    checkouts = {"": contenders.ROOT} | ({"before: ": os.path.abspath(before)} if before else {})
    for source, folder in models.items():
        for label, checkout in checkouts.items():
            for door in ("load_predictor", "from_pretrained"):
                acts[f"{label}{door}, {source}"] = (sys.executable, checkout, door, folder)
        (other,) = models.keys() - {source}
        conversion = sys.executable, contenders.ROOT, "convert", folder, other
        acts[f"convert {source} to {other}"] = conversion
    return acts


def measure(act: tuple[str, ...], folder: str) -> dict[str, float]:
    """Runs an act once; returns its figures."""
    python, checkout, *arguments = act
    with tempfile.TemporaryDirectory(dir=folder) as output:
        if arguments[0] == "convert":
            arguments.append(os.path.join(output, "converted"))
        worker = os.path.join(contenders.FOLDER, "worker_opening.py")
        figures: dict[str, float] = json.loads(run(python, checkout, worker, *arguments))
    return figures


def main() -> None:
    """Measures, and prints a JSON line for each model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--configs", default=CONFIGS, help="config files, separated by commas")
    parser.add_argument("--rounds", type=int, default=3, help="number of turns of each act")
    parser.add_argument("--before", default="", help="another checkout of this repository")
    parser.add_argument("--acts", default="", help="beginnings of names, separated by semicolons")
    reporting.add_flag(parser)
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for config_file in arguments.configs.split(","):
        with tempfile.TemporaryDirectory() as folder:
            acts = make_acts(make_models(config_file, folder), arguments.before)
            wanted = tuple(arguments.acts.split(";")) if arguments.acts else ("",)
            chosen = {name: act for name, act in acts.items() if name.startswith(wanted)}
            found: dict[str, list[dict[str, float]]] = {name: [] for name in chosen}
            for _ in range(arguments.rounds):
                for name, act in chosen.items():
                    found[name].append(measure(act, folder))
        model = os.path.basename(config_file).removesuffix(".json")
        results = {
            name: {
                key: round(statistics.median(one[key] for one in turns), 3)
                for key in ("cpu", "seconds", "megabytes")
            }
            for name, turns in found.items()
        }
        reporting.print_line("opening", model=model, results=results)
        rows += [{"model": model, "act": name} | result for name, result in results.items()]
    reporting.write_table(arguments.results, rows)


if __name__ == "__main__":
    main()

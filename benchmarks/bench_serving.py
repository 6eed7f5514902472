"""Measures the latency and throughput of inference from text, with our engines and with others.

    ALBERT_PEER_PYTHON=venv/bin/python python benchmarks/bench_serving.py

Classifiers with random weights predict real sentence pairs from the data next to the repository.
The contenders are the signature `texts` of an exported model, `load_predictor` with both engines,
Hugging Face's pipeline, and OpenVINO with Hugging Face's model and tokenizer. All have the same
weights; their first probabilities are in the result. Contenders alternate, and `…_times_openvino`
is the median over the rounds of a contender's time divided by the time of the last contender in the
same round, because other programs affect both alike. Prints a JSON line for each config and
precision.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from typing import Any

import contenders
import numpy as np
import reporting
from absl import logging
from contenders import SERVING, SERVING_HUGGING_FACE, Contender, Job

import albert_tf
from albert_tf.checkpoints import saved_model
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.finetuning.classification import Settings
from albert_tf.finetuning.classification.reading import read_examples
from albert_tf.finetuning.classification.task import Classifier
from albert_tf.finetuning.classification.tasks import ClassificationTask, find_task
from albert_tf.finetuning.split_tables import SplitTables
from albert_tf.model.config import AlbertConfig
from albert_tf.model.tokenization import FullTokenizer
from albert_tf.tensorflow_releases import set_random_seed

MAX_SEQ_LENGTH = 128
CONFIGS = "configs/albert_tiny_zh.json,configs/albert_base_zh.json"
OPENVINO = "OpenVINO, Hugging Face's model"
VOCABULARY = os.path.join(contenders.SHARED, "vocab", "vocab_chinese.txt")
LABELS = ("0", "1")


def write_pairs(path: str, count: int) -> str:
    """Writes pairs of LCQMC's dev set; exits with a message if the data is missing."""
    folder = os.path.join(contenders.SHARED, "data", "lcqmc")
    if not os.path.isdir(folder):
        sys.exit(f"skipped: no LCQMC at {folder}")
    examples = read_examples(find_task("lcqmc"), SplitTables(folder), "dev").examples[:count]
    with open(path, "w", encoding="utf-8") as stream:
        json.dump([(example.text_a, example.text_b) for example in examples], stream)
    return path


def write_models(config_file: str, folder: str) -> dict[str, str]:
    """Writes a model as the folder of a run, an export and a Hugging Face model; returns paths."""
    config = AlbertConfig.from_json_file(config_file)
    tokenizer = FullTokenizer(vocab_file=VOCABULARY)
    run, exports, hugging_face = (os.path.join(folder, name) for name in ("run", "export", "hf"))
    settings = Settings(
        task_name="tsv", data_dir=folder, output_dir=run, max_seq_length=MAX_SEQ_LENGTH
    )
    task = ClassificationTask("tsv", "", {}, LABELS, False)
    classifier = Classifier(settings, config, tokenizer, (task, {}))
    set_random_seed(5)
    model = classifier.build_model()
    albert_tf.save_pretrained(model, run, tokenizer, LABELS)
    exported = classifier.exporter().make_export(model, MAX_SEQ_LENGTH, RunFolder(run))
    saved_model.export(exports, model.variables, exported, {})
    arguments = [f"--input={run}", f"--output={hugging_face}", "--output_format=huggingface"]
    command = [sys.executable, "-m", "albert_tf", "convert", *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return {
        "run": run,
        "export": os.path.join(exports, os.listdir(exports)[0]),
        "hugging_face": hugging_face,
    }


def make_jobs(
    models: dict[str, str], pairs: str, precision: str, single_rows: int
) -> dict[str, Job]:
    """Returns the jobs of the contenders; the others are compared with the last one."""
    ways = {
        "SavedModel": (SERVING, "export", "saved_model"),
        "Python": (SERVING, "run", "tensorflow"),
        "Python, OpenVINO": (SERVING, "run", "openvino"),
        "Hugging Face's pipeline": (SERVING_HUGGING_FACE, "hugging_face", "pipeline"),
        OPENVINO: (SERVING_HUGGING_FACE, "hugging_face", "openvino"),
    }
    return {
        name: Job(
            worker,
            pairs,
            {},
            training=False,
            precision=precision,
            folder=models[model],
            engine=engine,
            single_rows=single_rows,
        )
        for name, (worker, model, engine) in ways.items()
    }


def measure(jobs: dict[str, Job], rounds: int, single_rows: int, rows: int) -> dict[str, Any]:
    """Returns name → measurements, with the facts that `Contender.close` returns."""
    running = {name: Contender(job) for name, job in jobs.items()}
    singles: dict[str, list[list[float]]] = {name: [] for name in jobs}
    alls: dict[str, list[list[float]]] = {name: [] for name in jobs}
    for number in range(rounds):
        order = list(running) if number % 2 else list(running)[::-1]
        for turns, steps in ((singles, single_rows), (alls, 1)):
            for name in order:
                running[name].run(steps)
                turns[name].append([step["seconds"] for step in running[name].steps[-steps:]])
    results = {name: contender.close() for name, contender in running.items()}
    for name, result in results.items():
        if "skipped" in result:
            continue
        p50, p99 = np.percentile(np.concatenate(singles[name]), [50, 99])
        seconds = float(np.median(alls[name]))
        results[name] = {
            "latency_ms_p50": round(1e3 * p50, 2),
            "latency_ms_p99": round(1e3 * p99, 2),
            "rows_per_second": round(rows / seconds, 1),
            **_compared(singles[name], singles.get(OPENVINO), "latency_times_openvino"),
            **_compared(alls[name], alls.get(OPENVINO), "time_times_openvino"),
            **{key: result[key] for key in ("probabilities", "versions", "start_seconds")},
        }
    return results


def _compared(
    turns: list[list[float]], others: list[list[float]] | None, name: str
) -> dict[str, float]:
    """Returns the median over the rounds of the time relative to another's; {} without it."""
    if others is None:
        return {}
    pairs = zip(turns, others, strict=True)
    shares = [statistics.median(ours) / statistics.median(theirs) for ours, theirs in pairs]
    return {name: round(statistics.median(shares), 3)}


def table_of(path: str, precision: str, results: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the rows of a table, in which throughput is relative to OpenVINO's, too."""
    rows: list[dict[str, Any]] = []
    for name, result in results.items():
        row = {"config": os.path.basename(path), "precision": precision, "contender": name}
        if "skipped" in result:
            rows.append(row | {"one row, ms (p50 / p99)": f"skipped: {result['skipped']}"})
            continue
        p50 = result["latency_ms_p50"]
        p99 = result["latency_ms_p99"]
        row |= {"one row, ms (p50 / p99)": f"{p50} / {p99}"}
        if "latency_times_openvino" in result:
            row["latency / OpenVINO's"] = result["latency_times_openvino"]
        row["rows per second"] = result["rows_per_second"]
        if "time_times_openvino" in result:
            row["rate / OpenVINO's"] = 1 / result["time_times_openvino"]
        rows.append(row)
    return rows


def main() -> None:
    """Measures every config and precision, with single rows and with all rows at once."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--configs", default=CONFIGS)
    parser.add_argument("--precisions", default="float32,bfloat16")
    parser.add_argument("--rows", type=int, default=1000, help="rows to measure the throughput")
    parser.add_argument(
        "--single_rows", type=int, default=100, help="rows to measure the latency, one at a time"
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--contenders", default="", help="names, separated by ';'; default: all")
    reporting.add_flag(parser)
    flags = parser.parse_args()
    logging.set_verbosity(logging.WARNING)
    rows: list[dict[str, Any]] = []
    versions: dict[str, str] = {}
    for path in flags.configs.split(","):
        with tempfile.TemporaryDirectory() as folder:
            models = write_models(os.path.join(contenders.ROOT, path), folder)
            pairs = write_pairs(os.path.join(folder, "pairs.json"), flags.rows)
            for precision in flags.precisions.split(","):
                jobs = make_jobs(models, pairs, precision, flags.single_rows)
                jobs = contenders.chosen(jobs, flags.contenders)
                results = measure(jobs, flags.rounds, flags.single_rows, flags.rows)
                reporting.print_line(
                    "serving", config=path, precision=precision, rows=flags.rows, results=results
                )
                rows += table_of(path, precision, results)
                versions |= contenders.versions_of(results)
    reporting.write_table(flags.results, rows, versions)


if __name__ == "__main__":
    main()

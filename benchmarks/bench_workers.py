"""Compares training on several local workers with training on one: weights, speed, bytes read.

    python benchmarks/bench_workers.py

Pre-trains a small model without dropout in float32, once for each number of workers, on the same
random records. Prints one JSON line for each: the bytes of records that each worker and all workers
read, the largest difference of a weight or moment from the first run, and the time of a step, for
which all workers share the cores of this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import contenders
import numpy as np
import reporting

from albert_tf.checkpoints import containers
from albert_tf.config import AlbertConfig
from albert_tf.data.tfrecord import encode_examples, frame_records

LENGTH, PREDICTIONS, VOCABULARY = 128, 20, 5000
CONFIG = AlbertConfig(
    VOCABULARY,
    embedding_size=32,
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=256,
    max_position_embeddings=LENGTH,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)


def write_records(folder: str, records: int) -> None:
    """Writes four files of random instances and the config of the model."""
    for number in range(4):
        batch = contenders.pretraining_batch(records // 4, LENGTH, PREDICTIONS, VOCABULARY)
        with open(os.path.join(folder, f"{number}.tfrecord"), "wb") as stream:
            stream.writelines(frame_records(encode_examples(dict(batch))))
    CONFIG.to_json_file(os.path.join(folder, "config.json"))


def free_addresses(count: int) -> list[str]:
    """Returns addresses of ports of this machine that are not in use."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{opened.getsockname()[1]}" for opened in sockets]
    for opened in sockets:
        opened.close()
    return addresses


def train(folder: str, workers: int, batch_size: int, steps: int) -> list[dict[str, float]]:
    """Trains on a number of workers, and returns their reports."""
    program = os.path.join(contenders.FOLDER, "worker_training.py")
    addresses, output_dir = free_addresses(workers), os.path.join(folder, f"run{workers}")
    reports = [os.path.join(folder, f"report{workers}-{index}.json") for index in range(workers)]
    processes = []
    for index, report in enumerate(reports):
        environment = dict(os.environ)
        environment.pop("TF_CONFIG", None)
        if workers > 1:
            task = {"type": "worker", "index": index}
            cluster = {"cluster": {"worker": addresses}, "task": task}
            environment["TF_CONFIG"] = json.dumps(cluster)
        flags = {
            "albert_config_file": f"{folder}/config.json",
            "input_file": f"{folder}/*.tfrecord",
            "output_dir": output_dir,
            "max_seq_length": LENGTH,
            "max_predictions_per_seq": PREDICTIONS,
            "train_batch_size": batch_size,
            "num_train_steps": steps,
            "save_checkpoints_steps": steps,
            "num_warmup_steps": 10,
            "learning_rate": 0.001,
            "precision": "float32",
        }
        given = [f"--{name}={value}" for name, value in flags.items()]
        processes.append(
            subprocess.Popen([sys.executable, program, report, *given], env=environment)
        )
    if any([process.wait() for process in processes]):
        raise SystemExit(f"a run with {workers} worker(s) failed")
    found = []
    for report in reports:
        with open(report, encoding="utf-8") as stream:
            found.append(json.load(stream))
    return found


def largest_difference(prefix: str, other: str) -> float:
    """Returns the largest absolute difference between two checkpoints of the same model."""
    readers = containers.open_checkpoint(prefix), containers.open_checkpoint(other)
    differences = [
        np.abs(readers[0].get_tensor(name) - readers[1].get_tensor(name)).max()
        for name in readers[0].get_variable_to_shape_map()
    ]
    return float(max(differences))


def main() -> None:
    """Trains with each number of workers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--records", type=int, default=8192)
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--steps", type=int, default=50)
    reporting.add_flag(parser)
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_records(folder, flags.records)
        prefixes = []
        rows = []
        for workers in flags.workers:
            found = train(folder, workers, flags.batch_size, flags.steps)
            prefixes.append(os.path.join(folder, f"run{workers}", f"model.ckpt-{flags.steps}"))
            each = [round(report["bytes"] / 1e6, 2) for report in found]
            total = round(sum(report["bytes"] for report in found) / 1e6, 2)
            difference = largest_difference(prefixes[-1], prefixes[0])
            seconds = round(found[0]["seconds_per_step"], 4)
            reporting.print_line(
                "workers",
                workers=workers,
                megabytes_per_worker=each,
                megabytes=total,
                largest_difference=difference,
                seconds_per_step=seconds,
            )
            rows.append(
                {
                    "workers": workers,
                    "MB read by each": max(each),
                    "MB in total": total,
                    "largest difference from the first run": difference,
                    "seconds per step": seconds,
                }
            )
    reporting.write_table(flags.results, rows)


if __name__ == "__main__":
    main()

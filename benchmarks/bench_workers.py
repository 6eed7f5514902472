"""Compares training on several local workers with training on one: weights, speed, bytes read.

    python benchmarks/bench_workers.py [--store]

Pre-trains a small model without dropout in float32, once for each number of workers, on the same
random records. Prints one JSON line for each: the bytes of records that each worker and all workers
read, the largest difference of a weight or moment from the first run, and the time of a step, for
which all workers share the cores of this machine. With --store, the records are in an object store,
a server on this machine (moto).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import contenders
import fsspec
import numpy as np
import reporting

from albert_tf.checkpoints import containers
from albert_tf.config import AlbertConfig
from albert_tf.data import records
from albert_tf.data.tfrecord import encode_examples, frame_records

LENGTH = 128
PREDICTIONS = 20
VOCABULARY = 5000
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


def write_records(folder: str, data_dir: str, count: int) -> None:
    """Writes four files of random instances, with indexes, and the config of the model."""
    for number in range(4):
        batch = contenders.pretraining_batch(count // 4, LENGTH, PREDICTIONS, VOCABULARY)
        with records.open_output(f"{data_dir}/{number}.tfrecord", "") as write:
            write(frame_records(encode_examples(dict(batch))))
    CONFIG.to_json_file(os.path.join(folder, "config.json"))


def free_addresses(count: int) -> list[str]:
    """Returns addresses of ports of this machine that are not in use."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{opened.getsockname()[1]}" for opened in sockets]
    for opened in sockets:
        opened.close()
    return addresses


@contextlib.contextmanager
def object_store() -> Iterator[str]:
    """Yields a folder of an S3 server on this machine; sets the environment that names it."""
    (address,) = free_addresses(1)
    port = address.rpartition(":")[2]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", port]
    variables = {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://{address}",
    }
    os.environ.update(variables)
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
        try:
            while server.poll() is None:
                with contextlib.suppress(OSError):
                    socket.create_connection(("127.0.0.1", int(port))).close()
                    break
                time.sleep(0.1)
            fsspec.filesystem("s3").mkdir("bucket")
            yield "s3://bucket"
        finally:
            server.kill()


def train(
    folder: str, data_dir: str, workers: int, batch_size: int, steps: int
) -> list[dict[str, float]]:
    """Trains on a number of workers, and returns their reports."""
    program = os.path.join(contenders.FOLDER, "worker_training.py")
    addresses = free_addresses(workers)
    output_dir = os.path.join(folder, f"run{workers}")
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
            "input_file": f"{data_dir}/*.tfrecord",
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
    results = []
    for report in reports:
        with open(report, encoding="utf-8") as stream:
            results.append(json.load(stream))
    return results


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
    parser.add_argument("--store", action="store_true", help="read from an object store")
    reporting.add_flag(parser)
    flags = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        data_dir = stack.enter_context(object_store()) if flags.store else folder
        write_records(folder, data_dir, flags.records)
        prefixes = []
        rows = []
        for workers in flags.workers:
            results = train(folder, data_dir, workers, flags.batch_size, flags.steps)
            prefixes.append(os.path.join(folder, f"run{workers}", f"model.ckpt-{flags.steps}"))
            each = [round(report["bytes"] / 1e6, 2) for report in results]
            total = round(sum(report["bytes"] for report in results) / 1e6, 2)
            difference = largest_difference(prefixes[-1], prefixes[0])
            seconds = round(results[0]["seconds_per_step"], 4)
            reporting.print_line(
                "workers_and_store" if flags.store else "workers",
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

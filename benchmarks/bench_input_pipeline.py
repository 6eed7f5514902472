"""How fast are pre-training records read: tokens a second of the input pipeline alone.

    python benchmarks/bench_input_pipeline.py

Random records of S=512 in several files, shuffled as in training, against parsing them one by one
as Google's program does (`parse_single_example` of each, then batches). The ways take turns.
Prints one JSON line, in millions of tokens a second by the clock and a second of processor time. A
step of ALBERT base takes about 0.1 s a thousand tokens on two cores and 1 ms on a large GPU.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import contenders
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.data.tfrecord import encode_examples, frame_records
from albert_tf.pretraining import input_pipeline, record_files
from albert_tf.pretraining.task import PretrainingTask

LENGTH, PREDICTIONS, VOCABULARY = 512, 20, 30000


def write_records(folder: str, files: int, records: int) -> list[str]:
    """Files of random instances; returns their names."""
    paths = []
    for number in range(files):
        batch = contenders.pretraining_batch(records, LENGTH, PREDICTIONS, VOCABULARY)
        paths.append(os.path.join(folder, f"part-{number}.tfrecord"))
        with open(paths[-1], "wb") as stream:
            stream.writelines(frame_records(encode_examples(dict(batch))))
    return paths


def one_by_one(paths: list[str], features: Any, batch_size: int) -> tf.data.Dataset:
    """The dataset of Google's program."""
    dataset = tf.data.Dataset.from_tensor_slices(paths).repeat().shuffle(len(paths))
    dataset = dataset.interleave(tf.data.TFRecordDataset, cycle_length=4, num_parallel_calls=4)

    def parse(record: tf.Tensor) -> dict[str, tf.Tensor]:
        example = tf.io.parse_single_example(record, features)
        return {k: tf.cast(v, tf.int32) if v.dtype == tf.int64 else v for k, v in example.items()}

    dataset = dataset.shuffle(100).map(parse, num_parallel_calls=tf.data.AUTOTUNE)
    return dataset.batch(batch_size, drop_remainder=True).prefetch(2)


def seconds_of(batches: Iterator[Any], steps: int) -> tuple[float, float]:
    """What reading some batches takes, by the clock and of processor time."""
    begin, cpu = time.perf_counter(), time.process_time()
    for _ in range(steps):
        next(batches)
    return time.perf_counter() - begin, time.process_time() - cpu


def main() -> None:
    """Measures both ways."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--records", type=int, default=2000, help="of each of four files")
    parser.add_argument("--steps", type=int, default=100, help="batches of a turn")
    parser.add_argument("--rounds", type=int, default=3)
    flags = parser.parse_args()
    task = PretrainingTask(AlbertConfig(VOCABULARY), LENGTH, PREDICTIONS)
    with tempfile.TemporaryDirectory() as folder:
        paths = write_records(folder, 4, flags.records)
        found = record_files.find_record_files(paths)
        ours = input_pipeline.training_dataset(found, task.features, flags.batch_size, seed=5)
        ways: dict[str, Iterator[Any]] = {
            "ours": iter(ours),
            "one by one": iter(one_by_one(paths, task.features, flags.batch_size)),
        }
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for batches in ways.values():
            next(batches)
        for _ in range(flags.rounds):
            for name, batches in ways.items():
                times[name].append(seconds_of(batches, flags.steps))
    tokens = flags.steps * flags.batch_size * LENGTH / 1e6
    contenders.print_line(
        "input_pipeline",
        seq_length=LENGTH,
        batch_size=flags.batch_size,
        million_tokens_per_second={
            name: round(tokens / statistics.median(wall for wall, _ in found), 2)
            for name, found in times.items()
        },
        million_tokens_per_cpu_second={
            name: round(tokens / statistics.median(cpu for _, cpu in found), 2)
            for name, found in times.items()
        },
    )


if __name__ == "__main__":
    main()

"""Computes what each of several workers reads of a large data set, without reading it.

    python benchmarks/simulate_epoch.py --files=2700 --records=137000

The order of records is planned from their numbers, so the plan itself tells which files a worker
opens. Prints a Markdown table with a row for each number of workers: what the worker with the most
reads in an epoch, the requests that this takes if a store is asked for 64 MiB at a time, the hours
at a rate that you give, and what it reads to resume: on average, half a file of each of its
streams, and before there were streams, half an epoch.
"""

from __future__ import annotations

import argparse
import itertools
import math
from typing import NamedTuple

from albert_tf.pretraining.record_streams import MAX_STREAMS, take_turns

REQUEST_BYTES = 64 << 20  # TensorFlow's default for gs://, by its source


class Cost(NamedTuple):
    """What one worker reads.

    Attributes:
        epoch: records of an epoch.
        opened: files that it opens in an epoch.
        resume: records that it reads to resume, on average.
    """

    epoch: int
    opened: int
    resume: int


def costs(files: int, records: int, workers: int, seed: int = 0) -> list[Cost]:
    """Returns the cost of each worker.

    Args:
        files: number of record files.
        records: number of records of each.
        workers: number of workers, a divisor of the number of streams.
        seed: random seed.
    """
    each = files * records // MAX_STREAMS  # records of a stream in an epoch
    opened = [0] * MAX_STREAMS
    turns = take_turns([records] * files, MAX_STREAMS, seed)
    for turn in itertools.takewhile(lambda turn: turn.begin < each, turns):
        opened[turn.stream] += 1
    share = MAX_STREAMS // workers
    parts = [slice(share * worker, share * (worker + 1)) for worker in range(workers)]
    return [Cost(each * share, sum(opened[part]), share * records // 2) for part in parts]


def table(files: int, records: int, record_bytes: int, rate: float) -> str:
    """Returns the table; `rate` is in megabytes per second of each worker."""
    total = files * records * record_bytes
    lines = [
        "| workers | read by each, an epoch | requests | hours | before: read by each, hours "
        "| read by each to resume | before |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for workers in (1, 8, 64):
        most = [max(column) for column in zip(*costs(files, records, workers), strict=True)]
        epoch, opened, resume = most
        per_file = math.ceil(records * record_bytes / REQUEST_BYTES)
        hours, before = (n / rate / 1e6 / 3600 for n in (epoch * record_bytes, total))
        lines.append(
            f"| {workers} | {epoch * record_bytes / 1e9:,.0f} GB | {opened * per_file:,} "
            f"| {hours:.2f} | {total / 1e9:,.0f} GB, {before:.2f} "
            f"| {resume * record_bytes / 1e9:,.2f} GB | {total / 2e9:,.0f} GB |"
        )
    return "\n".join(lines)


def main() -> None:
    """Prints the table of the command line's numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=2700, help="number of record files")
    parser.add_argument("--records", type=int, default=137000, help="records of each file")
    parser.add_argument("--record_bytes", type=int, default=2700, help="bytes of a record")
    parser.add_argument("--rate", type=float, default=200, help="MB/s that a worker reads")
    args = parser.parse_args()
    print(table(args.files, args.records, args.record_bytes, args.rate))


if __name__ == "__main__":
    main()

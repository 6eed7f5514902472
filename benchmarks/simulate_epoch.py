"""Computes what each of several workers reads of a large data set, without reading it.

    python benchmarks/simulate_epoch.py --files=2700 --records=137000

The order of records is planned from their numbers, so the plan itself tells which files a worker
opens. Prints a Markdown table with a row for each number of workers: what the worker with the most
reads in an epoch, with the records that a stream reads and drops at the beginning of a file that it
shares; the requests that this takes if a store is asked for 64 MiB at a time; the hours at a rate
that you give; and what it reads and drops to resume, on average over all positions. Without streams
these are an epoch and half an epoch.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from albert_tf.pretraining.record_streams import MAX_STREAMS, divide_epoch

REQUEST_BYTES = 64 << 20  # TensorFlow's default for gs://, by its source


class Cost(NamedTuple):
    """What one worker reads.

    Attributes:
        epoch: records that it reads in an epoch.
        opened: files that it opens in an epoch.
        resume: records that it reads and drops to resume, on average.
    """

    epoch: int
    opened: int
    resume: int


def costs(counts: Sequence[int], workers: int, batch_size: int, seed: int = 0) -> list[Cost]:
    """Returns the cost of each worker in the first epoch.

    Args:
        counts: number of records of each file.
        workers: number of workers, a divisor of the number of streams.
        batch_size: B.
        seed: random seed.
    """
    parts = divide_epoch(counts, batch_size, MAX_STREAMS, seed, epoch=0)
    streams = []
    for stream in range(MAX_STREAMS):
        _, _, skipped, lengths = parts.of_stream(stream)
        resume = np.average(skipped + lengths / 2, weights=lengths)
        streams.append(((skipped + lengths).sum(), len(lengths), resume))
    columns = np.reshape(streams, [workers, MAX_STREAMS // workers, 3]).sum(axis=1)
    return [Cost(*map(round, column)) for column in columns]


def table(files: int, records: int, batch_size: int, record_bytes: int, rate: float) -> str:
    """Returns the table; `rate` is in megabytes per second of each worker."""
    total = files * records * record_bytes
    lines = [
        "| workers | read by each, an epoch | requests | hours "
        "| without streams: read by each, hours | read by each to resume | without streams |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for workers in (1, 8, 64):
        each = costs([records] * files, workers, batch_size)
        most = [max(column) for column in zip(*each, strict=True)]
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
    parser.add_argument("--batch_size", type=int, default=4096, help="records of a batch")
    parser.add_argument("--record_bytes", type=int, default=2700, help="bytes of a record")
    parser.add_argument("--rate", type=float, default=200, help="MB/s that a worker reads")
    args = parser.parse_args()
    print(table(args.files, args.records, args.batch_size, args.record_bytes, args.rate))


if __name__ == "__main__":
    main()

"""Pre-trains like run_pretraining.py, and counts the bytes that it reads of the records.

    python benchmarks/worker_training.py report.json --input_file=… (all flags of the program)

The process of one worker, started by bench_workers.py. Writes the number of bytes that were read of
the TFRecord files from the first training step on, and the median time of the steps, as JSON.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import statistics
import sys
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from albert_tf import files, pretraining
from albert_tf.cli.flags import parse
from albert_tf.data import records
from albert_tf.pretraining import input_pipeline
from albert_tf.training.step import TrainStep


class CountedFile(io.FileIO):
    """A file that adds the bytes that are read from it to `total`."""

    total = 0

    def read(self, size: int | None = -1, /) -> Any:
        """Reads and counts."""
        content = super().read(size)
        CountedFile.total += len(content or b"")
        return content

    def readinto(self, buffer: Any, /) -> Any:
        """Reads and counts."""
        count = super().readinto(buffer)
        CountedFile.total += count or 0
        return count


def main(report: str, *arguments: str) -> None:
    """Trains with the given flags, and writes the report."""
    settings = parse(pretraining.Settings, list(arguments))
    begins: list[float] = []
    open_binary, make_dataset, take_step = (
        files.open_binary,
        input_pipeline.training_dataset,
        TrainStep.__call__,
    )

    def open_counted(path: str) -> Any:
        is_counted = path.endswith(".tfrecord")
        return io.BufferedReader(CountedFile(path)) if is_counted else open_binary(path)

    def make_counted(*given: Any, **options: Any) -> Any:
        CountedFile.total = 0  # without the checks before training
        return make_dataset(*given, **options)

    def take_timed(*given: Any, **options: Any) -> Any:
        begins.append(time.perf_counter())
        result = take_step(*given, **options)
        bool(result["is_finite"])  # waits for the step
        return result

    files.open_binary = open_counted
    records.open_unbuffered = lambda path: CountedFile(path)
    input_pipeline.training_dataset = make_counted
    TrainStep.__call__ = take_timed  # type: ignore[method-assign]
    pretraining.run(settings)
    seconds = [end - begin for begin, end in itertools.pairwise(begins)]
    with files.write_atomically(report) as stream:
        median = statistics.median(seconds[1:])  # the first step is compiled
        json.dump({"bytes": CountedFile.total, "seconds_per_step": median}, stream)


if __name__ == "__main__":
    main(*sys.argv[1:])

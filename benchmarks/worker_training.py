"""Pre-trains like run_pretraining.py, and counts the bytes that it reads of the records.

    python benchmarks/worker_training.py report.json --input_file=… (all flags of the program)

The process of one worker, started by bench_workers.py. Writes the number of bytes that were read of
the TFRecord files and their indexes from the first training step on, and the median time of the
steps, as JSON.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from albert_tf import files, pretraining
from albert_tf.cli.flags import parse
from albert_tf.pretraining import input_pipeline
from albert_tf.training.step import TrainStep


class CountedFile(io.RawIOBase):
    """A file, local or remote, that adds the bytes that are read from it to `total`."""

    total = 0

    def __init__(self, stream: io.RawIOBase) -> None:
        super().__init__()
        self._stream = stream

    def readable(self) -> bool:
        """Returns True."""
        return True

    def seekable(self) -> bool:
        """Returns True."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Moves to an offset."""
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        """Returns the offset."""
        return self._stream.tell()

    def readinto(self, buffer: Any, /) -> Any:
        """Reads and counts."""
        data = self._stream.read(len(buffer)) or b""
        buffer[: len(data)] = data
        CountedFile.total += len(data)
        return len(data)

    def close(self) -> None:
        """Closes the file."""
        self._stream.close()
        super().close()


def count_reading() -> None:
    """Lets `CountedFile.total` grow by what is read of record files and their indexes."""
    open_binary = files.open_binary
    open_unbuffered = files.open_unbuffered
    read_ranges = files.read_ranges

    def open_counted(path: str) -> Any:
        if not path.endswith(".tfrecord"):
            return open_binary(path)
        size = 4 << 20 if files.is_remote(path) else io.DEFAULT_BUFFER_SIZE
        return io.BufferedReader(CountedFile(open_unbuffered(path)), size)

    def read_counted(path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        contents = read_ranges(path, ranges)
        if files.is_remote(path):  # others are opened without a buffer
            CountedFile.total += sum(map(len, contents))
        return contents

    files.open_binary = open_counted
    files.open_unbuffered = lambda path: CountedFile(open_unbuffered(path))
    files.read_ranges = read_counted


def main(report: str, *arguments: str) -> None:
    """Trains with the given flags, and writes the report."""
    settings = parse(pretraining.Settings, list(arguments))
    begins: list[float] = []
    make_dataset = input_pipeline.training_dataset
    take_step = TrainStep.__call__
    count_reading()

    def make_counted(*given: Any, **options: Any) -> Any:
        CountedFile.total = 0  # without the checks before training
        return make_dataset(*given, **options)

    def take_timed(*given: Any, **options: Any) -> Any:
        begins.append(time.perf_counter())
        result = take_step(*given, **options)
        bool(result["is_finite"])  # waits for the step
        return result

    input_pipeline.training_dataset = make_counted
    TrainStep.__call__ = take_timed  # type: ignore[method-assign]
    pretraining.run(settings)
    seconds = [end - begin for begin, end in itertools.pairwise(begins)]
    with files.write_atomically(report) as stream:
        median = statistics.median(seconds[1:])  # the first step is compiled
        json.dump({"bytes": CountedFile.total, "seconds_per_step": median}, stream)


if __name__ == "__main__":
    main(*sys.argv[1:])

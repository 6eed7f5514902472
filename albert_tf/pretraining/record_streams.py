"""The order of records in many files: streams of files, which workers share.

The order is a function of the numbers of records of the files, which their metadata contain, of the
seed, and of the number of streams, V. It is computed without reading a record:

1. The files stand in a queue: all of them in a random order, then all in another one, and so on.
2. The V streams read one record each, in turn. A stream that has no file, or has read all records
   of it, takes the first one of the queue; if several have, that with the lowest number first.
3. Each stream shuffles its records in blocks of `SHUFFLE_BLOCK / V`.
4. A batch of B records has B / V from each stream: row r is of stream r // (B / V).

So a batch is the same for any number of workers, and each of them opens only the files of the
streams of its own rows. A run that is resumed computes where each stream stands, and opens the file
with the first record of that block, of which it skips the records before.

Every file is read whole before it is opened again, and opened once before any other is opened for
the second time after it: an epoch has each record once, except that the ends of epochs overlap by
less than a file in each stream.

Source: the canonical nodes of MosaicML Streaming, whose order does not depend on the number of
machines either, and the deterministic pipelines of SeqIO, which resume by index.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from albert_tf.files import is_remote

if TYPE_CHECKING:
    from albert_tf.pretraining.record_files import RecordFile  # needs TensorFlow

ONE_ORDER = 1  # number of streams of the order for few files, in which all workers read everything
MAX_STREAMS = 64  # by default; as many as workers that read different files
MIN_STREAMS = 4  # with fewer, the order for few files mixes more files
SHUFFLE_BLOCK = 10_000  # records in memory, of all streams together

_FILES = 1  # mixed into the seed of the order of files


class Turn(NamedTuple):
    """What a stream reads from some place on.

    Attributes:
        stream: index of the stream.
        begin: number of records that the stream has read before.
        file: index of the file.
    """

    stream: int
    begin: int
    file: int


def take_turns(counts: Sequence[int], num_streams: int, seed: int) -> Iterator[Turn]:
    """Yields which stream takes which file, in the order of the queue, without end.

    Args:
        counts: number of records of each file.
        num_streams: V.
        seed: random seed.
    """
    free = [(0, stream) for stream in range(num_streams)]  # a heap of where the files of all end
    for epoch in itertools.count():
        order = np.random.default_rng([seed, _FILES, epoch]).permutation(len(counts))
        for file in order.tolist():
            begin, stream = free[0]
            yield Turn(stream, begin, file)
            heapq.heapreplace(free, (begin + counts[file], stream))


class StreamPlan:
    """Which files each stream opens from a position on.

    Args:
        files: the record files.
        num_streams: V.
        seed: random seed.
        start: number of records of each stream that were read before.

    Attributes:
        num_streams: V.
        block: number of records that a stream shuffles together.
        first_block: index of the block with the first record to read.
        dropped: number of records of that block that were read before.
        is_remote: whether a file is in an object store.
        opened: the files that were opened so far, for messages.
    """

    def __init__(
        self, files: Sequence[RecordFile], num_streams: int, seed: int, start: int = 0
    ) -> None:
        self.num_streams = num_streams
        self.block = max(1, SHUFFLE_BLOCK // num_streams)
        self.first_block, self.dropped = divmod(start, self.block)
        self.is_remote = any(is_remote(file.path) for file in files)
        self.opened: list[RecordFile] = []
        self._files = files
        self._turns = take_turns([file.num_records for file in files], num_streams, seed)
        self._turns_of: list[list[Turn]] = [[] for _ in range(num_streams)]
        self._lock = threading.Lock()  # the streams are read by several threads

    def open_file(self, stream: int, number: int) -> tuple[str, int]:
        """Returns what a stream reads: the path of a file, and how many records to skip.

        Args:
            stream: index of the stream.
            number: how many files it has opened before.
        """
        first = self.first_block * self.block
        with self._lock:
            while len(self._turns_of[stream]) <= number:
                turn = next(self._turns)
                if turn.begin + self._files[turn.file].num_records > first:
                    self._turns_of[turn.stream].append(turn)
            turn = self._turns_of[stream][number]
            self.opened.append(self._files[turn.file])
        return self._files[turn.file].path, max(0, first - turn.begin)


def streams_of_rows(rows: slice, batch_size: int, num_streams: int) -> range:
    """Returns the streams that some rows of a batch are from.

    Args:
        rows: the rows.
        batch_size: B.
        num_streams: V.
    """
    each = batch_size // num_streams
    return range(rows.start // each, -(-rows.stop // each))


def choose_streams(num_streams: int | None, num_files: int, batch_size: int) -> int:
    """Returns the number of streams of a run; `ONE_ORDER` for few files.

    Args:
        num_streams: the number in the settings; None to choose it.
        num_files: number of record files.
        batch_size: B.

    Raises:
        ValueError: the streams are more than the files, or do not divide the batch.
    """
    if num_streams is None:
        chosen = max(n for n in _divisors_of(batch_size, MAX_STREAMS) if n & (n - 1) == 0)
        return chosen if num_files >= MAX_STREAMS and chosen >= MIN_STREAMS else ONE_ORDER
    possible = possible_streams(num_files, batch_size)
    if num_streams in possible:
        return num_streams
    largest = max(n for n in possible if n <= num_streams)
    if num_streams > num_files:
        raise ValueError(
            f"--record_streams={num_streams}: there are only {num_files} record files, and each "
            f"stream reads one at a time. Pass --record_streams={largest}, or create the records "
            f"in more files (--output_file=NAME@{num_streams})."
        )
    raise ValueError(
        f"--record_streams={num_streams}: expected a divisor of --train_batch_size={batch_size}, "
        f"because each batch has equally many records of each stream. Pass "
        f"--record_streams={largest}."
    )


def possible_streams(num_files: int, batch_size: int) -> list[int]:
    """Returns the possible numbers of streams, ascending: divisors of B, at most one per file."""
    return _divisors_of(batch_size, num_files)


def _divisors_of(number: int, largest: int) -> list[int]:
    return [n for n in range(1, min(number, largest) + 1) if number % n == 0]

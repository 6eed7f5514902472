"""The order of records in many files: streams of records, which workers share.

The order is a function of the numbers of records of the files, which their metadata contain, of the
seed, of the batch size, B, and of the number of streams, V. It is computed without reading a
record:

1. A batch has B / V rows of each stream: row r is of stream r // (B / V).
2. Row r of batch n is record n * B + r of the order. Epoch e is the N records of the order from
   e * N on, so a batch may have the last rows of an epoch and the first ones of the next. How many
   records of an epoch a stream reads follows; the streams differ by at most B / V.
3. The files of an epoch stand in a queue in a random order, and the streams divide its records: the
   first stream reads the first ones, and so on. If streams share a file, the one that reads fewest
   records of it reads its first ones, because a stream reads and drops those before its own.
4. Each stream shuffles its records of an epoch in blocks of `SHUFFLE_BLOCK / V`.

So an epoch has each record once. A batch is the same for any number of workers, and each of them
opens only the files of the streams of its own rows. A run that is resumed computes where each
stream stands, and opens the file with the first record of that block, of which it drops the records
before.

Source: the canonical nodes of MosaicML Streaming, which divide the samples of an epoch and not its
files, and whose order does not depend on the number of machines either; and the deterministic
pipelines of SeqIO, which resume by index.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from albert_tf.files import is_remote

if TYPE_CHECKING:
    from albert_tf.pretraining.record_files import RecordFile  # needs TensorFlow

STREAM_ORDER = 2  # number of this order in the record of a run; the first one dealt whole files
ONE_ORDER = 1  # number of streams of the order for few files, in which all workers read everything
MAX_STREAMS = 64  # by default; as many as workers that read different files
MIN_STREAMS = 4  # with fewer, the order for few files mixes more files
MAX_DROPPED = 0.5  # records that streams may drop in an epoch, of those in it
SHUFFLE_BLOCK = 10_000  # records in memory, of all streams together

_FILES = 1  # mixed into the seed of the order of files


class Parts(NamedTuple):
    """The parts of files that streams read in an epoch, in the order in which they read them.

    Attributes:
        streams: the stream that reads each part, int64 [number of parts], ascending.
        files: index of its file.
        skipped: number of records of the file before the part.
        counts: number of records of the part.
    """

    streams: NDArray[np.int64]
    files: NDArray[np.int64]
    skipped: NDArray[np.int64]
    counts: NDArray[np.int64]

    def of_stream(self, stream: int, begin: int = 0) -> Parts:
        """Returns the parts of a stream, without its first `begin` records of the epoch."""
        chosen = Parts(*(column[self.streams == stream] for column in self))
        before = np.cumsum(chosen.counts) - chosen.counts
        dropped = np.clip(begin - before, 0, chosen.counts)
        left = chosen._replace(skipped=chosen.skipped + dropped, counts=chosen.counts - dropped)
        return Parts(*(column[left.counts > 0] for column in left))


def records_of_streams(count: int, batch_size: int, num_streams: int) -> NDArray[np.int64]:
    """Returns how many of the first `count` records of the order are of each stream, int64 [V].

    Args:
        count: a number of records.
        batch_size: B.
        num_streams: V.
    """
    batches, rows = divmod(count, batch_size)
    each = batch_size // num_streams
    return batches * each + np.clip(rows - each * np.arange(num_streams), 0, each)


def divide_epoch(
    counts: Sequence[int], batch_size: int, num_streams: int, seed: int, epoch: int
) -> Parts:
    """Returns which parts of the files the streams read in an epoch.

    Args:
        counts: number of records of each file.
        batch_size: B.
        num_streams: V.
        seed: random seed.
        epoch: number of the epoch.
    """
    order = np.random.default_rng([seed, _FILES, epoch]).permutation(len(counts))
    sizes = np.asarray(counts, np.int64)[order]
    total = int(sizes.sum())
    begin, end = (
        records_of_streams(total * number, batch_size, num_streams) for number in (epoch, epoch + 1)
    )
    # Where files and streams begin in the queue; a part begins where either does.
    files_begin, streams_begin = (np.cumsum(each) - each for each in (sizes, end - begin))
    parts_begin = np.union1d(files_begin, streams_begin)
    parts_begin = parts_begin[parts_begin < total]
    lengths = np.diff(parts_begin, append=total)
    place = np.searchsorted(files_begin, parts_begin, side="right") - 1
    streams = np.searchsorted(streams_begin, parts_begin, side="right") - 1
    shortest_first = np.lexsort((lengths, place))  # within each file
    ordered = lengths[shortest_first]
    skipped = np.empty_like(lengths)
    skipped[shortest_first] = np.cumsum(ordered) - ordered - files_begin[place]
    return Parts(streams, order[place], skipped, lengths)


class StreamPlan:
    """Which records each stream reads from a position on.

    Args:
        files: the record files.
        num_streams: V.
        batch_size: B.
        seed: random seed.
        start: number of records that were read before, a multiple of B.

    Attributes:
        num_streams: V.
        block: number of records that a stream shuffles together.
        first_epoch: number of the epoch with the first record to read.
        first_blocks: index of the block of that epoch with the first record of each stream, int64
            [V].
        dropped: number of records of that block that were read before, int64 [V].
        is_remote: whether a file is in an object store.
        opened: the files that were opened so far, for messages.
    """

    def __init__(
        self,
        files: Sequence[RecordFile],
        num_streams: int,
        batch_size: int,
        seed: int,
        start: int = 0,
    ) -> None:
        self.num_streams = num_streams
        self.block = max(1, SHUFFLE_BLOCK // num_streams)
        self.is_remote = any(is_remote(file.path) for file in files)
        self.opened: list[RecordFile] = []
        self._files = files
        counts = [file.num_records for file in files]
        self.first_epoch = start // sum(counts)
        before, begin = (
            records_of_streams(count, batch_size, num_streams)
            for count in (start, self.first_epoch * sum(counts))
        )
        self.first_blocks, self.dropped = np.divmod(before - begin, self.block)
        # Threads that ask for the same epoch at once compute the same parts.
        self._divide = functools.lru_cache(maxsize=4)(
            functools.partial(divide_epoch, counts, batch_size, num_streams, seed)
        )

    def parts(self, stream: int, epoch: int) -> Parts:
        """Returns the parts that a stream reads in an epoch, from the first block on."""
        is_first = epoch == self.first_epoch
        begin = self.first_blocks[stream] * self.block if is_first else 0
        return self._divide(int(epoch)).of_stream(stream, begin)

    def open_file(self, index: int) -> str:
        """Returns the path of a file that a stream opens."""
        self.opened.append(self._files[index])
        return self._files[index].path


def streams_of_rows(rows: slice, batch_size: int, num_streams: int) -> range:
    """Returns the streams that some rows of a batch are from.

    Args:
        rows: the rows.
        batch_size: B.
        num_streams: V.
    """
    each = batch_size // num_streams
    return range(rows.start // each, -(-rows.stop // each))


def choose_streams(
    num_streams: int | None, counts: Sequence[int], batch_size: int, seed: int
) -> int:
    """Returns the number of streams of a run; `ONE_ORDER` for few files.

    Args:
        num_streams: the number in the settings; None to choose the largest one of which the streams
            do not drop more than `MAX_DROPPED`.
        counts: number of records of each file.
        batch_size: B.
        seed: random seed.

    Raises:
        ValueError: see `check_streams`.
    """
    if num_streams is not None:
        check_streams(num_streams, len(counts), batch_size)
        return num_streams
    if len(counts) >= MAX_STREAMS:
        for chosen in reversed(_divisors_of(batch_size, MAX_STREAMS)):
            if chosen & (chosen - 1) == 0 and chosen >= MIN_STREAMS:
                parts = divide_epoch(counts, batch_size, chosen, seed, epoch=0)
                if parts.skipped.sum() <= MAX_DROPPED * sum(counts):
                    return chosen
    return ONE_ORDER


def check_streams(num_streams: int, num_files: int, batch_size: int) -> None:
    """Checks a number of streams in the settings.

    Args:
        num_streams: the number.
        num_files: number of record files.
        batch_size: B.

    Raises:
        ValueError: the streams are more than the files, or do not divide the batch.
    """
    possible = possible_streams(num_files, batch_size)
    if num_streams in possible:
        return
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

"""Shuffles more records than fit in memory.

Each record is spilled to disk, to a random slot of its output file. Later, the slots of an output
are read back in groups as large as memory allows, and each group is shuffled. Random slots
combined with a random order within each group make a uniformly random permutation of all records.

A block is a file of records sorted by slot, written under a temporary name and then renamed, so
that it is either complete or does not exist. Little-endian integers of 8 bytes precede the
records: the number of records before each slot and after the last one, and the offset in bytes of
each record and of the end.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from albert_tf import files
from albert_tf.record_frames import split_frames

NUM_SLOTS = 4096  # in all outputs together; an output has at most as many groups as slots
SPILL_BYTES = 32 << 20  # bytes of records that a process buffers before it writes a block

GROUPS_AT_ONCE = 64  # whose places in the blocks are read, and in memory, at the same time

_INTEGER_BYTES = 8
_ORDER = 2  # mixed into the seed, so that this order has a separate random stream


@dataclasses.dataclass(frozen=True)
class EncodedBatch:
    """Some instances of a chunk, serialized.

    Attributes:
        records: serialized examples in TFRecord frames.
        slots: int64 [number of records], the shuffle slot of each record; see `draw_slots`.
        counts: what this batch adds to the counts in the metadata.
    """

    records: list[bytes]
    slots: NDArray[np.int64]
    counts: collections.Counter[str]


def slots_per_output(num_outputs: int) -> int:
    """Returns the number of slots per output: an equal share of NUM_SLOTS, at least one."""
    return max(1, NUM_SLOTS // num_outputs)


def draw_slots(
    count: int, first: int, num_outputs: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draws a random slot for each record of a batch.

    The slots of output i start at `i * slots_per_output(num_outputs)`. Records are distributed
    evenly: within a chunk, the outputs' numbers of records differ by at most one.

    Args:
        count: number of records in the batch.
        first: index within the chunk of the batch's first record.
        num_outputs: number of outputs.
        rng: random generator.

    Returns:
        int64 [count].
    """
    each = slots_per_output(num_outputs)
    outputs = rng.permutation((first + np.arange(count)) % num_outputs)
    return outputs * each + rng.integers(0, each, count)


def spill(
    batches: Iterable[EncodedBatch], stem: str, num_outputs: int
) -> tuple[list[str], collections.Counter[str]]:
    """Writes the records of a chunk to disk, in blocks.

    Args:
        batches: the instances of the chunk.
        stem: path prefix of the blocks, which are named `<stem>-000.spill`, …
        num_outputs: number of output files.

    Returns:
        The paths of the blocks, in order, and the counts of the chunk.
    """
    paths: list[str] = []
    counts: collections.Counter[str] = collections.Counter()
    buffered: list[EncodedBatch] = []

    def flush() -> None:
        if records := [record for batch in buffered for record in batch.records]:
            paths.append(f"{stem}-{len(paths):03d}.spill")
            slots = np.concatenate([batch.slots for batch in buffered])
            _write_block(paths[-1], records, slots, num_outputs)
        buffered.clear()

    for batch in batches:
        counts.update(batch.counts)
        buffered.append(batch)
        if sum(batch.counts["record_bytes"] for batch in buffered) >= SPILL_BYTES:
            flush()
    flush()
    return paths, counts


def _write_block(
    path: str, records: list[bytes], slots: NDArray[np.int64], num_outputs: int
) -> None:
    order = np.argsort(slots, kind="stable")
    records_before = np.searchsorted(slots[order], np.arange(_num_slots(num_outputs) + 1))
    sorted_records = [records[at] for at in order.tolist()]
    offsets = np.cumsum([0, *map(len, sorted_records)])
    with files.write_atomically(path, "wb") as stream:
        stream.write(np.concatenate([records_before, offsets]).astype("<i8").tobytes())
        stream.writelines(sorted_records)


def shuffled(
    blocks: Sequence[str], output: int, num_outputs: int, groups: int, random_seed: int
) -> Iterator[bytes]:
    """Yields the records of an output from all blocks, in random order.

    Args:
        blocks: paths of the blocks. The result depends on their order.
        output: index of the output, starting at 0.
        num_outputs: number of outputs.
        groups: number of groups into which the slots are divided; one is in memory at a time.
        random_seed: the run's seed.

    Raises:
        ValueError: a block is damaged; the message names it.
    """
    each = slots_per_output(num_outputs)
    bounds = [output * each + each * group // groups for group in range(groups + 1)]
    for some in range(0, groups, GROUPS_AT_ONCE):
        slots = bounds[some : some + GROUPS_AT_ONCE + 1]
        offsets = [_offsets_of_slots(path, num_outputs, slots) for path in blocks]
        parts = itertools.pairwise(zip(*offsets, strict=True))
        for group, (begins, ends) in enumerate(parts, some):
            records = [
                record
                for part in zip(blocks, begins, ends, strict=True)
                for record in _read_records(*part)
            ]
            order = random_order(len(records), random_seed, output, group)
            yield from map(records.__getitem__, order)


def random_order(count: int, random_seed: int, output: int, group: int = 0) -> list[int]:
    """Returns a random permutation of 0 to `count - 1`, the order in which a group is written."""
    rng = np.random.default_rng([random_seed, output, _ORDER, group])
    order: list[int] = rng.permutation(count).tolist()
    return order


def _offsets_of_slots(path: str, num_outputs: int, slots: Sequence[int]) -> list[int]:
    """Returns the offset in a block, in bytes, at which each of some slots in order begins."""
    num_slots = _num_slots(num_outputs)
    # The count after the last slot, of all records, is read with those of the slots.
    counts = _read_integers(path, slots[0], num_slots + 1)
    first, last, total = counts[0], counts[slots[-1] - slots[0]], counts[-1]
    of_records = _read_integers(path, num_slots + 1 + first, num_slots + 1 + last + 1)
    header = _INTEGER_BYTES * (num_slots + 1 + total + 1)
    offsets: list[int] = (header + of_records[counts[np.array(slots) - slots[0]] - first]).tolist()
    return offsets


def _read_integers(path: str, begin: int, end: int) -> NDArray[np.int64]:
    """Returns the integers of a block's header from one index to another, which ascend."""
    data = _read_bytes(path, _INTEGER_BYTES * begin, _INTEGER_BYTES * end)
    integers = np.frombuffer(data, "<i8")
    if integers[0] < 0 or np.any(integers[1:] < integers[:-1]):
        raise _damaged(path, "its header is not one")
    return integers


def _read_records(path: str, begin: int, end: int) -> list[bytes]:
    """Returns the records of a block from one offset to another."""
    try:
        return split_frames(_read_bytes(path, begin, end))
    except ValueError as error:
        raise _damaged(path, str(error)) from None


def _read_bytes(path: str, begin: int, end: int) -> bytes:
    """Returns the bytes of a block from one offset to another, by one read."""
    if begin == end:
        return b""
    with open(path, "rb", buffering=0) as stream:
        if end > os.fstat(stream.fileno()).st_size:
            raise _damaged(path, "it ends early")
        stream.seek(begin)
        return stream.read(end - begin)


def _damaged(path: str, reason: str) -> ValueError:
    return ValueError(
        f"{path}: damaged, {reason}. Remove the folder {os.path.dirname(path)} and run the same "
        "command again, which begins anew"
    )


def _num_slots(num_outputs: int) -> int:
    return num_outputs * slots_per_output(num_outputs)

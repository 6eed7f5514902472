"""A global shuffle of more records than fit in memory.

Every record is spilled to a random slot. Slots are read back a few at a time, each group as large
as memory allows, and shuffled there. Random slots and a random order within each make a uniformly
random order over all.

Spilled blocks are written under temporary names and renamed, so a block is there or it is not.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from albert_tf import files

NUM_SLOTS = 4096  # over all outputs: the finest division that the spill files know
SPILL_BYTES = 32 << 20  # records of a worker in memory before they are written


@dataclasses.dataclass
class Spill:
    """Collects records and writes them as blocks, in order of their slots.

    Args:
        path: beginning of the blocks' names: `<path>-000.spill`, …
        num_slots: slots are 0 to num_slots - 1.

    Attributes:
        blocks: paths of the blocks written so far.
        written: bytes of records in them.
    """

    path: str
    num_slots: int

    def __post_init__(self) -> None:
        self.blocks: list[str] = []
        self.written = 0
        self._records: list[bytes] = []
        self._slots: list[NDArray[np.int64]] = []
        self._bytes = 0

    def add(self, records: Sequence[bytes], slots: NDArray[np.int64]) -> None:
        """Adds records and the slot of each; writes a block when there are enough."""
        self._records.extend(records)
        self._slots.append(slots)
        self._bytes += sum(map(len, records))
        if self._bytes >= SPILL_BYTES:
            self.flush()

    def flush(self) -> None:
        """Writes what there is. Call it at the end."""
        if not self._records:
            return
        slots = np.concatenate(self._slots)
        order = np.argsort(slots, kind="stable")
        lengths = np.fromiter(map(len, self._records), np.int64, len(slots))[order]
        records_before = np.searchsorted(slots[order], np.arange(self.num_slots + 1))
        bytes_before = np.concatenate(([0], lengths.cumsum()))[records_before]
        path = f"{self.path}-{len(self.blocks):03d}.spill"
        with files.write_atomically(path, "wb") as stream:
            for header in (records_before, bytes_before, lengths):
                stream.write(header.astype("<i8").tobytes())
            stream.writelines(map(self._records.__getitem__, order.tolist()))
        self.blocks.append(path)
        self.written += self._bytes
        self._records, self._slots, self._bytes = [], [], 0


def read_slots(path: str, num_slots: int, begin: int, end: int) -> Iterator[bytes]:
    """The records of the slots from `begin` to before `end` in one block, in order."""
    with open(path, "rb") as stream:

        def integers(start: int, count: int) -> list[int]:
            stream.seek(8 * start)
            found: list[int] = np.frombuffer(stream.read(8 * count), "<i8").tolist()
            return found

        num_records = integers(num_slots, 1)[0]
        (first,), (last,) = integers(begin, 1), integers(end, 1)
        (offset,) = integers(num_slots + 1 + begin, 1)
        lengths = integers(2 * (num_slots + 1) + first, last - first)
        stream.seek(8 * (2 * (num_slots + 1) + num_records) + offset)
        data = stream.read(sum(lengths))
    at = 0
    for length in lengths:
        yield data[at : at + length]
        at += length


def shuffled(
    blocks: Iterable[str], num_slots: int, slots: range, groups: int, seed: Sequence[int]
) -> Iterator[bytes]:
    """The records of some slots of all blocks in random order.

    Args:
        blocks: the spilled blocks. Their order counts: it is what the random order starts from.
        num_slots: number of slots that they were written with.
        slots: the slots.
        groups: parts to do it in, one in memory at a time; at most one for each slot.
        seed: seed of the order.
    """
    blocks = list(blocks)
    edges = [slots.start + len(slots) * group // groups for group in range(groups + 1)]
    for group, (begin, end) in enumerate(itertools.pairwise(edges)):
        records = [record for path in blocks for record in read_slots(path, num_slots, begin, end)]
        order = np.random.default_rng([*seed, group]).permutation(len(records))
        yield from map(records.__getitem__, order.tolist())


def slots_of(output: int, num_outputs: int) -> range:
    """The slots that belong to one of the outputs."""
    each = slots_per_output(num_outputs)
    return range(output * each, (output + 1) * each)


def slots_per_output(num_outputs: int) -> int:
    """Slots of each output: as many as there are for all of them, but at least one."""
    return max(1, NUM_SLOTS // num_outputs)


def draw_slots(
    count: int, first: int, num_outputs: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Random slots for records `first` to `first + count` of a chunk, balanced over the outputs.

    Any `num_outputs` records in a row would go to different outputs if they were not shuffled
    among the `count`, so that over a chunk the outputs' sizes differ by one record at most.
    """
    each = slots_per_output(num_outputs)
    outputs = rng.permutation((first + np.arange(count)) % num_outputs)
    return outputs * each + rng.integers(0, each, count)

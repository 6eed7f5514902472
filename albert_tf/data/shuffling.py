"""A global shuffle of more records than fit in memory.

Every record is spilled to a random slot of its output file. Later the slots of an output are read
back in groups, each as large as memory allows, and each group is shuffled. Random slots, and a
random order within each, make a uniformly random order of all records.

Spilled blocks are written under temporary names and renamed: a block is complete or does not exist.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from albert_tf import files

NUM_SLOTS = 4096  # over all outputs: an output can be read back in as many groups as it has slots
SPILL_BYTES = 32 << 20  # records that a process holds in memory before it writes them

_ORDER = 2  # part of a seed, so that no other use draws the same random numbers


def slots_per_output(num_outputs: int) -> int:
    """The number of slots of each output: an equal share of NUM_SLOTS, but at least one."""
    return max(1, NUM_SLOTS // num_outputs)


def draw_slots(
    count: int, first: int, num_outputs: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draws slots for the records `first` to `first + count` of a chunk: int64 [count].

    Output i has the slots from `i * slots_per_output(num_outputs)` on. The records are balanced
    over the outputs: over a chunk, the numbers of records in them differ by one at most.
    """
    each = slots_per_output(num_outputs)
    outputs = rng.permutation((first + np.arange(count)) % num_outputs)
    return outputs * each + rng.integers(0, each, count)


class Spill:
    """Collects records and writes them as blocks, sorted by slot.

    Args:
        path: beginning of the blocks' names: `<path>-000.spill`, …
        num_outputs: number of output files.

    Attributes:
        blocks: paths of the blocks written so far.
        written: bytes of records in them.
    """

    def __init__(self, path: str, num_outputs: int):
        self.path = path
        self.num_outputs = num_outputs
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
        """Writes what has been added since the last block. Has to be called at the end."""
        if not self._records:
            return
        slots = np.concatenate(self._slots)
        order = np.argsort(slots, kind="stable")
        lengths = np.fromiter(map(len, self._records), np.int64, len(slots))[order]
        bounds = np.arange(_num_slots(self.num_outputs) + 1)
        records_before = np.searchsorted(slots[order], bounds)
        bytes_before = np.concatenate(([0], lengths.cumsum()))[records_before]
        path = f"{self.path}-{len(self.blocks):03d}.spill"
        with files.write_atomically(path, "wb") as stream:
            for header in (records_before, bytes_before, lengths):
                stream.write(header.astype("<i8").tobytes())
            stream.writelines(map(self._records.__getitem__, order.tolist()))
        self.blocks.append(path)
        self.written += self._bytes
        self._records, self._slots, self._bytes = [], [], 0


def shuffled(
    blocks: Iterable[str], output: int, num_outputs: int, groups: int, random_seed: int
) -> Iterator[bytes]:
    """The records of an output from all blocks, in random order.

    Args:
        blocks: the spilled blocks. Their order matters: the shuffle starts from it.
        output: number of the output, from 0.
        num_outputs: number of outputs.
        groups: number of groups of slots that are read and shuffled one after the other.
        random_seed: the run's seed.
    """
    blocks = list(blocks)
    each = slots_per_output(num_outputs)
    bounds = [output * each + each * group // groups for group in range(groups + 1)]
    for group, (begin, end) in enumerate(itertools.pairwise(bounds)):
        records = [
            record for path in blocks for record in _read_slots(path, num_outputs, begin, end)
        ]
        yield from map(records.__getitem__, random_order(len(records), random_seed, output, group))


def random_order(count: int, random_seed: int, output: int, group: int = 0) -> list[int]:
    """The order in which the records of a group of an output are written: numbers from 0."""
    rng = np.random.default_rng([random_seed, output, _ORDER, group])
    order: list[int] = rng.permutation(count).tolist()
    return order


def _read_slots(path: str, num_outputs: int, begin: int, end: int) -> Iterator[bytes]:
    """The records of the slots from `begin` to before `end` in one block, in order."""
    bounds = _num_slots(num_outputs) + 1
    with open(path, "rb") as stream:

        def integers(start: int, count: int) -> list[int]:
            stream.seek(8 * start)
            found: list[int] = np.frombuffer(stream.read(8 * count), "<i8").tolist()
            return found

        (num_records,) = integers(bounds - 1, 1)
        (first,), (last,) = integers(begin, 1), integers(end, 1)
        (offset,) = integers(bounds + begin, 1)
        lengths = integers(2 * bounds + first, last - first)
        stream.seek(8 * (2 * bounds + num_records) + offset)
        data = stream.read(sum(lengths))
    at = 0
    for length in lengths:
        yield data[at : at + length]
        at += length


def _num_slots(num_outputs: int) -> int:
    return num_outputs * slots_per_output(num_outputs)

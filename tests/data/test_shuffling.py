"""The shuffle on disk: no record is lost, and all orders are equally likely."""

from __future__ import annotations

import collections
import os

import numpy as np
import pytest

from albert_tf.data import shuffle
from albert_tf.record_frames import frame_records

RECORDS = frame_records([b"%d" % number * (number % 5) + b"-" for number in range(200)])


def spill(tmp_path, records, num_outputs, name="chunk-0", seed=5):
    """Returns the paths of the blocks, and the counts."""
    rng = np.random.default_rng(seed)
    batches = []
    for first in range(0, len(records), 7):
        some = records[first : first + 7]
        counts = collections.Counter(instances=len(some), record_bytes=sum(map(len, some)))
        slots = shuffle.draw_slots(len(some), first, num_outputs, rng)
        batches.append(shuffle.EncodedBatch(some, slots, counts))
    return shuffle.spill(batches, str(tmp_path / name), num_outputs)


def read_back(blocks, num_outputs, groups=1, seed=7):
    return [
        list(shuffle.shuffled(blocks, output, num_outputs, groups, seed))
        for output in range(num_outputs)
    ]


@pytest.mark.parametrize(
    ("num_outputs", "groups", "num_slots"),
    [(1, 1, 4096), (3, 1, 4096), (3, 5, 4096), (64, 5, 4096), (20, 1, 2)],
)
def test_every_record_comes_back_once_and_outputs_are_balanced(
    tmp_path, monkeypatch, num_outputs, groups, num_slots
):
    monkeypatch.setattr(shuffle, "NUM_SLOTS", num_slots)
    blocks, _ = spill(tmp_path, RECORDS, num_outputs)
    outputs = read_back(blocks, num_outputs, groups)
    assert sorted(record for output in outputs for record in output) == sorted(RECORDS)
    sizes = [len(output) for output in outputs]
    assert max(sizes) - min(sizes) <= 1


def test_blocks_are_written_when_memory_is_full(tmp_path, monkeypatch):
    monkeypatch.setattr(shuffle, "SPILL_BYTES", 100)
    blocks, counts = spill(tmp_path, RECORDS, 3)
    assert len(blocks) > 3
    assert sorted(map(os.path.basename, blocks)) == sorted(os.listdir(tmp_path))
    assert counts == {"instances": len(RECORDS), "record_bytes": sum(map(len, RECORDS))}
    found = [record for output in read_back(blocks, 3) for record in output]
    assert sorted(found) == sorted(RECORDS)


@pytest.mark.parametrize(("limit", "blocks"), [(40, [40, 40]), (41, [60, 20])])
def test_a_block_is_written_as_soon_as_it_has_as_many_bytes(tmp_path, monkeypatch, limit, blocks):
    monkeypatch.setattr(shuffle, "SPILL_BYTES", limit)
    records = frame_records([b"text"] * 4)  # of 20 bytes
    batches = [
        shuffle.EncodedBatch([record], np.zeros(1, int), collections.Counter(record_bytes=20))
        for record in records
    ]
    paths, _ = shuffle.spill(batches, str(tmp_path / "chunk-0"), 1)
    empty = shuffle.spill(batches[:1], str(tmp_path / "one"), 1)[0]
    header = os.path.getsize(empty[0]) - 20 - 8  # without the offset of the record
    sizes = [os.path.getsize(path) - header for path in paths]
    assert sizes == [size + size // 20 * 8 for size in blocks]


@pytest.mark.parametrize(("groups", "reads"), [(1, 3), (40, 42), (100, 104)])
def test_the_places_of_many_groups_are_read_at_once(tmp_path, monkeypatch, groups, reads):
    records = frame_records([b"%d" % number for number in range(4000)])
    blocks, _ = spill(tmp_path, records, 2)
    opened = collections.Counter()

    def count(path, *arguments, **options):
        opened[path] += 1
        return open(path, *arguments, **options)

    monkeypatch.setattr(shuffle, "open", count, raising=False)
    list(shuffle.shuffled(blocks, 1, 2, groups, 7))
    assert opened == {path: reads for path in blocks}  # twice for each 64 groups, once for each


@pytest.mark.parametrize(
    ("begin", "change", "said"),
    [
        (0, b"", "it ends early"),
        (33_000, b"", "it ends early"),
        (-1, b"", "it ends early"),
        (-1, b"?", "a record is damaged"),
        (0, b"\xff", "its header is not one"),
        (4096 * 8, b"\xff" * 5, "it ends early"),
        (-200, b"-" * 8, "a record is damaged"),
    ],
)
def test_a_damaged_block_is_named(tmp_path, begin, change, said):
    (path,), _ = spill(tmp_path, RECORDS, 1)
    with open(path, "r+b") as stream:
        stream.seek(begin, os.SEEK_END if begin < 0 else os.SEEK_SET)
        stream.write(change)
        if not change:
            stream.truncate()
    with pytest.raises(ValueError, match=f"{path}: damaged, {said}. Remove the folder {tmp_path}"):
        read_back([path], 1)


def test_without_records_no_block_is_written(tmp_path):
    assert spill(tmp_path, [], 3)[0] == []
    assert read_back([], 3) == [[], [], []]


def test_several_chunks_are_shuffled_together_in_an_order_of_the_seed(tmp_path):
    blocks, _ = spill(tmp_path, RECORDS[:90], 2, "one")
    blocks += spill(tmp_path, RECORDS[90:], 2, "two", seed=6)[0]
    first = read_back(blocks, 2)[0]
    origin = [RECORDS.index(record) < 90 for record in first]
    assert sorted(origin) not in (origin, origin[::-1])
    assert read_back(blocks, 2)[0] == first != read_back(blocks, 2, seed=8)[0]


def test_all_orders_are_equally_likely(tmp_path, monkeypatch):
    monkeypatch.setattr(shuffle, "NUM_SLOTS", 3)
    monkeypatch.setattr(os, "fsync", lambda _: None)  # makes writing slow
    records, times = frame_records([b"a", b"b", b"c"]), 600
    orders = collections.Counter()
    for seed in range(times):
        blocks, _ = spill(tmp_path, records, 1, seed=seed)
        orders[b"".join(read_back(blocks, 1, 3, seed=seed + times)[0])] += 1
    assert len(orders) == 6
    assert max(abs(count - times / 6) for count in orders.values()) < 5 * (times / 6) ** 0.5

"""The shuffle on disk: no record is lost, and all orders are equally likely."""

from __future__ import annotations

import collections
import os

import numpy as np
import pytest

from albert_tf.data import shuffling


def test_thousands_of_outputs_share_the_files_of_a_chunk(tmp_path):
    """A chunk has one file for 32 MB of records, whose index takes 8 bytes for each output."""
    records = [bytes([number % 256]) * 11 for number in range(5000)]
    slots = shuffling.draw_slots(len(records), 0, 4096, np.random.default_rng(5))
    spilled = shuffling.Spill(str(tmp_path / "chunk"), 4096)
    spilled.add(records, slots)
    spilled.flush()
    (block,) = tmp_path.iterdir()
    assert block.stat().st_size == 8 * 4097 + 8 * 5001 + 5000 * 11
    found = [
        record
        for output in range(4096)
        for record in shuffling.shuffled(spilled.blocks, output, 4096, 1, random_seed=7)
    ]
    assert sorted(found) == sorted(records)


def spill(tmp_path, records, num_outputs, name="chunk-0", seed=5):
    target = shuffling.Spill(str(tmp_path / name), num_outputs)
    rng = np.random.default_rng(seed)
    for first in range(0, len(records), 7):
        some = records[first : first + 7]
        target.add(some, shuffling.draw_slots(len(some), first, num_outputs, rng))
    target.flush()
    return target


def read_back(blocks, num_outputs, groups=1, seed=7):
    return [
        list(shuffling.shuffled(blocks, output, num_outputs, groups, seed))
        for output in range(num_outputs)
    ]


RECORDS = [b"%d" % number * (number % 5) + b"-" for number in range(200)]


@pytest.mark.parametrize("num_outputs", [1, 3, 64])
@pytest.mark.parametrize("groups", [1, 5])
def test_every_record_comes_back_once(tmp_path, num_outputs, groups):
    outputs = read_back(spill(tmp_path, RECORDS, num_outputs).blocks, num_outputs, groups)
    assert sorted(record for output in outputs for record in output) == sorted(RECORDS)
    sizes = [len(output) for output in outputs]
    assert max(sizes) - min(sizes) <= 1


def test_blocks_are_written_when_memory_is_full(tmp_path, monkeypatch):
    monkeypatch.setattr(shuffling, "SPILL_BYTES", 100)
    spilled = spill(tmp_path, RECORDS, 3)
    assert len(spilled.blocks) > 3
    assert sorted(map(os.path.basename, spilled.blocks)) == sorted(os.listdir(tmp_path))
    assert spilled.written == sum(map(len, RECORDS))
    found = [record for output in read_back(spilled.blocks, 3) for record in output]
    assert sorted(found) == sorted(RECORDS)


def test_without_records_no_block_is_written(tmp_path):
    assert spill(tmp_path, [], 3).blocks == []
    assert read_back([], 3) == [[], [], []]


def test_several_chunks_are_shuffled_together(tmp_path):
    blocks = spill(tmp_path, RECORDS[:90], 2, "one").blocks
    blocks += spill(tmp_path, RECORDS[90:], 2, "two", seed=6).blocks
    first = read_back(blocks, 2)[0]
    origin = [RECORDS.index(record) < 90 for record in first]
    assert sorted(origin) not in (origin, origin[::-1])


def test_the_order_depends_only_on_the_seed(tmp_path):
    blocks = spill(tmp_path, RECORDS, 3).blocks
    assert read_back(blocks, 3, seed=7) == read_back(blocks, 3, seed=7)
    assert read_back(blocks, 3, seed=7) != read_back(blocks, 3, seed=8)


@pytest.mark.parametrize("groups", [1, 3])
def test_all_orders_are_equally_likely(tmp_path, monkeypatch, groups):
    monkeypatch.setattr(shuffling, "NUM_SLOTS", 3)
    monkeypatch.setattr(os, "fsync", lambda _: None)  # makes writing slow
    records, times = [b"a", b"b", b"c"], 1200
    orders = collections.Counter()
    for seed in range(times):
        blocks = spill(tmp_path, records, 1, seed=seed).blocks
        orders[b"".join(read_back(blocks, 1, groups, seed=seed + times)[0])] += 1
    assert len(orders) == 6
    assert max(abs(count - times / 6) for count in orders.values()) < 5 * (times / 6) ** 0.5


def test_slots_are_balanced_over_the_outputs():
    rng = np.random.default_rng(5)
    each = shuffling.slots_per_output(4)
    slots = np.concatenate([shuffling.draw_slots(11, first, 4, rng) for first in range(0, 44, 11)])
    assert np.bincount(slots // each).tolist() == [11] * 4
    assert slots.max() < 4 * each


def test_more_outputs_than_slots_have_one_each(tmp_path, monkeypatch):
    monkeypatch.setattr(shuffling, "NUM_SLOTS", 2)
    assert shuffling.slots_per_output(20) == 1
    outputs = read_back(spill(tmp_path, RECORDS, 20).blocks, 20)
    assert sorted(record for output in outputs for record in output) == sorted(RECORDS)

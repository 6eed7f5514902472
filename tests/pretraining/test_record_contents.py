"""The checksum of the contents of record files: what is read, and which changes it finds."""

from __future__ import annotations

import hashlib

import pytest

from albert_tf.pretraining import records
from albert_tf.pretraining.records import describe_contents

DATA = bytes(range(200))


def digest(*paths):
    return describe_contents(list(map(str, paths)))["record contents"].digest


@pytest.fixture(name="pair")
def make_pair(tmp_path):
    paths = tmp_path / "a", tmp_path / "b"
    for path, data in zip(paths, (DATA, b"end"), strict=True):
        path.write_bytes(data)
    return paths


def test_every_byte_counts_and_the_order_but_not_the_folder(pair, tmp_path):
    expected = hashlib.sha256(b"200 " + DATA + b"3 end").hexdigest()[:16]
    assert digest(*pair) == f"whole, sha256 {expected}"
    (tmp_path / "moved").mkdir()
    moved = [path.rename(tmp_path / "moved" / path.name) for path in pair]
    assert digest(*moved) == f"whole, sha256 {expected}"
    assert digest(*reversed(moved)) != digest(*moved)
    for place in (0, 100, 199):
        moved[0].write_bytes(DATA[:place] + b"\xff" + DATA[place + 1 :])
        assert digest(*moved) != f"whole, sha256 {expected}"


def test_of_many_bytes_evenly_spaced_blocks_are_read(pair, monkeypatch):
    monkeypatch.setattr(records, "BLOCK_BYTES", 10)
    monkeypatch.setattr(records, "READ_BYTES", 60)
    first = pair[0]
    found = digest(first)
    # 20 blocks, of which 0.3 are read: 6 steps of 19 blocks.
    read = b"".join(DATA[10 * block :][:10] for block in (0, 3, 6, 9, 12, 15, 19))
    expected = hashlib.sha256(b"200 " + read).hexdigest()[:16]
    assert found == f"30.00% of the bytes, sha256 {expected}"


def test_remote_files_are_not_read(pair):
    assert describe_contents([f"file://{pair[0]}"]) == {}

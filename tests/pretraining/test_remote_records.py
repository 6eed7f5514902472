"""Record files in an object store: what is asked of the store before the first step."""

from __future__ import annotations

from collections import Counter

import fsspec
import pytest
import tensorflow as tf
from fsspec.implementations.memory import MemoryFileSystem

from albert_tf.data.record_metadata import describe_file, find_records, write_metadata
from albert_tf.data.records import START_BYTES, frame_records
from albert_tf.pretraining.features import Feature
from albert_tf.pretraining.record_files import check_files
from tests.pretraining.conftest import example

FILES, RECORDS = 60, 900  # of 30 kB each
REQUESTS = Counter()


class CountingStore(MemoryFileSystem):
    """A store in memory that counts what a store over HTTP would be asked."""

    protocol = "counting"

    def info(self, path, **kwargs):
        REQUESTS["info"] += 1
        return super().info(path, **kwargs)

    def ls(self, path, detail=True, **kwargs):
        REQUESTS["list"] += 1
        return super().ls(path, detail, **kwargs)

    def cat_file(self, path, start=None, end=None, **kwargs):
        data = self.store[self._strip_protocol(path)].getvalue()[start:end]
        REQUESTS.update({"get": 1, "bytes": len(data)})
        return data

    def _open(self, path, mode="rb", **kwargs):
        if mode == "rb":
            REQUESTS.update({"get": 1, "bytes": len(self.store[path].getvalue())})
        return super()._open(path, mode, **kwargs)


@pytest.fixture
def records():
    """A folder of record files with their metadata, in the store."""
    fsspec.register_implementation("counting", CountingStore, clobber=True)
    store = fsspec.filesystem("counting")
    vocabulary = {"size": 97, "checksum": "a" * 64, "file": "x.model"}
    entries = []
    for number in range(FILES):
        frames = frame_records([example(number=[number])] * RECORDS)
        path = f"counting://bucket/train-{number:05d}"
        store.pipe_file(path, b"".join(frames))
        entries.append(describe_file(path, RECORDS))
    metadata = {"files": entries, "settings": {}, "vocabulary": vocabulary, "mask_id": 4}
    write_metadata("counting://bucket/train.records.json", metadata)
    REQUESTS.clear()
    yield "counting://bucket/train-*"
    MemoryFileSystem.store.clear()


@pytest.mark.parametrize(("only_first", "opened"), [(False, FILES), (True, 1)])
def test_a_start_lists_the_folder_and_reads_the_beginning_of_each_file(records, only_first, opened):
    found = check_files(
        find_records(records, "--input_file"), {"number": Feature((1,), tf.int64)}, only_first
    )
    assert [file.num_records for file in found] == [RECORDS] * FILES
    assert REQUESTS["get"] == opened + 1  # and the metadata
    assert REQUESTS["bytes"] <= opened * START_BYTES + 10_000
    assert REQUESTS["list"] + REQUESTS["info"] <= 5

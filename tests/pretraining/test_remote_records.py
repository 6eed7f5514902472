"""Record files in an object store: what is asked of the store before the first step."""

from __future__ import annotations

from collections import Counter

import fsspec
import pytest
import tensorflow as tf
from fsspec.exceptions import FSTimeoutError
from fsspec.implementations.memory import MemoryFileSystem

from albert_tf.data.record_metadata import describe_file, find_records, write_metadata
from albert_tf.data.records import START_BYTES
from albert_tf.pretraining.features import Feature
from albert_tf.pretraining.metadata_checks import find_record_files
from albert_tf.pretraining.record_files import check_files
from albert_tf.record_frames import frame_records
from albert_tf.training.interruption import InterruptedRunError
from tests.pretraining.conftest import example

FILES, RECORDS = 60, 900  # of 30 kB each
FEATURE = Feature((1,), tf.int64)
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
    found = check_files(find_records(records, "--input_file"), {"number": FEATURE}, only_first)
    assert [file.num_records for file in found] == [RECORDS] * FILES
    assert REQUESTS["get"] == opened + 1  # and the metadata
    assert REQUESTS["bytes"] <= opened * START_BYTES + 10_000
    assert REQUESTS["list"] + REQUESTS["info"] <= 6  # however many files there are


class UnavailableServiceError(Exception):
    """An error of a client, as those of Google's and Amazon's stores are."""


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (FSTimeoutError(), r"\(FSTimeoutError\)"),
        (UnavailableServiceError("503\nHTML"), r"\(UnavailableServiceError: 503\)"),
    ],
)
def test_a_store_that_does_not_answer_at_the_start_ends_the_run_for_now(
    records, monkeypatch, error, reason
):
    def fail(self, path, *arguments, **options):
        raise error

    found = find_records(records, "--input_file")
    expected = rf"counting://bucket/train-.*: the store does not answer {reason}\. Run the same"
    monkeypatch.setattr(CountingStore, "cat_file", fail)
    with pytest.raises(InterruptedRunError, match=expected):
        check_files(found, {"number": FEATURE})
    monkeypatch.setattr(CountingStore, "info", fail)
    with pytest.raises(InterruptedRunError, match=expected):
        find_record_files("counting://bucket/train-00000", "--input_file")


def test_damage_is_no_missing_answer(records):
    found = find_records(records, "--input_file")
    store, path = fsspec.filesystem("counting"), "counting://bucket/train-00007"
    store.pipe_file(path, store.cat_file(path, end=20))
    with pytest.raises(ValueError, match="train-00007, record 1: the file ends early"):
        check_files(found, {"number": FEATURE})

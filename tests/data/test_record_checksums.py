"""Checksums of record files, and when they are trusted."""

from __future__ import annotations

import hashlib
import os
import shutil

import pytest

from albert_tf import files
from albert_tf.data import record_checksums, records
from albert_tf.data.tfrecord import frame_records


@pytest.fixture(name="path", params=["", "gzip"])
def make_records(tmp_path, request):
    """Returns the path of a record file that the data program wrote."""
    path = tmp_path / "data" / "train"
    path.parent.mkdir()
    with records.open_output(str(path), request.param) as write:
        write(frame_records([b"the boat", b"waits"]))
        write(frame_records([b"at the landing"]))
    return path


def test_the_data_program_stores_the_checksum_of_all_bytes(path):
    expected = hashlib.sha256(path.read_bytes()).hexdigest()
    assert record_checksums.find(str(path)) == record_checksums.compute(str(path)) == expected


def test_a_checksum_travels_with_a_file_that_keeps_its_time(path, tmp_path):
    shutil.copytree(path.parent, tmp_path / "kept")
    assert record_checksums.find(str(tmp_path / "kept" / "train"))
    shutil.copytree(path.parent, tmp_path / "copied", copy_function=shutil.copyfile)
    assert record_checksums.find(str(tmp_path / "copied" / "train")) is None


def test_a_changed_file_has_no_stored_checksum(path):
    before, content = path.stat(), path.read_bytes()
    path.write_bytes(content[::-1])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert record_checksums.find(str(path)) is None
    path.write_bytes(content + b"x")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert record_checksums.find(str(path)) is None
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert record_checksums.find(str(path))
    files.remove(record_checksums.path_of(str(path)))
    assert record_checksums.find(str(path)) is None


def test_without_a_version_nothing_is_trusted(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "version", lambda path: "")
    path = f"file://{tmp_path}/train"
    with records.open_output(path, "") as write:
        write(frame_records([b"the boat"]))
    assert files.exists(record_checksums.path_of(path))
    assert record_checksums.find(path) is None

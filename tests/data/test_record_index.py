"""Indexes of record files: where each record starts."""

from __future__ import annotations

import numpy as np
import pytest

from albert_tf import files
from albert_tf.data import record_index, records
from albert_tf.data.tfrecord import frame_records

CONTENTS = [bytes([i]) * (i % 7 + 1) for i in range(23)]


@pytest.fixture(name="path", params=["", "file://"])
def record_file(tmp_path, request):
    """The path of a record file with an index, local or remote."""
    path = f"{request.param}{tmp_path}/train"
    write(path)
    return path


def write(path, contents=CONTENTS, compression=""):
    with records.open_output(path, compression) as write_frames:
        for frame in frame_records(contents):
            write_frames([frame])


def test_nothing_but_the_index_is_written(path, monkeypatch):
    # A worker that is killed must not leave files that `files.remove_half_written` does not know.
    written, write_atomically = [], files.write_atomically
    monkeypatch.setattr(
        files,
        "write_atomically",
        lambda path, *mode: (written.append(path), write_atomically(path, *mode))[1],
    )
    record_index.write(path, [0, 17])
    assert written == [record_index.path_of(path)]


def without_headers(monkeypatch, path):
    """Makes it an error to read a file in another way than by byte ranges."""
    opened, sizes = files.open_unbuffered, {}
    for name in (path, record_index.path_of(path)):
        sizes[name] = files.file_size(name)

    def fail(path):
        raise AssertionError(path)

    def read_ranges(path, ranges):
        with opened(path) as stream:
            return [(stream.seek(begin), stream.read(end - begin))[1] for begin, end in ranges]

    monkeypatch.setattr(files, "read_ranges", read_ranges)
    monkeypatch.setattr(files, "file_size", sizes.__getitem__)
    monkeypatch.setattr(files, "open_unbuffered", fail)
    monkeypatch.setattr(files, "open_binary", fail)


def test_an_index_is_written_beside_the_records(tmp_path):
    write(str(tmp_path / "train"))
    starts = np.cumsum([0, *map(len, frame_records(CONTENTS))])
    index = tmp_path / "records.index" / "train"
    assert np.frombuffer(index.read_bytes(), "<i8").tolist() == starts.tolist()
    write(str(tmp_path / "packed"), compression="gzip")
    indexes = [path.name for path in index.parent.iterdir() if path.suffix != ".sha256"]
    assert indexes == ["train"]
    write(str(tmp_path / "empty"), [])
    found = record_index.find(str(tmp_path / "empty"))
    assert (found.num_records, list(found.offsets())) == (0, [0])


def test_a_failed_file_has_no_index(tmp_path):
    def write_half():
        with records.open_output(str(tmp_path / "train"), "") as write_frames:
            write_frames([b"frame"])
            raise KeyError

    with pytest.raises(KeyError):
        write_half()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("at_once", [1, 5, 22, 23, 100])
def test_the_places_of_an_index_are_those_of_the_headers(tmp_path, monkeypatch, at_once):
    monkeypatch.setattr(record_index, "OFFSETS_AT_ONCE", at_once)
    path = str(tmp_path / "train")
    write(path)
    for start in (0, 1, 5, 20, 23):
        by_headers = list(records._places_by_headers(path))[start:]
        assert list(records.find_places(path, start)) == by_headers, start


def test_records_are_found_without_reading_others(path, monkeypatch):
    assert records.has_places(path)
    without_headers(monkeypatch, path)
    places = list(records.find_places(path, 2))
    assert [place.number for place in places] == [*range(2, 23)]
    assert records.read_places(path, places[4:9:2]) == CONTENTS[6:11:2]


def test_reading_starts_at_any_record(path):
    for start in (0, 1, 9, 21, 22, 30):
        assert list(records.read_records(path, start)) == CONTENTS[start:], start


def test_the_bytes_read_before_the_start_do_not_depend_on_it(tmp_path, monkeypatch):
    path, sizes = str(tmp_path / "train"), []
    write(path, [b"content"] * 50_000)
    read_ranges = files.read_ranges

    def count(path, ranges):
        sizes.append(sum(end - begin for begin, end in ranges))
        return read_ranges(path, ranges)

    monkeypatch.setattr(files, "read_ranges", count)
    for start in (1, 30_000, 48_000):
        sizes.clear()
        assert next(records.find_places(path, start)).number == start
        assert sizes == [16, 8 * (record_index.OFFSETS_AT_ONCE + 1)]


def test_a_remote_file_without_an_index_has_no_places(path):
    files.remove(record_index.path_of(path))
    assert records.has_places(path) == (not files.is_remote(path))
    assert list(records.read_records(path, 5)) == CONTENTS[5:]


def test_an_index_of_another_file_is_ignored(path, caplog):
    with files.write_atomically(path, "wb") as stream:
        stream.write(b"".join(frame_records(CONTENTS[:9])))
    assert record_index.find(path) is None
    assert "records.index/train: ignored, because it was not made for a file of " in caplog.text
    assert list(records.read_records(path, 5)) == CONTENTS[5:9]


def test_an_index_without_the_first_record_is_ignored(tmp_path, caplog):
    path = str(tmp_path / "train")
    write(path)
    np.fromfile(record_index.path_of(path), "<i8")[1:].tofile(record_index.path_of(path))
    assert list(records.read_records(path)) == CONTENTS
    assert next(records.find_places(path)).number == 0
    assert "records.index/train: ignored" in caplog.text


def test_an_index_of_other_records_of_the_same_size_is_an_error(tmp_path):
    path = str(tmp_path / "train")
    write(path, [b"a" * 5, b"b" * 9, b"c" * 7])
    place = next(records.find_places(path, 1))
    (tmp_path / "train").write_bytes(b"".join(frame_records([b"a" * 9, b"b" * 5, b"c" * 7])))
    with pytest.raises(ValueError, match=r"train, record 2: not where .*records\.index/train\)"):
        records.read_places(path, [place])


@pytest.mark.parametrize("number", [-8, 0, 3, 10**9, -(2**63)])
def test_a_damaged_index_is_an_error(tmp_path, number):
    path = str(tmp_path / "train")
    write(path)
    offsets = np.fromfile(record_index.path_of(path), "<i8")
    offsets[4] = number
    offsets.tofile(record_index.path_of(path))
    with pytest.raises(ValueError, match=r"records\.index/train: damaged\. Remove it"):
        list(records.find_places(path))


def test_patterns_for_records_do_not_include_indexes(tmp_path):
    for name in ("train-1", "train-2"):
        write(str(tmp_path / name))
    expected = [str(tmp_path / "train-1"), str(tmp_path / "train-2")]
    assert files.expand_patterns(f"{tmp_path}/train*", "--x") == expected
    found = files.expand_patterns(f"{tmp_path}/*", "--x")
    assert len(found) == 3
    assert records.exclude_own_files(found) == expected
